"""Twenty steps in float64 whose every weight is written down: a change that should not move numbers does not.

After a change that *should* move them: ``python -m tests.test_golden`` writes them anew; say why in the commit.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel import Bilevel, MatchedGroups
from tests import reference
from tests.models import flat_grad, gradient_matrix

GOLDEN = Path(__file__).parent / "golden" / "bilevel_20_steps.json"


def waves(*shape: int) -> torch.Tensor:
    """Return numbers that look random and owe nothing to any random generator."""
    count = torch.arange(1, 1 + int(np.prod(shape)), dtype=torch.float64)
    return torch.sin(count**2 / 7).reshape(shape)


def run(num_steps: int = 20):
    """Train, checking each step against the reference, and return what happened."""
    inputs = waves(96, 5)
    labels = ((inputs.sum(1) > 0).long() + (torch.arange(96) % 7 == 0)) % 3  # some of them wrong
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * waves(*parameter.shape))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-3)
    bilevel = Bilevel(model, num_batches=4)
    batches = iter([])
    sampler = MatchedGroups(labels, num_batches=4, batch_size=4, seed=0)
    history = []
    for _ in range(num_steps):
        group = [next(batches, None) for _ in range(4)]
        if group[0] is None:
            batches = iter(sampler)
            group = [next(batches) for _ in range(4)]
        matrix = gradient_matrix(model, [(inputs[i], labels[i]) for i in group]).numpy()
        report = bilevel.step_over(group, lambda i: F.cross_entropy(model(inputs[i]), labels[i]))
        np.testing.assert_allclose(flat_grad(model), reference.solve(matrix, lam=1.0, mu=0.01).gradient, rtol=1e-10)
        optimizer.step()
        optimizer.zero_grad()
        history.append({"weights": report.weights.tolist(), "losses": report.losses.tolist()})
    return {"steps": history, "parameters": [p.flatten().tolist() for p in model.parameters()]}


def test_twenty_steps_give_the_numbers_on_record():
    golden, ours = json.loads(GOLDEN.read_text()), run()
    for step, (theirs, mine) in enumerate(zip(golden["steps"], ours["steps"], strict=True)):
        np.testing.assert_allclose(mine["weights"], theirs["weights"], rtol=1e-8, atol=1e-10, err_msg=f"step {step}")
        np.testing.assert_allclose(mine["losses"], theirs["losses"], rtol=1e-8, err_msg=f"step {step}")
    for theirs, mine in zip(golden["parameters"], ours["parameters"], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8, atol=1e-10)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(run(), indent=1) + "\n")
