"""What is sent per step, what is refused, and what stays together when something else happens in between."""

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from deepbilevel import Bilevel
from deepbilevel.distributed import ranks, share
from deepbilevel.rules.average import Sgd
from tests.contracts.loop import STEPS, by
from tests.distributed.cases import group, make_model, place, train
from tests.distributed.test_equality import equal, same

SENT = ("all_reduce", "broadcast", "all_gather")


def one_group(model, step, k, seed, spread="batches"):
    rank, size = place() if spread == "batches" else (0, 1)
    for x, y in group(k, seed, "BatchNorm-like", torch.float64)[rank::size]:
        step.backward(F.cross_entropy(model(x), y))
    return step.fill()


def count_messages(rule, k, wrapped=False, step_before=True, spread="batches"):
    """Return the bytes of each message of a step, the second one, and how many torch itself has seen."""
    model = make_model("BatchNorm-like")
    running = DistributedDataParallel(model) if wrapped else model
    step = share(STEPS[rule](running, num_batches=k), spread)
    if step_before:  # the first step compares the parameters, once
        one_group(running, step, k, seed=0, spread=spread)
    sent = []
    originals = {name: getattr(dist, name) for name in SENT}

    def counted(name):
        def call(tensor, *arguments, **settings):
            sent.append(tensor.numel() * tensor.element_size() if isinstance(tensor, torch.Tensor) else name)
            return originals[name](tensor, *arguments, **settings)

        return call

    for name in SENT:
        setattr(dist, name, counted(name))
    try:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            one_group(running, step, k, seed=1, spread=spread)
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
    return sent, sum(event.count for event in profiler.key_averages() if event.key.startswith("c10d::"))


def sizes():
    model = make_model("BatchNorm-like")
    parameters = sum(8 * p.numel() for p in model.parameters())
    return parameters, 8 * (2 * 6 + sum(1 for _ in model.parameters()))


def test_a_step_sends_two_vectors_of_the_models_size_and_one_small_message(several):
    parameters, more = sizes()
    for k in (4, 8):
        for sent, seen in several.run(count_messages, rule="bilevel", k=k):
            # Of a mini-batch its loss, three numbers of the rule, and one per BatchNorm.
            assert sent == [parameters, 8 * k * 5, parameters + more]
            assert seen == 3


def in_small_buckets(call, **arguments):
    """Do something while only a few numbers travel together."""
    usual = ranks._BUCKET_BYTES
    ranks._BUCKET_BYTES = 200
    try:
        return call(**arguments)
    finally:
        ranks._BUCKET_BYTES = usual


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated"])
def test_large_models_travel_in_buckets_of_which_each_number_is_sent_once(two, rule):
    whole = two.run(count_messages, rule=rule, k=4)
    parted = two.run(in_small_buckets, call=count_messages, rule=rule, k=4)
    for (sent, _), (in_parts, seen) in zip(whole, parted, strict=True):
        assert sum(in_parts) == sum(sent)
        assert len(in_parts) == seen > len(sent) + 4
        largest = max(8 * parameter.numel() for parameter in make_model("BatchNorm-like").parameters())
        assert max(in_parts) <= max(200, largest, 8 * 4 * 5)
    for result in two.run(in_small_buckets, call=train, rule=rule, k=4):
        same(result, train(rule=rule, k=4))


def test_the_cross_validated_gradient_needs_one_reduction_of_both_sums(two):
    parameters, more = sizes()
    for k in (4, 8):
        for sent, seen in two.run(count_messages, rule="cross-validated", k=k):
            assert sent == [8 * k * 3, 2 * parameters + more]
            assert seen == 2


def test_a_wrapped_model_sends_nothing_more(two):
    for step_before in (False, True):
        plain, wrapped = (
            two.run(count_messages, rule="bilevel", k=4, step_before=step_before, wrapped=wrapped)
            for wrapped in (False, True)
        )
        assert wrapped == plain
        assert [seen for _, seen in plain] == [3 if step_before else 4] * 2


def refusal(make, **arguments):
    try:
        make(**arguments)
    except (ValueError, TypeError, NotImplementedError) as error:
        return str(error)
    return None


def step_at_once(spread):
    model = make_model("BatchNorm-like")
    batches = group(4, 0, "BatchNorm-like", torch.float64)
    share(Bilevel(model, num_batches=4), spread).step_at_once(batches, lambda batch: model(batch[0]).sum(1))


@pytest.mark.parametrize("spread", ["batches", "groups"])
def test_one_pass_is_for_one_process(two, spread):
    for said in two.run(refusal, make=step_at_once, spread=spread):
        assert "step_at_once() does not work with other processes" in said


def build_rule(rule, k=4, bare=False, layer=None):
    model = make_model("BatchNorm-like")
    if layer is not None:
        model.more = layer
    make = by(Sgd()) if rule == "sgd" else STEPS[rule]
    share(make(model.parameters() if bare else model, num_batches=k), "batches")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"rule": "bilevel", "k": 2}, "num_batches=2 mini-batches cannot be spread over 3 processes"),
        ({"rule": "sgd", "k": 1}, "start at most 1 processes"),
        ({"rule": "bilevel, exact"}, "rule exact compares gradients of different processes"),
        ({"rule": "bilevel, k-fold"}, "rule k-fold compares gradients of different processes"),
        ({"rule": "agreement filter"}, "rule agreement-filter compares gradients of different processes"),
        ({"rule": "bilevel", "bare": True}, "needs the model itself"),
        ({"rule": "bilevel", "layer": nn.SyncBatchNorm(2)}, "has SyncBatchNorm"),
        ({"rule": "bilevel", "layer": nn.InstanceNorm2d(2, track_running_stats=True)}, "has an InstanceNorm"),
    ],
)
def test_what_cannot_be_spread_is_refused_by_all(three, arguments, reason):
    for said in three.run(refusal, make=build_rule, **arguments):
        assert reason in said
        if "Norm" not in reason or "Instance" in reason:
            assert "'nothing')" in said


