"""Shrinking updates instead of gradients: equal to the textbook, with any optimizer, in every kind of loop."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

from deepbilevel import CrossValidated
from deepbilevel.shrunken_updates import ShrunkenUpdates
from tests.contracts.loop import collect
from tests.models import build, gradient_matrix, images
from tests.reference import cross_validate
from tests.rules.test_cross_validated import BLOCKS, columns_of
from tests.test_memory import SIZE, LiveBytes
from tests.test_optimizers import NEEDS_MORE_THAN_GRAD, TORCH_OPTIMIZERS, matrices

K = 4


def updating(parameters, optimizer, num_batches=K, **settings):
    return CrossValidated(parameters, num_batches=num_batches, shrink="update", optimizer=optimizer, **settings)


def factors_of(rows, columns=None):
    """Return the textbook's factor of every parameter."""
    return cross_validate(rows, columns or [np.array([i]) for i in range(rows.shape[1])]) / rows.mean(axis=0)


def random_rows(seed, size=6):
    return np.random.RandomState(seed).randn(K, size) + np.linspace(-2, 2, size)


def collect_vectors(rule, parameter, rows):
    for row in torch.as_tensor(rows, dtype=parameter.dtype):
        rule.backward((parameter * row).sum())


def values(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def test_adam_takes_its_textbook_step_on_the_mean_and_a_part_of_it_is_kept():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    rule = updating([parameter], optimizer)
    expected, first, second = np.zeros(6), np.zeros(6), np.zeros(6)
    for number in range(1, 8):
        rows = random_rows(number)
        collect_vectors(rule, parameter, rows)
        rule.fill()
        np.testing.assert_allclose(parameter.grad, rows.mean(axis=0), rtol=1e-12)
        optimizer.step()
        first = 0.9 * first + 0.1 * rows.mean(axis=0)
        second = 0.999 * second + 0.001 * rows.mean(axis=0) ** 2
        full = -0.1 * (first / (1 - 0.9**number)) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
        expected += factors_of(rows) * full
        np.testing.assert_allclose(parameter.detach(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_kind_of_block_shrinks_its_own_update(block):
    model, batches = build("BatchNorm-like"), [(x, y % 2) for x, y in images(K)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rule = updating(model, optimizer, block=block)
    before = values(model)
    collect(model, rule, batches)
    rule.fill()
    rows = gradient_matrix(build("BatchNorm-like"), batches).numpy()
    optimizer.step()
    # The first step of Adam has the same length for every parameter.
    mean = rows.mean(axis=0)
    expected = -0.01 * factors_of(rows, columns_of(model, block)) * mean / (np.abs(mean) + 1e-8)
    np.testing.assert_allclose(values(model) - before, expected, rtol=1e-7, atol=1e-12)


def one_step(optimizer_class, choose, shrink):
    """Return the parameters before and after one step on the same group, plain or shrunk, and the factors."""
    torch.manual_seed(0)
    model = build("BatchNorm-like").float()
    optimizer = optimizer_class(choose(model), lr=1e-2)
    rule = updating(model, optimizer)
    collect(model, rule, [(x.float(), y % 2) for x, y in images(K)])
    rule.fill()
    factors = [rule._updates.factors[position] for position in range(len(list(model.parameters())))]
    if not shrink:
        rule._updates.factors = {}
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    return before, list(model.parameters()), factors


@pytest.mark.parametrize("name", [name for name in TORCH_OPTIMIZERS if name not in NEEDS_MORE_THAN_GRAD])
def test_every_optimizer_of_torch_goes_a_part_of_its_own_way(name):
    kind, choose = getattr(torch.optim, name), matrices if name == "Muon" else nn.Module.parameters
    before, plain, factors = one_step(kind, choose, shrink=False)
    _, shrunk, _ = one_step(kind, choose, shrink=True)
    for old, full, part, factor in zip(before, plain, shrunk, factors, strict=True):
        torch.testing.assert_close(part, old + factor * (full - old), rtol=1e-5, atol=1e-7)


def test_the_update_of_plain_sgd_is_that_of_the_shrunken_gradient():
    ends = []
    for settings in ({}, {"shrink": "update"}):
        model = build("CifarNet-like")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rule = CrossValidated(model, num_batches=K, **settings, **({"optimizer": optimizer} if settings else {}))
        for seed in range(3):
            collect(model, rule, images(K, seed=seed))
            rule.fill()
            optimizer.step()
        ends.append(values(model))
    torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-14)


def test_steps_before_the_next_backward_are_all_shrunk_and_later_ones_do_nothing():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rule = updating([parameter], optimizer)
    rows = random_rows(0)
    collect_vectors(rule, parameter, rows)
    rule.fill()
    for number in (1, 2):
        optimizer.step()
        np.testing.assert_allclose(parameter.detach(), -number * factors_of(rows) * rows.mean(axis=0), rtol=1e-12)
    rule.backward((parameter * torch.from_numpy(rows[0])).sum())
    before = parameter.detach().clone()
    with pytest.warns(UserWarning, match="after 1 of num_batches=4 mini-batches of a group"):
        optimizer.step()  # in mid-group there is no gradient
    assert torch.equal(parameter, before)
    rule.reset()
    parameter.grad = torch.ones_like(parameter)  # somebody else's gradient is none of our business
    optimizer.step()
    assert torch.equal(parameter, before - 1)


def test_several_param_groups_and_parameters_that_only_one_side_has():
    ours, shared, theirs = (nn.Parameter(torch.zeros(6, dtype=torch.float64)) for _ in range(3))
    optimizer = torch.optim.SGD([{"params": [theirs]}], lr=1.0)
    rule = updating([ours, shared], optimizer)
    optimizer.add_param_group({"params": [shared], "lr": 0.5})  # after the rule was made
    rows = random_rows(0)
    for row in torch.from_numpy(rows):
        rule.backward(((ours + shared) * row).sum())
    rule.fill()
    theirs.grad = torch.ones_like(theirs)
    optimizer.step()
    assert torch.equal(ours, torch.zeros_like(ours))
    assert torch.equal(theirs, -torch.ones_like(theirs))
    np.testing.assert_allclose(shared.detach(), -0.5 * factors_of(rows) * rows.mean(axis=0), rtol=1e-12)


def test_a_parameter_that_no_mini_batch_uses_is_left_alone():
    used, unused = (nn.Parameter(torch.ones(6, dtype=torch.float64)) for _ in range(2))
    optimizer = torch.optim.AdamW([used, unused], lr=0.1)
    rule = updating([unused, used], optimizer)
    collect_vectors(rule, used, random_rows(0))
    rule.fill()
    optimizer.step()
    assert torch.equal(unused, torch.ones_like(unused))
    assert not torch.equal(used, torch.ones_like(used))


def test_weight_decay_is_part_of_the_update():
    parameter = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.5)
    rule = updating([parameter], optimizer, num_batches=2)
    collect_vectors(rule, parameter, [[1.0, 1.0], [1.0, -1.0]])  # agreement, and contradiction
    rule.fill()
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([0.95 - 0.1, 1.0], dtype=torch.float64))


def test_a_closure_may_compute_the_group_within_the_step():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rule = updating([parameter], optimizer)
    expected = np.zeros(6)
    for seed in range(3):
        rows = random_rows(seed)

        def closure(rows=rows):
            collect_vectors(rule, parameter, rows)
            return rule.fill().losses.mean()

        optimizer.step(closure)
        expected -= factors_of(rows) * rows.mean(axis=0)
        np.testing.assert_allclose(parameter.detach(), expected, rtol=1e-12)


def test_a_step_that_a_scaler_skips_changes_nothing_and_the_next_is_shrunk():
    parameter = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    rule = updating([parameter], optimizer, scaler=scaler)
    rows = random_rows(0)
    for spoiled in (True, False):
        collect_vectors(rule, parameter, rows)
        rule.fill()
        if spoiled:
            parameter.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        assert parameter.any() == (not spoiled)
    np.testing.assert_allclose(parameter.detach(), -0.1 * np.sign(rows.mean(axis=0)) * factors_of(rows), rtol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_mini_batches_that_are_not_finite_are_left_out_of_mean_and_factor(bad):
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rule = updating([parameter], optimizer, num_batches=K + 1)
    rows = random_rows(0)
    collect_vectors(rule, parameter, np.insert(rows, 2, bad, axis=0))
    assert rule.fill().skipped == (2,)
    optimizer.step()
    np.testing.assert_allclose(parameter.detach(), -factors_of(rows) * rows.mean(axis=0), rtol=1e-12)


def test_after_groups_of_nothing_but_nan_momentum_moves_nothing():
    parameter = nn.Parameter(torch.zeros(6))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    rule = updating([parameter], optimizer)
    for rows in (random_rows(0), np.full((K, 6), np.nan)):
        before = parameter.detach().clone()
        collect_vectors(rule, parameter, rows)
        applied = rule.fill().applied
        optimizer.step()
        assert torch.equal(parameter, before) == (not applied)
    assert not applied


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_parameters_are_shrunk(dtype):
    parameter = nn.Parameter(torch.zeros(6, dtype=dtype))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rule = updating([parameter], optimizer)
    rows = random_rows(0)
    collect_vectors(rule, parameter, rows)
    rule.fill()
    optimizer.step()
    np.testing.assert_allclose(parameter.detach().float(), -factors_of(rows) * rows.mean(axis=0), rtol=0.05, atol=0.01)


def num_hooks(optimizer):
    return len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)


def test_hooks_go_with_the_rule_and_a_second_rule_does_not_shrink_twice():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rows = random_rows(0)
    for number in (1, 2):
        rule = updating([parameter], optimizer)
        gc.collect()
        assert num_hooks(optimizer) == (1, 1)
        collect_vectors(rule, parameter, rows)
        rule.fill()
        optimizer.step()
        np.testing.assert_allclose(parameter.detach(), -number * factors_of(rows) * rows.mean(axis=0), rtol=1e-12)
        del rule
    gc.collect()
    assert num_hooks(optimizer) == (0, 0)
    before = parameter.detach().clone()
    optimizer.step()
    assert torch.equal(parameter, before - parameter.grad)


def test_loading_states_adds_no_hooks_and_keeps_those_there_are():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    rule = updating([parameter], optimizer)
    for _ in range(3):
        rule.load_state_dict(rule.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
    assert num_hooks(optimizer) == (1, 1)
    collect_vectors(rule, parameter, random_rows(0))
    rule.fill()
    optimizer.step()
    np.testing.assert_allclose(parameter.detach().abs(), 0.1 * factors_of(random_rows(0)), rtol=1e-6)
    with pytest.raises(ValueError, match=r"rule\.shrink='gradient', this step has rule\.shrink='update'"):
        rule.load_state_dict(CrossValidated([parameter], num_batches=K).state_dict())
    assert num_hooks(optimizer) == (1, 1)


def test_a_step_that_fails_spoils_nothing_for_the_next():
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    rule = updating([parameter], optimizer)
    rows = random_rows(0)
    collect_vectors(rule, parameter, rows)
    rule.fill()
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    optimizer.step()
    np.testing.assert_allclose(parameter.detach(), -factors_of(rows) * rows.mean(axis=0), rtol=1e-12)


def memory_of_steps(num_batches, shrink):
    """Return the peak of live memory over two steps, parameters included, and what is held between two groups."""
    parameters = [nn.Parameter(torch.zeros(SIZE)) for _ in range(10)]
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=False)
    settings = {"shrink": "update", "optimizer": optimizer} if shrink == "update" else {}
    rule = CrossValidated(parameters, num_batches=num_batches, **settings)
    with LiveBytes() as memory:
        for _ in range(2):
            for _ in range(num_batches):
                rule.backward(sum((p * 2).sum() for p in parameters))
            rule.fill()
            optimizer.step()
            optimizer.zero_grad()
    model = 4 * SIZE * len(parameters)
    return memory.peak / model, memory.live / model


def test_one_more_buffer_is_held_between_groups_but_the_peak_is_that_of_shrinking_gradients():
    peak, held = memory_of_steps(8, "update")
    assert (peak, held) == pytest.approx(memory_of_steps(32, "update"), rel=0.02)
    plain_peak, plain_held = memory_of_steps(8, "gradient")
    assert peak == pytest.approx(plain_peak, rel=0.02)
    assert held - plain_held == pytest.approx(1, rel=0.02)  # the factors, until the next mini-batch


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"shrink": "update"},
            TypeError,
            "needs the optimizer whose updates it shrinks.*got NoneType; pass optimizer=",
        ),
        ({"shrink": "update", "optimizer": "Adam"}, TypeError, "got str; pass optimizer="),
        ({"shrink": "updates"}, ValueError, "did you mean 'update'"),
        (
            {"optimizer": torch.optim.SGD([torch.zeros(1)])},
            ValueError,
            "optimizer is for rules that shrink its updates, as CrossValidated with shrink='update' does; leave it out",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        CrossValidated([nn.Parameter(torch.zeros(1))], num_batches=2, **settings)


def test_a_state_that_needs_an_optimizer_is_refused_without_one():
    parameter = nn.Parameter(torch.zeros(1))
    rule = CrossValidated([parameter], num_batches=2)
    state = rule.state_dict()
    other = updating([parameter], torch.optim.SGD([parameter]), num_batches=2)
    with pytest.raises(ValueError, match=r"saved with rule\.shrink='update', this step has rule\.shrink='gradient'"):
        rule.load_state_dict(other.state_dict())
    assert rule.state_dict() == state


def test_updates_of_parameters_in_channels_last_are_shrunk():
    weight = nn.Parameter(torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    updates = ShrunkenUpdates(optimizer, [weight])
    updates.factors[0] = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), -updates.factors[0])
    assert weight.is_contiguous(memory_format=torch.channels_last)
