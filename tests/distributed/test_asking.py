"""Processes share what they are asked to share, and nothing unasked; one alone talks to nobody."""

import gc
from itertools import islice

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import Bilevel, MatchedGroups
from deepbilevel.distributed import share
from tests.contracts.loop import STEPS
from tests.distributed.cases import group, make_model, place
from tests.distributed.test_equality import equal

K = 4
COLLECTIVES = [
    name
    for name in dir(dist)
    if name.startswith(
        ("all_", "broadcast", "reduce", "gather", "scatter", "send", "recv", "isend", "irecv", "barrier")
    )
]


def batches(seed=0):
    return group(K, seed, "BatchNorm-like", torch.float64)


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def sampler():
    return MatchedGroups([0, 1] * 20, num_batches=K, batch_size=2, seed=0)


def go_on_unasked(what, rule="bilevel"):
    """Return what is said where nobody said what to share, and whether gradients that were there still are."""
    model = make_model("BatchNorm-like")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    step = STEPS[rule](model, num_batches=K)
    said = None
    try:
        if what == "backward":
            step.backward(loss_of(model, batches()[0]))
        elif what == "step_over":
            step.step_over(batches(), lambda batch: loss_of(model, batch))
        elif what == "step_at_once":
            step.step_at_once(batches(), lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none"))
        elif what == "sampler":
            next(iter(sampler()))
        else:
            next(iter(DataLoader(TensorDataset(torch.arange(40)), batch_sampler=sampler())))
    except RuntimeError as error:
        said = str(error)
    untouched = all(p.grad is not None and bool((p.grad == 1).all()) for p in model.parameters())
    return said, step.num_collected, untouched


@pytest.mark.parametrize("what", ["backward", "step_over", "step_at_once", "sampler", "loader"])
def test_processes_that_nobody_asked_to_share_are_refused(several, what):
    size = len(several.run(place))
    for said, num_collected, untouched in several.run(go_on_unasked, what=what):
        assert f"torch.distributed runs {size} processes, but nothing says what they share" in said
        assert "deepbilevel.distributed.share(step, 'batches')" in said
        assert "share(step, 'nothing')" in said
        assert num_collected == 0
        assert untouched


@pytest.mark.parametrize("rule", STEPS)
def test_every_rule_refuses_to_guess(two, rule):
    for said, _, _ in two.run(go_on_unasked, what="backward", rule=rule):
        assert "nothing says what they share" in said


@pytest.mark.parametrize("what", ["backward", "step_over", "step_at_once", "sampler", "loader"])
def test_one_process_need_not_be_asked(one, what):
    assert go_on_unasked(what)[0] is None
    assert one.run(go_on_unasked, what=what)[0][0] is None


def make_by_hand(seed, rule="bilevel", spread=None, num_groups=3):
    """Train a model of its own on groups of its own; return what it has then."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()
    images = torch.randn(40, 3, dtype=torch.float64)
    labels = torch.arange(40) % 2
    step = STEPS[rule](model, num_batches=K)
    groups = MatchedGroups(labels, num_batches=K, batch_size=2, seed=seed)
    if spread is not None:
        step, groups = share(step, spread), share(groups, spread)
    optimizer = step.optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    loader = iter(DataLoader(TensorDataset(images, labels), batch_sampler=groups))
    reports = []
    for _ in range(num_groups):
        reports.append(step.step_over(islice(loader, K), lambda batch: loss_of(model, batch)).losses)
        optimizer.step()
        optimizer.zero_grad()
    return {"model": dict(model.state_dict()), "reports": reports, "sampler": groups.state_dict()}


def work_alone(rule, idle=()):
    """Train alone with other numbers and more groups than the others; who is idle does nothing at all."""
    rank, _ = place()
    if rank in idle:
        return None
    return counted(make_by_hand, seed=rank, rule=rule, spread="nothing", num_groups=2 + rank)


@pytest.mark.parametrize("rule", ["bilevel", "bilevel, k-fold", "cross-validated, shrinking updates"])
@pytest.mark.parametrize("idle", [(), (0,)])
def test_a_process_that_shares_nothing_works_alone(several, rule, idle):
    for rank, answer in enumerate(several.run(work_alone, rule=rule, idle=idle)):
        if rank in idle:
            continue
        result, calls = answer
        assert calls == []
        equal(result, make_by_hand(rank, rule, num_groups=2 + rank))


def at_once(seed):
    model = make_model("BatchNorm-like")
    step = share(Bilevel(model, num_batches=K), "nothing")
    step.step_at_once(batches(seed), lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none"))
    return [p.grad for p in model.parameters()]


def test_one_pass_works_alone_too(two):
    assert two.run(counted, work=at_once, seed=3)[0][1] == []
    for gradients in two.run(at_once, seed=3):
        equal(gradients, at_once(3))


def counted(work, **arguments):
    """Return what comes of it, and which exchanges were asked of torch."""
    calls = []
    originals = {name: getattr(dist, name) for name in COLLECTIVES}

    def watched(name):
        def call(*given, **settings):
            calls.append(name)
            return originals[name](*given, **settings)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, watched(name))
    try:
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            result = work(**arguments)
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
    return result, calls + [event.key for event in profiler.key_averages() if event.key.startswith("c10d::")]


def exchange():
    dist.all_reduce(torch.ones(1))


def test_exchanges_are_counted(one):
    ((_, calls),) = one.run(counted, work=exchange)
    assert calls == ["all_reduce", "c10d::allreduce_"]
    assert {"all_gather", "all_reduce", "broadcast", "broadcast_object_list", "barrier"} <= set(COLLECTIVES)


@pytest.mark.parametrize("spread", ["batches", "groups", "images", "nothing"])
@pytest.mark.parametrize("rule", ["bilevel", "bilevel, k-fold", "cross-validated"])
def test_one_process_alone_exchanges_nothing(one, spread, rule):
    expected = make_by_hand(0, rule)
    arguments = {"work": make_by_hand, "seed": 0, "rule": rule, "spread": spread}
    for result, calls in (counted(**arguments), *one.run(counted, **arguments)):
        equal(result, expected)
        assert calls == []


def flags(wrapper):
    return wrapper.require_backward_grad_sync, wrapper.require_forward_param_sync


def averaged_by_torch(model, wrapper):
    """Whether the wrapper leaves the mean over processes of what each has by itself."""
    means = []
    own = loss_of(model, batches(place()[0])[0])
    for mean in torch.autograd.grad(own, list(model.parameters())):
        dist.all_reduce(mean)
        means.append(mean / dist.get_world_size())
    wrapper.zero_grad()
    loss_of(wrapper, batches(place()[0])[0]).backward()
    return all(torch.allclose(p.grad, mean) for p, mean in zip(model.parameters(), means, strict=True))


def wrap_and_let_go(spread, nested=False):
    """Return the flags of a wrapper before, during and after two steps; the second is made before the first goes."""
    model = make_model("BatchNorm-like")
    wrapper = DistributedDataParallel(model)
    trained = nn.ModuleList([wrapper]) if nested else wrapper
    found = [flags(wrapper)]

    def train(step):
        rank, size = place() if spread == "batches" else (0, 1)
        for batch in batches()[rank::size]:
            step.backward(loss_of(wrapper, batch))
        step.fill()
        found.append(flags(wrapper))

    first = share(Bilevel(trained, num_batches=K), spread)
    train(first)
    second = share(Bilevel(trained, num_batches=K), spread)
    del first
    gc.collect()
    train(second)
    del second
    gc.collect()
    found.append(flags(wrapper))
    return found, averaged_by_torch(model, wrapper)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("spread", ["batches", "groups"])
def test_torchs_wrapper_is_as_it_was_when_the_last_shared_step_is_gone(two, spread, nested):
    for found, averaged in two.run(wrap_and_let_go, spread=spread, nested=nested):
        assert found == [(True, True), (False, False), (False, False), (True, True)]
        assert averaged


def let_go_quiet():
    """Return the flags of a wrapper that somebody else has quietened before."""
    wrapper = DistributedDataParallel(make_model("BatchNorm-like"))
    wrapper.require_backward_grad_sync = False
    step = share(Bilevel(wrapper, num_batches=K), "batches")
    during = flags(wrapper)
    del step
    gc.collect()
    return during, flags(wrapper)


def test_a_wrapper_that_was_quiet_before_stays_so(two):
    assert two.run(let_go_quiet) == [((False, False), (False, True))] * 2


def refused_wrapper():
    """Return the flags of a wrapper after a step that could not be shared."""
    wrapper = DistributedDataParallel(make_model("BatchNorm-like"))
    with pytest.raises(ValueError, match="compares gradients of different processes"):
        share(STEPS["bilevel, exact"](wrapper, num_batches=K), "batches")
    share(Bilevel(wrapper, num_batches=K), "nothing")
    return flags(wrapper)


def test_a_step_that_is_not_shared_leaves_the_wrapper_alone(two):
    assert two.run(refused_wrapper) == [(True, True)] * 2


@pytest.mark.parametrize("other", [nn.Linear(1, 1), [[0, 1]], None, MatchedGroups, DataLoader([0])])
def test_only_steps_and_samplers_can_be_shared(other):
    with pytest.raises(TypeError, match="must be a step, such as Bilevel, or MatchedGroups, got") as error:
        share(other, "batches")
    assert type(other).__name__ in str(error.value)


@pytest.mark.parametrize(
    ("spread", "hint"), [("group", "did you mean 'groups'?"), ("batch", "did you mean 'batches'?"), (None, ""), (2, "")]
)
@pytest.mark.parametrize("make", [sampler, lambda: Bilevel(nn.Linear(1, 1), num_batches=K)], ids=["sampler", "step"])
def test_other_words_are_refused(make, spread, hint):
    with pytest.raises(ValueError, match="spread") as error:
        share(make(), spread)
    for word in ("batches", "groups", "images", "nothing", hint):
        assert word in str(error.value)


def share_again(first, second):
    step = share(Bilevel(make_model("BatchNorm-like"), num_batches=K), first)
    with pytest.raises(ValueError, match="shared already"):
        share(step, second)


@pytest.mark.parametrize(("first", "second"), [("batches", "nothing"), ("groups", "batches"), ("batches", "batches")])
def test_a_step_is_shared_once(two, first, second):
    two.run(share_again, first=first, second=second)


def share_in_mid_group():
    model = make_model("BatchNorm-like")
    step = Bilevel(model, num_batches=K)
    share(step, "nothing").backward(loss_of(model, batches()[0]))
    with pytest.raises(RuntimeError, match="falls into a group of which 1 of 4"):
        share(step, "batches")


def test_a_group_that_has_begun_alone_is_not_shared(two):
    two.run(share_in_mid_group)


def test_a_process_group_needs_torch_distributed():
    for each in (sampler(), Bilevel(nn.Linear(1, 1), num_batches=K)):
        with pytest.raises(ValueError, match=r"torch\.distributed is not initialised; initialise it first"):
            share(each, "batches", process_group=object())
