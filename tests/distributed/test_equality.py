"""Two and three processes do what one does: the same gradient, report, parameters and BatchNorm statistics."""

import pytest
import torch

from tests.contracts.loop import STEPS
from tests.distributed.cases import train

SPREADABLE = [name for name in STEPS if not any(word in name for word in ("exact", "k-fold", "agreement filter"))]


def same(theirs, ours, **tolerance):
    """Compare nested results; numbers to the tolerance, everything else exactly."""
    tolerance = tolerance or {"rtol": 1e-12, "atol": 1e-12}
    if isinstance(ours, dict):
        assert theirs.keys() == ours.keys()
        for name in ours:
            same(theirs[name], ours[name], **tolerance)
    elif isinstance(ours, list):
        assert len(theirs) == len(ours)
        for their, our in zip(theirs, ours, strict=True):
            same(their, our, **tolerance)
    elif isinstance(ours, torch.Tensor):
        if ours.dtype == torch.float32 and tolerance["rtol"]:  # what a report adds up in float32, in any order
            tolerance = {"rtol": max(tolerance["rtol"], 1e-6), "atol": max(tolerance["atol"], 1e-7)}
        torch.testing.assert_close(theirs, ours, **tolerance, equal_nan=True)
    else:
        assert theirs == ours


def equal(theirs, ours):
    same(theirs, ours, rtol=0, atol=0)


def check(processes, tolerance=None, **arguments):
    results = processes.run(train, **arguments)
    expected = train(**arguments)
    for result in results:
        if arguments.get("network") == "branching":  # an average holds zeros for what never had a gradient
            expected["state"] = result["state"]
        same(result, expected, **(tolerance or {}))
        equal(result, results[0])
    return results[0]


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated"])
@pytest.mark.parametrize("k", [4, 5, 8])
def test_any_number_of_processes_equals_one(processes, rule, k):
    check(processes, rule=rule, k=k)


@pytest.mark.parametrize("rule", SPREADABLE)
def test_every_rule_that_can_be_spread_equals_one_process(several, rule):
    check(several, rule=rule, k=5, steps=2)


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated", "average"])
def test_float32_equals_one_process_to_rounding(several, rule):
    check(several, rule=rule, k=5, dtype=torch.float32, tolerance={"rtol": 1e-3, "atol": 1e-5})


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated", "gsnr", "bilevel, per layer"])
@pytest.mark.parametrize("bad", [(1,), (2, 4), (1, 2, 3, 4), (0,)])
def test_mini_batches_that_are_not_finite_count_as_in_one_process(several, rule, bad):
    result = check(several, rule=rule, k=5, bad=bad)
    assert result["reports"][1]["skipped"] == bad
    if rule.startswith("bilevel"):
        assert result["reports"][1]["applied"] == (bad in [(1,), (2, 4)])
    assert all(torch.isfinite(each).all() for each in result["gradients"][1])


def test_absent_gradients_count_as_zero_and_unused_parameters_get_none(several):
    for rule in ("bilevel", "bilevel, momentum", "cross-validated, per filter", "gsnr", "median of three"):
        result = check(several, rule=rule, k=6, network="branching", tolerance={"rtol": 1e-11, "atol": 1e-12})
        assert all((gradient is None) == (i >= 4) for i, gradient in enumerate(result["gradients"][0]))


def test_a_process_may_have_nothing_but_the_validation_mini_batch(two, three):
    check(two, rule="bilevel", k=2)
    check(three, rule="bilevel, momentum per layer", k=3)


def test_shared_dropout_masks_are_the_same_in_all_processes(several):
    result = check(several, rule="bilevel", k=5, network="CifarNet-like", shared_dropout=True)
    independent = several.run(train, rule="bilevel", k=5, network="CifarNet-like")[0]
    assert not torch.equal(result["gradients"][0][0], independent["gradients"][0][0])


def test_batch_norm_means_frozen_and_unused_layers_are_as_in_one_process(several):
    result = check(several, rule="bilevel", k=5, network="averaging")
    assert result["model"]["means.num_batches_tracked"] == 15
    assert result["model"]["frozen.num_batches_tracked"] == 0
    assert torch.equal(result["model"]["frozen.running_var"], torch.ones(3, dtype=torch.float64))


def test_models_wrapped_by_torch_work_alike(several):
    check(several, rule="bilevel", k=5, wrapped=True)
    check(several, rule="cross-validated", k=5, wrapped=True)


def test_channels_last_stays_channels_last(two):
    result = check(two, rule="bilevel", k=4, channels_last=True)
    assert result["gradients"][0][0].is_contiguous(memory_format=torch.channels_last)


def test_a_process_that_opts_out_works_on_whole_groups_of_its_own(two):
    for result in two.run(train, rule="bilevel", k=4, spread="nothing"):
        equal(result, train("bilevel", k=4))


def test_parameters_of_odd_shapes(two):
    check(two, rule="bilevel", k=4, network="scalar")
    check(two, rule="cross-validated, per filter", k=4, network="scalar")


def test_the_loss_scale_is_lowered_in_all_processes_where_one_overflowed(several):
    assert check(several, rule="bilevel", k=5, scaled=True)["scale"] == 1024
    assert check(several, rule="bilevel", k=5, scaled=True, bad=(2,))["scale"] == 512