def start_unequal(what, spread="batches"):
    model = make_model("BatchNorm-like")
    if what == "values" and place()[0] == 1:
        model.head.bias.data[0] += 1e-9
    if what == "statistics" and place()[0] == 1:
        model.block[0].running_var[0] = 2.0
    if what == "memory" and place()[0] == 1:
        model = model.to(memory_format=torch.channels_last)
    if what == "frozen" and place()[0] == 1:
        model.stem.weight.requires_grad_(False)
    mu = 0.02 if what == "settings" and place()[0] == 1 else 0.01
    own_spread = "batches" if what == "spread" and place()[0] == 1 else spread
    step = share(Bilevel(model, num_batches=4, mu=mu), own_spread)
    one_group(model, step, 4, seed=0, spread=spread)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("values", "set the same seed"),
        ("statistics", "BatchNorm statistics of process"),
        ("settings", "build model and rule alike"),
        ("memory", "build model and rule alike"),
        ("frozen", "trainable parameters"),
    ],
)
def test_different_starts_are_refused_before_anything_is_sent(two, what, reason):
    for said in two.run(refusal, make=start_unequal, what=what):
        assert reason in said
    assert two.run(refusal, make=start_unequal, what="nothing") == [None, None]


def train_in_part():
    """Two of three processes share a group, the third works alone."""
    both = dist.new_group([1, 2])
    rank = dist.get_rank()
    model = make_model("BatchNorm-like")
    step = Bilevel(model, num_batches=5)
    step = share(step, "batches", process_group=both) if rank else share(step, "nothing")
    batches = group(5, 0, "BatchNorm-like", torch.float64)
    for x, y in batches[rank - 1 :: 2] if rank else batches:
        step.backward(F.cross_entropy(model(x), y))
    step.fill()
    again = Bilevel(model, num_batches=5)
    return [p.grad for p in model.parameters()], refusal(
        share, step_or_sampler=again, spread="batches", process_group=None if rank else both
    )


def test_a_part_of_the_processes_may_share_a_group(three):
    answers = three.run(train_in_part)
    expected = train("bilevel", k=5, steps=1)["gradients"][0]
    for gradients, _ in answers:
        same(gradients, expected)
    assert "is not in process_group" in answers[0][1]
    assert answers[1][1] is None


def disturb(how):
    """Train a group, do something, train another one; return what the model has then."""
    model = make_model("BatchNorm-like")
    step = share(Bilevel(model, num_batches=5), "batches")
    one_group(model, step, 5, seed=0)
    if how == "reset":
        rank, size = place()
        for x, y in group(5, 7, "BatchNorm-like", torch.float64)[rank::size][:1]:
            step.backward(F.cross_entropy(model(x), y))
        before = {name: each.clone() for name, each in model.state_dict().items()}
        step.reset()
        assert dist.is_initialized() != torch.equal(before["block.0.running_mean"], model.block[0].running_mean)
    if how == "fail":  # a second attempt follows
        said = refusal(step.backward, loss=nn.Linear(1, 1, dtype=torch.float64)(torch.ones(1, dtype=torch.float64)))
        assert "does not depend on any of the parameters given" in said
    if how == "load":
        other = make_model("BatchNorm-like")
        other.block[0].running_mean.fill_(3.0)
        model.load_state_dict(other.state_dict())
    if how == "evaluate":
        model.eval()
        model(group(1, 5, "BatchNorm-like", torch.float64)[0][0])
        model.train()
    one_group(model, step, 5, seed=1)
    return [p.grad for p in model.parameters()], dict(model.state_dict())


def test_a_backward_pass_that_is_refused_can_be_repeated(several):
    for result in several.run(disturb, how="fail"):
        same(list(result), list(disturb("nothing")))


@pytest.mark.parametrize("how", ["load", "evaluate"])
def test_statistics_that_change_between_groups_are_the_new_start(several, how):
    results = several.run(disturb, how=how)
    for result in results:
        same(list(result), list(disturb(how)))


def test_a_reset_takes_statistics_back_to_the_start_of_the_group_so_that_they_stay_equal(several):
    results = several.run(disturb, how="reset")
    undisturbed = several.run(disturb, how="nothing")
    for result in results:
        equal(list(result), list(undisturbed[0]))


def go_on(state=None, spread="batches", shared_first=True):
    """Train two groups, or the second one after a state; return the state after the first, and the gradient."""
    model = make_model("BatchNorm-like")
    step = STEPS["bilevel, momentum"](model, num_batches=5)
    if shared_first:
        step = share(step, spread)
    if state is None:
        one_group(model, step, 5, seed=0, spread=spread)
        state = step.state_dict()
    step.load_state_dict(state)
    step = step if shared_first else share(step, spread)
    one_group(model, step, 5, seed=1, spread=spread)
    return state, [p.grad for p in model.parameters()], refusal(step.load_state_dict, state=state | {"num_batches": 4})


def test_a_state_moves_between_any_numbers_of_processes(two, three):
    state, gradients, _ = go_on()
    assert state["memory"]["average"]
    for shared_first in (True, False):
        for theirs, resumed, said in three.run(go_on, state=two.run(go_on)[0][0], shared_first=shared_first):
            same(theirs, state)
            same(resumed, gradients)
            assert "num_batches=4" in said
            assert "build the step with the same rule and settings" in said
    same(go_on(state=three.run(go_on)[2][0])[1], gradients)
