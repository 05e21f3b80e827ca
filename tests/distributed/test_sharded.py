"""Parameters sharded by FSDP2: every process feeds some images of each mini-batch, one process's result comes out."""

from dataclasses import fields

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F

from deepbilevel import Bilevel, MatchedGroups
from deepbilevel.distributed import share
from tests.contracts.loop import STEPS
from tests.distributed.cases import NAN, place
from tests.distributed.test_equality import equal, same
from tests.distributed.test_exchange import SENT, refusal

REFUSED = ("bilevel, random", "gsnr")
K = 4


class Uneven(nn.Module):
    """No dimension is a multiple of two, a bias of one number leaves nothing to the second process; one is unused."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Conv1d(3, 5, 3), nn.Linear(5, 7), nn.Linear(3, 3)
        self.last = nn.Linear(7, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).tanh().mean(-1)).relu())


def images(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(K, 6, 3, 4, generator=generator, dtype=torch.float64)
    return list(zip(x, 1 + x.mean(dim=(2, 3)).unsqueeze(-1), strict=True))  # something to agree on


def make_sharded(only=None):
    torch.manual_seed(0)
    model = Uneven().double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(only in (None, name))
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model.first, model.second, model.unused, model.last, model):
            fully_shard(layer, mesh=mesh)
    return model


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def train_sharded(rule, steps=3, bad=(), only=None, **settings):
    """Train on this process's images of every mini-batch and return everything there is to compare, in one piece."""
    rank, size = place()
    model = make_sharded(only)
    step = share(STEPS[rule](model, num_batches=K, **settings), "images")
    optimizer = step.optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    gradients, reports = [], []
    for seed in range(steps):
        for i, (x, y) in enumerate(images(seed)):
            loss = F.mse_loss(model(x[rank::size]), y[rank::size])
            step.backward(loss * NAN if seed == 1 and i in bad and rank == size - 1 else loss)
        report = step.fill()
        gradients.append([None if p.grad is None else whole(p.grad) for p in model.parameters()])
        reports.append({field.name: getattr(report, field.name) for field in fields(report)})
        reports[-1]["applied"] = report.applied
        optimizer.step()
        optimizer.zero_grad()
    return {"gradients": gradients, "reports": reports, "parameters": [whole(p.detach()) for p in model.parameters()]}


def check(processes, **arguments):
    results, expected = processes.run(train_sharded, **arguments), train_sharded(**arguments)
    for result in results:
        same(result, expected, rtol=1e-12, atol=1e-12)
        equal(result["reports"], results[0]["reports"])
    return expected


@pytest.mark.parametrize("rule", [name for name in STEPS if name not in REFUSED])
def test_sharded_parameters_get_the_gradient_of_whole_ones(two, rule):
    expected = check(two, rule=rule)
    assert any(each is not None and each.any() for each in expected["gradients"][-1])


@pytest.mark.parametrize("rule", ["bilevel", "cross-validated", "cross-validated, per layer", "median of three"])
def test_a_process_may_have_no_number_that_is_trained(two, rule):
    check(two, rule=rule, only="last.bias")


def test_three_shards(three):
    check(three, rule="bilevel, per layer")
    check(three, rule="cross-validated, per filter")


@pytest.mark.parametrize("rule", ["bilevel", "bilevel, per layer", "bilevel, k-fold", "cross-validated"])
@pytest.mark.parametrize("bad", [(1,), (0,)])
def test_a_mini_batch_that_is_bad_in_one_process_is_bad(two, rule, bad):
    expected = check(two, rule=rule, bad=bad)
    assert expected["reports"][1]["finite"].tolist() == [i not in bad for i in range(K)]


def count_small_messages(rule):
    """Return how many numbers are in each message of ours, of the second step."""
    model = make_sharded()
    step = share(STEPS[rule](model, num_batches=K), "images")
    sent = []
    originals = {name: getattr(dist, name) for name in SENT}

    def counted(name):
        def call(tensor, *arguments, **settings):
            sent.append(tensor.numel() if isinstance(tensor, torch.Tensor) else name)
            return originals[name](tensor, *arguments, **settings)

        return call

    for seed in range(2):
        if seed:
            for name in SENT:
                setattr(dist, name, counted(name))
        try:
            for x, y in images(seed):
                step.backward(F.mse_loss(model(x[place()[0] :: 2]), y[place()[0] :: 2]))
            step.fill()
        finally:
            for name, original in originals.items():
                setattr(dist, name, original)
    return sent


