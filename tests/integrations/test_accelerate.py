"""The loop that docs/integrations.md shows for Accelerate ends where a loop without it ends."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

accelerate = pytest.importorskip("accelerate", reason="accelerate is missing; run: pip install '.[accelerate]'")

from deepbilevel import Bilevel  # noqa: E402
from deepbilevel.distributed import share  # noqa: E402
from tests.integrations.tasks import BATCH_SIZE, SEED, K, make_data, make_network, plain_loop, vector  # noqa: E402


def train(spread, *, epochs=2, clip=None, prepare_loader=False):
    accelerator = accelerate.Accelerator(cpu=True)
    inputs, labels = make_data()
    network = make_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(network, optimizer)
    bilevel = share(Bilevel(model, num_batches=K, scaler=accelerator.scaler), spread)
    loader = bilevel.loader(TensorDataset(inputs, labels), labels, batch_size=BATCH_SIZE, seed=SEED)
    if prepare_loader:
        loader = accelerator.prepare(loader)
    for _ in range(epochs):
        for x, y in loader:
            x, y = x.to(accelerator.device), y.to(accelerator.device)
            with accelerator.autocast():
                loss = F.cross_entropy(model(x), y)
            bilevel.backward(loss)
            if bilevel.full:
                bilevel.fill()
                if clip is not None:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
    return vector(network)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("spread", ["batches", "groups"])
def test_the_parameters_are_those_of_the_plain_loop(spread, clip):
    torch.testing.assert_close(train(spread, clip=clip), plain_loop(clip=clip), rtol=1e-9, atol=1e-12)


def test_one_process_may_prepare_its_loader():
    torch.testing.assert_close(train("batches", prepare_loader=True), plain_loop(), rtol=1e-9, atol=1e-12)


def test_losses_that_the_accelerator_would_divide_are_said():
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=K)
    model = nn.Linear(2, 2)
    bilevel = Bilevel(model, num_batches=K)
    with pytest.warns(UserWarning, match="the loss was divided by 4"):
        bilevel.backward(model(torch.ones(3, 2)).mean() / accelerator.gradient_accumulation_steps)
