"""A group in one pass: the same as mini-batch by mini-batch, for every rule and every layer it knows; else refused."""

import gc
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.cost.counting import LiveBytes
from deepbilevel import Bilevel
from deepbilevel.one_pass.outer_products import OuterProducts
from deepbilevel.one_pass.passes import run_in_one_pass
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel_lab.networks.layers import ShiftBatchNorm2d
from tests.contracts.loop import by, every_step
from tests.models import build, flat_grad, images

K = 4


def group_of(*shape, sizes=(3,) * K, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, *shape, generator=generator, dtype=torch.float64),
            torch.randint(2, (size,), generator=generator),
        )
        for size in sizes
    ]


def in_two_ways(model, group, make=Bilevel, **settings):
    """Return gradients and reports of both ways, from equal random numbers."""
    criterion = settings.pop("criterion", lambda x, y, **how: F.cross_entropy(model(x), y, **how))
    samples_per_pass = settings.pop("samples_per_pass", None)
    results = []
    for at_once in (False, True):
        model.zero_grad()
        torch.manual_seed(1)
        step = make(model, num_batches=len(group), **settings)
        if at_once:
            report = step.step_at_once(
                group, lambda batch: criterion(*batch, reduction="none"), samples_per_pass=samples_per_pass
            )
        else:
            report = step.step_over(group, lambda batch: criterion(*batch))
        results.append((flat_grad(model), report))
    return results


def assert_same(model, group, **settings):
    (gradient, report), (own_gradient, own_report) = in_two_ways(model, group, **settings)
    torch.testing.assert_close(own_gradient, gradient, rtol=1e-9, atol=1e-12)
    for name in vars(report):
        torch.testing.assert_close(getattr(own_report, name), getattr(report, name), rtol=1e-9, atol=1e-12)
    assert gradient.abs().max() > 0


def cross_entropy_of(model):
    return lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")


@every_step
@pytest.mark.parametrize("name", ["CifarNet-like", "BatchNorm-like"])
def test_every_rule_gives_the_same(make, name):
    model = build(name).requires_grad_()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # one pass draws all masks at once: others than one after another
    group = [(x, torch.zeros_like(y)) for x, y in images(K)]  # all agree: no rule stands still
    assert_same(model, group, make=make)
    assert_same(model, group, make=make, samples_per_pass=3 * len(group[0][0]))  # three mini-batches, and one


class ChannelsLast(nn.Module):
    def forward(self, x):
        return x.contiguous(memory_format=torch.channels_last)


def channels_last(convolution, num_features):
    """Return layers in which the channels of a pixel lie together, on the way back too: pooling keeps the order."""
    return nn.Sequential(ChannelsLast(), convolution, nn.MaxPool2d(1), nn.Flatten(), nn.Linear(num_features, 2))


LAYERS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 9), nn.Tanh(), nn.Linear(9, 2)),
    "linear without bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 30, bias=False), nn.Linear(30, 2)),
    "linear over a sequence": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(16, 5), nn.Flatten(), nn.Linear(15, 2)),
    "convolution": lambda: nn.Sequential(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.Flatten(), nn.Linear(20, 2)),
    "groups": lambda: nn.Sequential(nn.Conv2d(3, 6, (3, 1), groups=3, dilation=(1, 2)), nn.Flatten(), nn.Linear(48, 2)),
    "same padding": lambda: nn.Sequential(nn.Conv2d(3, 4, (5, 3), padding="same"), nn.Flatten(), nn.Linear(64, 2)),
    "valid padding": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding="valid"), nn.Flatten(), nn.Linear(16, 2)),
    "reflected padding": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(64, 2)
    ),
    "channels last": lambda: channels_last(nn.Conv2d(3, 5, 3), 20),
    "channels last, single pixels": lambda: channels_last(nn.Conv2d(3, 5, 1, stride=2, bias=False), 20),
    "channels last, in groups": lambda: channels_last(nn.Conv2d(3, 6, 1, padding=1, groups=3), 216),
    "one axis": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 2, 5, bias=False), nn.Flatten(), nn.Linear(24, 2)),
    "three axes": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 2, 2, padding=(1, 0, 0)), nn.Flatten(), nn.Linear(72, 2)
    ),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(3, 2, 2), nn.Flatten(), nn.Linear(50, 2)),
    "batch normalisation": lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 2)),
    "batch normalisation, channels last": lambda: nn.Sequential(channels_last(nn.BatchNorm2d(3), 48)),
    "batch normalisation behind a layer": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(16, 2)
    ),
    "batch normalisation without scale": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), ShiftBatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)
    ),
    "other normalisations": lambda: nn.Sequential(
        nn.GroupNorm(3, 3), nn.LayerNorm([4, 4]), nn.InstanceNorm2d(3, affine=True), nn.Flatten(), nn.Linear(48, 2)
    ),
    "roots of squares, slopes": lambda: nn.Sequential(nn.RMSNorm(4), nn.PReLU(3), nn.Flatten(), nn.Linear(48, 2)),
}