@pytest.mark.parametrize(
    ("rule", "numbers"),
    [
        ("bilevel", [1, 2, 2, 2, K]),
        ("bilevel, per layer", [4, 8, 8, 8, K]),
        ("bilevel, exact", [1, 2, 3, 4, K]),
        ("bilevel, k-fold", [1, 2, 3, 4, K]),
        ("cross-validated", [1, 1, 1, 1, K, 1]),
    ],
)
def test_only_numbers_are_sent_one_message_per_mini_batch(two, rule, numbers):
    for sent in two.run(count_small_messages, rule=rule):
        assert sent == numbers


def cut_columns(parameter):
    return Shard(1) if parameter.dim() > 1 else Shard(0)


def build(rule="bilevel", cut="rows", bare=False, spread="images", in_group=False, **settings):
    flat = init_device_mesh("cpu", (2,))
    if cut == "rows":
        model = make_sharded()
    elif cut == "columns":
        model = fully_shard(nn.Linear(4, 3), mesh=flat, shard_placement_fn=cut_columns)
    elif cut == "in part":
        model = nn.Sequential(fully_shard(nn.Linear(4, 3), mesh=flat), nn.Linear(3, 1))
    else:
        model = fully_shard(nn.Linear(4, 3), mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards")))
    step = STEPS[rule](model.parameters() if bare else model, num_batches=K, **settings)
    share(step, spread, process_group=dist.group.WORLD if in_group else None)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"rule": "bilevel, random"}, "weighting='random' draws numbers in each process"),
        ({"rule": "gsnr"}, "GSNR takes means over whole parameters"),
        ({"spread": "groups"}, "spread='groups' and process_group=None do not fit parameters that are sharded"),
        ({"spread": "batches"}, "take share(..., 'images') for step and sampler"),
        ({"spread": "nothing"}, "spread='nothing' and process_group=None do not fit"),
        ({"in_group": True}, "leave process_group out"),
        ({"scaler": torch.amp.GradScaler("cpu")}, "scaler keeps a loss scale in each process"),
        ({"rule": "cross-validated, per filter", "cut": "columns"}, "all weights of an output channel"),
        ({"cut": "in part"}, "some parameters are sharded and others are not"),
        ({"cut": "in two ways"}, "over a mesh of 2 dimensions"),
        ({}, None),
        ({"cut": "columns"}, None),
        ({"bare": True}, None),
    ],
)
def test_what_needs_whole_parameters_is_refused(two, arguments, reason):
    for said in two.run(refusal, make=build, **arguments):
        assert said is None if reason is None else reason in said


def start(spread, mu=False):
    groups = share(MatchedGroups([0, 1] * 20, num_batches=K, batch_size=2, seed=0), spread)
    model = make_sharded()
    step = share(Bilevel(model, num_batches=K, mu=0.1 if mu and place()[0] else 0.01), "images")
    step.backward(F.mse_loss(model(images(0)[0][0]), images(0)[0][1]))
    return groups


def test_sampler_and_settings_must_fit(two):
    for said in two.run(refusal, make=start, spread="batches"):
        assert "this step shares 'images', but MatchedGroups is shared with 'batches'; pass the same to both" in said
    assert two.run(refusal, make=start, spread="images") == [None, None]
    for said in two.run(refusal, make=start, spread="images", mu=True):
        assert "build model and rule alike" in said


def resume(rule="bilevel, momentum"):
    """Go on from a state in the middle; every process keeps the part of its shards."""
    rank, size = place()
    gradients = []
    for resumed in (False, True):
        model = make_sharded()
        step = share(STEPS[rule](model, num_batches=K), "images")
        for seed in range(2):
            for x, y in images(seed):
                step.backward(F.mse_loss(model(x[rank::size]), y[rank::size]))
            step.fill()
            if resumed:
                state = step.state_dict()
                step = share(STEPS[rule](model, num_batches=K), "images")
                step.load_state_dict(state)
        gradients.append([None if p.grad is None else whole(p.grad) for p in model.parameters()])
    return gradients


def test_an_averaged_validation_gradient_is_saved_in_shards(two):
    for unbroken, resumed in two.run(resume):
        equal(resumed, unbroken)


def test_cross_validated_updates_are_shrunk_in_shards(two):
    check(two, rule="cross-validated, shrinking updates", block="filter")
