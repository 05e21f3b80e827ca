"""Autocast, half-precision parameters and loss scaling, for every rule of the catalog."""

import pytest
import torch
from torch import nn

from tests.contracts.loop import K, collect, every_step, filled
from tests.models import build, flat_grad, images


@every_step
def test_bfloat16_autocast_stays_near_float32(make):
    batches = [(x.float(), y) for x, y in images(K)]
    expected = filled(build("BatchNorm-like").float(), make, batches)
    model = build("BatchNorm-like").float()

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    gradient = filled(model, make, batches, forward)
    assert gradient.dtype == torch.float32
    # A rule may find nothing that all mini-batches share, and leave zeros in either precision.
    assert (gradient - expected).norm() <= 0.25 * expected.norm()


@every_step
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_get_statistics_in_float32(make, dtype):
    model = nn.Linear(200, 50).to(dtype)
    step = make(model, num_batches=3)
    for _ in range(3):
        step.backward(300 * model(torch.ones(1, 200, dtype=dtype)).sum())  # squared norms beyond float16's 65504
    report = step.fill()
    assert model.weight.grad.dtype == dtype
    assert torch.isfinite(model.weight.grad).all()
    assert report.finite.all()


def scaled_filled(make, model, batches, init_scale):
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = make(model, num_batches=len(batches), scaler=scaler)
    collect(model, step, batches)
    report = step.fill()
    scaler.unscale_(optimizer)
    return scaler, optimizer, report


@every_step
def test_a_grad_scaler_changes_nothing_but_the_range(make):
    batches = [(x.float(), y) for x, y in images(K)]
    expected = filled(build("CifarNet-like").float(), make, batches)
    model = build("CifarNet-like").float()
    scaler, optimizer, _ = scaled_filled(make, model, batches, init_scale=2.0**12)
    torch.testing.assert_close(flat_grad(model), expected, rtol=1e-6, atol=0)
    before = [p.detach().clone() for p in model.parameters()]
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**12
    for p, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(p, old - 0.1 * p.grad)


@every_step
def test_overflow_under_a_scaler_lowers_the_scale_until_training_goes_on(make):
    model = build("CifarNet-like").float()
    batches = [(x.float(), y) for x, y in images(K)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**28)  # far beyond float16's 65504
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = make(model, num_batches=K, scaler=scaler)

    def forward(x):
        with torch.autocast("cpu", torch.float16):
            return model(x)

    scales, overflowed = [], []
    for _ in range(20):
        scales.append(scaler.get_scale())
        collect(model, step, batches, forward)
        overflowed.append(int((~step.fill().finite).sum()))
        scaler.step(optimizer)
        scaler.update()
    assert overflowed[0] == K
    assert overflowed[-1] == 0
    assert scales[-1] < scales[0]
    assert all(torch.isfinite(p).all() for p in model.parameters())


@every_step
def test_a_disabled_scaler_is_no_scaler(make):
    batches = images(K)
    model = build("CifarNet-like")
    gradient = filled(model, make, batches, scaler=torch.amp.GradScaler("cpu", enabled=False))
    assert torch.equal(gradient, filled(build("CifarNet-like"), make, batches))