@pytest.mark.parametrize("make_layers", LAYERS.values(), ids=LAYERS)
def test_every_layer_it_knows_gives_the_same(make_layers):
    assert_same(make_layers().double(), group_of(3, 4, 4))


def test_words_are_looked_up():
    model = nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.Linear(30, 2)).double()
    assert_same(model, [(torch.randint(11, (3, 5)), torch.randint(2, (3,))) for _ in range(K)])


@pytest.mark.parametrize("sizes", [(7, 5), (25, 22)])  # products that take less room than the matrix, and more
def test_a_matrix_that_is_used_twice_gets_both_gradients(sizes):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Linear(40, 40, bias=False)
            self.head = nn.Linear(40, 2)

        def forward(self, x):
            return self.head(self.matrix(self.matrix(x.flatten(1)[:, :40]).tanh()))

    assert_same(Tied().double(), group_of(8, 5, sizes=sizes))


def test_a_matrix_that_is_looked_up_and_multiplied_with_gets_both_gradients():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.hidden = nn.Embedding(50, 30), nn.Linear(30, 30)
            self.unembed = nn.Linear(30, 50, bias=False)
            self.unembed.weight = self.words.weight

        def forward(self, x):
            return self.unembed(self.hidden(self.words(x)).mean(1))

    assert_same(Language().double(), [(torch.randint(50, (3, 5)), torch.randint(50, (3,))) for _ in range(K)])


def test_mini_batches_may_differ_in_size():
    assert_same(
        build("BatchNorm-like"), [(x[:size], y[:size]) for size, (x, y) in zip((2, 5, 3), images(3, 5), strict=True)]
    )


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"])
def test_frozen_parameters_have_no_gradient(frozen):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).double()
    model.get_parameter(frozen).requires_grad_(False)
    assert_same(model, group_of(3, 4, 4))
    assert model.get_parameter(frozen).grad is None


@pytest.mark.parametrize("names", [["0.bias", "2.bias"], ["0.weight", "2.weight"], ["2.bias", "0.weight"]])
def test_some_parameters_alone_may_be_trained(names):
    model, group = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).double(), group_of(3, 4, 4)
    parameters, gradients = [model.get_parameter(name) for name in names], []
    for at_once in (False, True):
        step = Bilevel(parameters, num_batches=K)
        if at_once:
            step.step_at_once(group, cross_entropy_of(model))
        else:
            step.step_over(group, lambda batch: cross_entropy_of(model)(batch).mean())
        gradients.append([parameter.grad for parameter in parameters])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-12)


def test_running_statistics_are_those_of_one_mini_batch_after_another():
    group = group_of(3, 4, 4)
    model, other = (
        nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(48, 2)).double() for _ in range(2)
    )
    Bilevel(model, num_batches=K).step_at_once(group, cross_entropy_of(model))
    Bilevel(other, num_batches=K).step_over(group, lambda batch: cross_entropy_of(other)(batch).mean())
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(model[0], name), getattr(other[0], name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [Bilevel, by(ExactBilevel())], ids=["diagonal", "exact"])
@pytest.mark.parametrize("bad", [0, 2])
def test_a_mini_batch_that_is_not_finite_spoils_no_other(bad, make):
    group = group_of(3, 4, 4)
    group[bad][0][0, 0, 0, 0] = math.nan
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 30), nn.Linear(30, 2)).double()
    (gradient, report), (own_gradient, own_report) = in_two_ways(model, group, make=make)
    torch.testing.assert_close(own_gradient, gradient, rtol=1e-9, atol=1e-12)
    assert own_report.finite.tolist() == report.finite.tolist() == [number != bad for number in range(K)]
    assert own_gradient.isfinite().all()


