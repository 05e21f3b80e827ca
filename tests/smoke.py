"""A first minute with the installed library: torch and numpy, and nothing of this clone. Run by `make package`."""

import sys
from importlib.metadata import requires, version

import torch
from torch import nn

from deepbilevel import Bilevel, CrossValidated, MatchedGroups, __version__
from deepbilevel.audit import LabelAudit


def main() -> None:
    assert __version__ == version("deepbilevel")
    always = [line for line in requires("deepbilevel") or [] if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in always) == ["numpy", "torch"], always
    torch.manual_seed(0)
    images, labels = torch.randn(256, 8), torch.arange(256) % 4
    for make in (Bilevel, CrossValidated):
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step, audit = make(model, num_batches=4), LabelAudit(labels, num_classes=4)
        before = model.weight.detach().clone()
        for indices in MatchedGroups(labels, num_batches=4, batch_size=8, seed=0):
            logits = model(images[indices])
            audit.observe(indices, logits)
            step.backward(nn.functional.cross_entropy(logits, labels[indices]))
            if step.full:
                step.fill()
                optimizer.step()
        assert not torch.equal(model.weight, before)
        assert len(audit.issues()) == len(labels)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"deepbilevel_lab", "typer", "rich", "sklearn"}, loaded
    print(f"deepbilevel {__version__} with torch {torch.__version__}: steps, groups and audit work")


if __name__ == "__main__":
    main()
