"""Every process runs a group of its own: the gradient is the mean of what single processes have, in one reduction."""

import pytest
import torch
from torch.nn import functional as F

from deepbilevel import Bilevel, CrossValidated, MatchedGroups
from deepbilevel.distributed import share
from tests.contracts.loop import STEPS
from tests.distributed.cases import group, make_model, place
from tests.distributed.own_groups import train_by_hand, train_own_groups
from tests.distributed.test_equality import equal, same
from tests.distributed.test_exchange import count_messages, refusal, sizes, start_unequal


def check(processes, size, **arguments):
    results = processes.run(train_own_groups, **arguments)
    expected = train_by_hand(size=size, **arguments)
    for result, theirs in zip(results, expected, strict=True):
        same(result, theirs)
        for name in ("gradients", "model", "scale"):
            equal(result[name], results[0][name])
    return results


@pytest.mark.parametrize("rule", STEPS)
def test_every_rule_fills_the_mean_over_processes(two, rule):
    results = check(two, 2, rule=rule, steps=2)
    first, second = (result["reports"][0]["losses"] for result in results)
    assert not torch.equal(first, second)  # reports are each process's own


def test_models_wrapped_by_torch_and_other_numbers_of_processes(three):
    check(three, 3, rule="bilevel", wrapped=True)
    check(three, 3, rule="bilevel, k-fold", k=2, wrapped=True)  # fewer mini-batches than processes


def test_absent_gradients_count_as_zero_and_unused_parameters_get_none(two):
    for rule in ("bilevel", "average", "cross-validated, per filter"):
        result = check(two, 2, rule=rule, network="branching", k=2)[0]
        assert all((gradient is None) == (i >= 4) for i, gradient in enumerate(result["gradients"][0]))


def test_batch_norm_means_frozen_and_unused_layers_are_averaged_too(two):
    result = check(two, 2, rule="bilevel", network="averaging")[0]
    assert result["model"]["means.num_batches_tracked"] == 12
    assert result["model"]["frozen.num_batches_tracked"] == 0


def test_parameters_of_odd_shapes(two):
    check(two, 2, rule="cross-validated, shrinking updates", network="scalar")


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated", "agreement filter"])
def test_a_bad_group_counts_as_zero_and_does_not_spoil_the_others(two, rule):
    first, second = check(two, 2, rule=rule, bad_images=True)
    assert second["reports"][1]["skipped"] == (0, 1, 2, 3)
    assert not second["reports"][1]["applied"]
    assert first["reports"][1]["skipped"] == ()
    assert first["reports"][1]["applied"]
    assert all(torch.isfinite(each).all() for each in first["gradients"][1])
    assert any(each.any() for each in first["gradients"][1])
    assert all(torch.isfinite(each).all() for each in second["model"].values())  # running statistics too


def test_a_bad_validation_mini_batch_zeroes_the_own_group_alone(two):
    first, second = check(two, 2, rule="bilevel", bad=(0,))
    assert (first["reports"][1]["applied"], second["reports"][1]["applied"]) == (True, False)


def test_a_rule_that_skips_nothing_passes_bad_numbers_on_to_all(two):
    for result in two.run(train_own_groups, rule="average", bad=(0,), steps=2):
        assert torch.isnan(result["gradients"][1][-1]).all()


def test_the_loss_scale_is_lowered_in_all_processes_where_one_overflowed(two):
    assert [each["scale"] for each in two.run(train_own_groups, rule="bilevel", scaled=True)] == [1024, 1024]
    assert [each["scale"] for each in two.run(train_own_groups, rule="bilevel", scaled=True, bad=(2,))] == [512, 512]


def test_half_precision_is_averaged_in_float32(two):
    for rule in ("average", "bilevel"):
        results = two.run(train_own_groups, rule=rule, dtype=torch.bfloat16, steps=1, network="scalar")
        assert results[0]["gradients"][0][0].dtype == torch.bfloat16
        equal(results[0]["gradients"], results[1]["gradients"])


@pytest.mark.parametrize(
    ("rule", "k", "wrapped"),
    [("bilevel", 4, False), ("bilevel", 8, True), ("bilevel, k-fold", 4, False), ("cross-validated", 4, True)],
)
def test_a_step_sends_one_vector_of_the_models_size_and_nothing_else(two, rule, k, wrapped):
    parameters, more = sizes()
    for sent, seen in two.run(count_messages, rule=rule, k=k, wrapped=wrapped, spread="groups"):
        # Beside gradients, statistics and which gradients there are: uses of a layer, and two flags.
        assert sent == [parameters + more + 8 * 3]
        assert seen == 1


def broken_off():
    """Drop a group half-way and train another one; return what the model has then."""
    model = make_model("BatchNorm-like")
    step = share(Bilevel(model, num_batches=4), "groups")
    for x, y in group(4, 7 + place()[0], "BatchNorm-like", torch.float64)[: 1 + place()[0]]:
        step.backward(F.cross_entropy(model(x), y))
    step.reset()
    return dict(model.state_dict())


def test_a_reset_takes_statistics_back_so_that_models_stay_equal(two):
    for result in two.run(broken_off):
        equal(result, dict(make_model("BatchNorm-like").state_dict()))


@pytest.mark.parametrize(
    ("what", "reason"), [("values", "set the same seed"), ("spread", "build model and rule alike in all processes")]
)
def test_different_starts_are_refused_before_anything_is_sent(two, what, reason):
    for said in two.run(refusal, make=start_unequal, what=what, spread="groups"):
        assert reason in said


def disagree(of_sampler, of_step, rule=Bilevel):
    whole = MatchedGroups([0, 1] * 20, num_batches=4, batch_size=2, seed=0)
    groups = [share(whole, each) for each in of_sampler]
    model = make_model("BatchNorm-like")
    step = share(rule(model, num_batches=4), of_step)
    step.backward(model(group(1, 0, "BatchNorm-like", torch.float64)[0][0]).sum())
    return groups


@pytest.mark.parametrize(
    ("of_sampler", "of_step", "agree"),
    [
        (["batches"], "batches", True),
        (["batches"], "groups", False),
        (["groups"], "batches", False),
        (["groups"], "groups", True),
        (["batches", "groups"], "groups", True),
        ([], "groups", True),
        (["nothing"], "groups", True),
        (["groups"], "nothing", True),
    ],
)
def test_a_sampler_that_deals_out_otherwise_is_refused(two, of_sampler, of_step, agree):
    for rule in (Bilevel, CrossValidated):
        for said in two.run(refusal, make=disagree, of_sampler=of_sampler, of_step=of_step, rule=rule):
            assert (said is None) == agree
            assert agree or "pass the same to both calls of share()" in said


@pytest.mark.parametrize(
    ("spread", "reason"), [("images", "is for parameters that are sharded"), ("group", "did you mean 'groups'?")]
)
def test_other_words_are_refused(two, spread, reason):
    for said in two.run(refusal, make=disagree, of_sampler=[], of_step=spread):
        assert reason in said


def test_one_process_alone_averages_nothing():
    equal(train_own_groups("bilevel"), train_by_hand("bilevel", 1)[0])
