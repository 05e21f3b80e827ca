"""Any optimizer whose step needs nothing but ``.grad`` works behind ``fill``."""

import pytest
import pytorch_optimizer
import torch
from torch import nn

from deepbilevel import Bilevel
from tests.contracts.loop import collect
from tests.models import build, images

NEEDS_MORE_THAN_GRAD = {"LBFGS", "SparseAdam"}  # a closure; sparse gradients
TORCH_OPTIMIZERS = sorted(
    name
    for name, value in vars(torch.optim).items()
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
)


def matrices(model):
    return [p for p in model.parameters() if p.ndim == 2]


def muon_groups(model):
    others = [p for p in model.parameters() if p.ndim != 2]
    return [{"params": matrices(model), "use_muon": True}, {"params": others, "use_muon": False}]


def train_behind_fill(optimizer_class, choose=nn.Module.parameters, **arguments):
    """Take some steps with an optimizer that sees nothing but `.grad`; some of them wait a few steps to move."""
    model = build("BatchNorm-like").float()
    optimizer = optimizer_class(choose(model), **arguments)
    step = Bilevel(model, num_batches=2)
    before = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    for seed in range(12):
        collect(model, step, [(x.float(), y) for x, y in images(2, seed=seed)])
        step.fill()
        optimizer.step()
        optimizer.zero_grad()
    after = [p for group in optimizer.param_groups for p in group["params"]]
    assert all(torch.isfinite(p).all() for p in after)
    assert any(not torch.equal(p, old) for p, old in zip(after, before, strict=True))


@pytest.mark.parametrize("name", [name for name in TORCH_OPTIMIZERS if name not in NEEDS_MORE_THAN_GRAD])
def test_every_optimizer_of_torch_follows(name):
    train_behind_fill(getattr(torch.optim, name), matrices if name == "Muon" else nn.Module.parameters, lr=1e-3)


# They ask for more than `.grad`: a closure or second derivatives, a process group, or pairs of LoRA matrices.
MORE_THAN_A_STEP = {
    "adahessian", "adalomo", "alig", "bsam", "demo", "distributedmuon", "lbfgs", "lomo", "lorarite", "muonclip",
    "sophiah",
}  # fmt: skip
OTHER_PARAMETERS = {
    "adago": muon_groups,
    "adammini": lambda model: model,
    "adamuon": muon_groups,
    "muon": muon_groups,
    "normuon": muon_groups,
    "spectralsphere": matrices,
}
OTHER_ARGUMENTS = {"ranger21": {"num_iterations": 12}}
FOREIGN = sorted(set(pytorch_optimizer.get_supported_optimizers()) - MORE_THAN_A_STEP)


# A tenth of them is quick: a hundred more that only read `.grad` find little.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (place % 10 > 0)) for place, name in enumerate(FOREIGN)]
)
@pytest.mark.filterwarnings("ignore")  # what foreign optimizers warn about is theirs
def test_every_optimizer_of_pytorch_optimizer_follows(name):
    choose = OTHER_PARAMETERS.get(name, nn.Module.parameters)
    train_behind_fill(pytorch_optimizer.load_optimizer(name), choose, **OTHER_ARGUMENTS.get(name, {}))