def test_autocast_gives_the_same_but_for_rounding():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 2))
    group, seen = [(x.float(), y) for x, y in group_of(3, 4, 4)], []

    def criterion(x, y, **how):
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(x)
            seen.append((len(x), scores.dtype))
            return F.cross_entropy(scores, y, **how)

    (gradient, _), (own_gradient, _) = in_two_ways(model, group, criterion=criterion)
    assert own_gradient.dtype == torch.float32
    assert (own_gradient - gradient).norm() < 0.05 * gradient.norm()
    # It did run in the narrow type; whether that rounds in other places is up to the machine.
    assert seen == [(3, torch.bfloat16)] * K + [(3 * K, torch.bfloat16)]


def test_dropout_is_drawn_for_every_sample():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 2)).double()
    x, y = group_of(3, 4, 4)[0]
    report = Bilevel(model, num_batches=2).step_at_once(
        [(x, y), (x, y)], lambda batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")
    )
    assert report.losses[0] != report.losses[1]


def test_small_matrices_are_multiplied_out_and_large_ones_are_not():
    model = nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 2)).double()
    x = torch.randn(2 * K, 40, dtype=torch.float64)
    losses, gradients = run_in_one_pass(list(model.parameters()), [2] * K, lambda: model(x).sum(1))
    assert [type(each) for each in gradients[0].values()] == [OuterProducts, torch.Tensor, torch.Tensor, torch.Tensor]
    for number, part in enumerate(x.split(2)):
        expected = torch.autograd.grad(model(part).sum(1).mean(), list(model.parameters()))
        found = [each.dense() if isinstance(each, OuterProducts) else each for each in gradients[number].values()]
        torch.testing.assert_close(found, list(expected))
        torch.testing.assert_close(losses[number], model(part).sum(1).mean().detach())


def test_nothing_of_a_group_is_left_behind():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 30), nn.Linear(30, 2))
    model.double()
    bilevel, group = Bilevel(model, num_batches=K), group_of(3, 4, 4)

    def step():
        bilevel.step_at_once(group, lambda b: F.cross_entropy(model(b[0]), b[1], reduction="none"))
        model.zero_grad()

    gc.collect()
    gc.disable()  # what waits for the collector is memory that a step needs
    try:
        with LiveBytes() as memory:
            step()
            held = memory.live
            step()
            assert memory.live == held
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("samples_per_pass", "expected"),
    [(None, [12]), (12, [12]), (11, [9, 3]), (6, [6, 6]), (5, [3, 3, 3, 3]), (1, [3, 3, 3, 3])],
)
def test_as_many_mini_batches_share_a_pass_as_fit(samples_per_pass, expected):
    assert sizes_of_passes(group_of(3, 4, 4), samples_per_pass=samples_per_pass) == expected


def test_on_a_cpu_128_samples_share_a_pass_and_64_are_large_enough_unless_said_otherwise():
    assert sizes_of_passes(group_of(3, 4, 4, sizes=(63,) * K)) == [126, 126]
    assert sizes_of_passes(group_of(3, 4, 4, sizes=(64,) * K)) == [64] * K
    assert sizes_of_passes(group_of(3, 4, 4, sizes=(1, 64, 1, 1))) == [1, 64, 2]
    assert sizes_of_passes(group_of(3, 4, 4, sizes=(64,) * K), samples_per_pass=128) == [128, 128]


def sizes_of_passes(group, **settings):
    model, seen = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double(), []

    def losses_of(batch):
        seen.append(len(batch[1]))
        return cross_entropy_of(model)(batch)

    Bilevel(model, num_batches=K).step_at_once(group, losses_of, **settings)
    return seen


@every_step
def test_a_pass_may_hold_products_and_another_whole_matrices(make):
    """Of 2 samples the products are smaller than the matrix, of 40 they are not."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 9), nn.ReLU(), nn.Linear(9, 2)).double()
    for sizes in ((2, 2, 40, 2), (40, 2, 2, 2)):
        group = [(x, torch.zeros_like(y)) for x, y in group_of(3, 4, 4, sizes=sizes)]
        assert_same(model, group, make=make, samples_per_pass=4)


def test_a_loaders_iterator_is_taken_from():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    batches = iter(group_of(3, 4, 4, sizes=(3,) * 2 * K))
    bilevel = Bilevel(model, num_batches=K)
    for _ in range(2):
        bilevel.step_at_once(batches, cross_entropy_of(model))
    assert next(batches, None) is None
