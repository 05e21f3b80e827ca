"""What one pass refuses: with the reason, and leaving everything as it was."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import CheckpointError, checkpoint

from deepbilevel import Bilevel, CrossValidated
from tests.one_pass.test_one_pass import K, assert_same, cross_entropy_of, group_of


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(48)), nn.Linear(48, 2)

    def forward(self, x):
        return self.head(x.flatten(1) * self.scale)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRU(16, 5, batch_first=True), nn.Linear(15, 2)

    def forward(self, x):
        return self.head(self.cell(x.flatten(2))[0].flatten(1))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(48, 20), nn.Linear(20, 2), reentrant

    def forward(self, x):
        return checkpoint(self.second, self.first(x.flatten(1)).tanh(), use_reentrant=self.reentrant)


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(x.flatten(2).transpose(0, 1)).mean(0)


class Applied(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        self.apply_to = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.apply_to(self, x)


def computed_bias():
    return Applied(
        lambda m, x: F.linear(x.flatten(1), m.weight, m.bias * 2),
        weight=nn.Parameter(torch.ones(2, 48)),
        bias=nn.Parameter(torch.ones(2)),
    )


def transposed_matrix():
    return Applied(
        lambda m, x: m.head(F.linear(m.tied(x.flatten(1)), m.tied.weight.T, m.bias)),
        tied=nn.Linear(48, 48),
        bias=nn.Parameter(torch.ones(48)),
        head=nn.Linear(48, 2),
    )


def vector():
    return Applied(
        lambda m, x: F.linear(x.flatten(1), m.vector)[:, None] * torch.tensor([1.0, -1.0]),
        vector=nn.Parameter(torch.ones(48)),
    )


def no_samples():
    return Applied(lambda m, x: x.flatten(1)[:, :12] + m.layer(torch.ones(12).to(x)), layer=nn.Linear(12, 12))


def image_by_image():
    return Applied(lambda m, x: torch.stack([m.layer(each).sum((1, 2)) for each in x]), layer=nn.Conv2d(3, 2, 3))


def padded(**how):
    return Applied(lambda m, x: F.conv2d(x, m.kernel, **how).mean((2, 3)), kernel=nn.Parameter(torch.ones(2, 3, 3, 3)))


def two_views():
    return Applied(
        lambda m, x: m.head(torch.cat([x, x.flip(-1)]).flatten(1)).view(2, -1, 2).mean(0), head=nn.Linear(48, 2)
    )


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (weight_norm(nn.Linear(48, 2)), NotImplementedError, r"parameter of shape \(2, 1\) is used in a way"),
        (weight_norm(nn.Conv2d(3, 2, 4)), NotImplementedError, r"parameter of shape \(2, 1, 1, 1\) is used in a way"),
        (computed_bias(), NotImplementedError, r"parameter of shape \(2,\) is used in a way"),
        (transposed_matrix(), NotImplementedError, r"parameter of shape \(48, 48\) is used in a way"),
        (vector(), NotImplementedError, r"parameter of shape \(48,\) is used in a way"),
        (no_samples(), NotImplementedError, r"parameter of shape \(12, 12\) is used in a way"),
        (
            image_by_image(),
            ValueError,
            r"convolution got an input of shape \(3, 4, 4\), without a dimension for samples",
        ),
        (padded(padding="full"), ValueError, r"padding='full' with a stride of \[1, 1\] is none that torch knows"),
        (padded(padding="same", stride=2), ValueError, r"padding='same' with a stride of \[2, 2\] is none"),
        (two_views(), ValueError, r"a layer got an input of shape \(24, 48\), but the pass has 12 samples"),
        (Scaled(), NotImplementedError, r"parameter of shape \(48,\) is used in a way that one pass cannot take apart"),
        (Recurrent(), NotImplementedError, r"parameter of shape \(15, 16\) is used in a way"),
        (Checkpointed(True), NotImplementedError, r"or in activations that are computed again"),
        (Checkpointed(False), CheckpointError, "Recomputed values"),
        (TimeFirst(), ValueError, r"a layer got an input of shape \(3, 12, 16\), but the pass has 12 samples"),
    ],
    ids=[
        "computed matrix",
        "computed kernel",
        "computed bias",
        "transposed matrix",
        "vector",
        "no samples",
        "image by image",
        "padded somehow",
        "padded to the same, strided",
        "two views in one batch",
        "elsewhere",
        "recurrent",
        "computed again",
        "computed again, torch tells",
        "time first",
    ],
)
def test_what_cannot_be_taken_apart_is_refused_and_leaves_everything_as_it_was(model, error, message):
    model.double()
    bilevel, group = Bilevel(model, num_batches=K), group_of(3, 4, 4)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(error, match=message):
        bilevel.step_at_once(
            group,
            lambda b: F.cross_entropy(
                model(b[0].flatten(1) if isinstance(model, nn.Linear) else b[0]).flatten(1), b[1], reduction="none"
            ),
        )
    assert bilevel.num_collected == 0
    assert all((parameter.grad == 1).all() for parameter in model.parameters())


def test_a_mini_batch_with_a_pass_to_itself_may_use_parameters_as_it_likes():
    assert_same(Scaled().double(), group_of(3, 4, 4), samples_per_pass=1)


@pytest.mark.parametrize("samples_per_pass", [6, 12])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_normalisation_that_is_computed_again_is_not_mistaken_for_torchs(samples_per_pass, affine):
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine), nn.Linear(16, 2)

        def forward(self, x):
            return self.head(checkpoint(lambda y: self.norm(y) ** 3, self.layer(x), use_reentrant=False).flatten(1))

    model = Normalised().double()
    with pytest.raises(CheckpointError):
        Bilevel(model, num_batches=K).step_at_once(
            group_of(3, 4, 4), cross_entropy_of(model), samples_per_pass=samples_per_pass
        )


@pytest.mark.parametrize(
    ("group", "losses_of", "error", "message"),
    [
        (group_of(3, 4, 4)[:3], None, ValueError, "group has 3 mini-batches, expected num_batches=4"),
        (iter(group_of(3, 4, 4)[:3]), None, ValueError, "group ended after 3 mini-batches"),
        ([(x, 1) for x, _ in group_of(3, 4, 4)], None, TypeError, r"mini-batch 0 must be made of tensors .*'int'"),
        ([(x, y[:2]) for x, y in group_of(3, 4, 4)], None, ValueError, r"shapes \[\(3, 3, 4, 4\), \(2,\)\]"),
        ([(*b, torch.ones(())) for b in group_of(3, 4, 4)], None, ValueError, r"\(\)\]; the first dimension of each"),
        (
            [(x[..., number:], y) for number, (x, y) in enumerate(group_of(3, 4, 4))],
            None,
            ValueError,
            r"mini-batch 1 has tensors of shapes \[\(3, 3, 4, 3\).* first has \[\(3, 3, 4, 4\), .* \(pad sequences",
        ),
        (group_of(3, 4, 4), lambda model: lambda b: F.cross_entropy(model(b[0]), b[1]), ValueError, "reduction='none'"),
        (group_of(3, 4, 4), lambda model: lambda b: 1.0, TypeError, "losses_of must return a tensor, got float"),
        (group_of(3, 4, 4), lambda model: lambda b: b[0].sum((1, 2, 3)), ValueError, "do not depend on any trainable"),
    ],
    ids=["too few", "ends", "no tensors", "uneven", "0-d", "ragged", "reduced", "a number", "constant"],
)
def test_wrong_usage_is_told(group, losses_of, error, message):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    with pytest.raises(error, match=message):
        Bilevel(model, num_batches=K).step_at_once(group, (losses_of or cross_entropy_of)(model))


def test_groups_that_have_begun_and_scalers_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    group = group_of(3, 4, 4)
    bilevel = Bilevel(model, num_batches=K)
    bilevel.backward(cross_entropy_of(model)(group[0]).mean())
    with pytest.raises(RuntimeError, match=r"step_at_once\(\) starts a new group, but 1 mini-batches"):
        bilevel.step_at_once(group, cross_entropy_of(model))
    scaled = CrossValidated(model, num_batches=K, scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(NotImplementedError, match="does not work with a loss scaler"):
        scaled.step_at_once(group, cross_entropy_of(model))


@pytest.mark.parametrize("register", [Tensor.register_hook, Tensor.register_post_accumulate_grad_hook])
def test_hooks_on_parameters_are_refused_for_they_would_not_see_mini_batches(register):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    register(model[1].weight, lambda gradient: None)
    with pytest.raises(NotImplementedError, match=r"parameter of shape \(2, 48\) has a hook on its gradient"):
        Bilevel(model, num_batches=K).step_at_once(group_of(3, 4, 4), cross_entropy_of(model))


def test_second_derivatives_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 20), nn.Tanh(), nn.Linear(20, 2)).double()

    def losses_of(batch):
        x = batch[0].requires_grad_()
        losses = cross_entropy_of(model)((x, batch[1]))
        (slope,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
        return losses + slope.square().sum((1, 2, 3))

    with pytest.raises(RuntimeError, match="differentiate twice"):
        Bilevel(model, num_batches=K).step_at_once(group_of(3, 4, 4), losses_of)


@pytest.mark.parametrize(
    ("samples_per_pass", "error", "message"),
    [
        (0, ValueError, "samples_per_pass must be at least 1, got 0; None chooses by the device"),
        (-1, ValueError, "samples_per_pass must be at least 1, got -1; None chooses"),
        (2.5, TypeError, "samples_per_pass must be a whole number, got 2.5"),
        (True, TypeError, "samples_per_pass must be a whole number, got True"),
        ("64", TypeError, "samples_per_pass must be a whole number, got '64'"),
    ],
)
def test_a_number_of_samples_per_pass_that_is_none_is_refused(samples_per_pass, error, message):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    bilevel = Bilevel(model, num_batches=K)
    with pytest.raises(error, match=message):
        bilevel.step_at_once(group_of(3, 4, 4), cross_entropy_of(model), samples_per_pass=samples_per_pass)
    assert bilevel.num_collected == 0


def test_a_pass_that_fails_drops_the_passes_before_it():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    bilevel, passes = Bilevel(model, num_batches=K), []

    def losses_of(batch):
        passes.append(batch)
        if len(passes) == 2:
            raise MemoryError("no room")
        return cross_entropy_of(model)(batch)

    with pytest.raises(MemoryError, match="no room"):
        bilevel.step_at_once(group_of(3, 4, 4), losses_of, samples_per_pass=6)
    assert bilevel.num_collected == 0
    assert all(parameter.grad is None for parameter in model.parameters())
    bilevel.step_at_once(group_of(3, 4, 4), losses_of, samples_per_pass=6)
    assert model[1].weight.grad.abs().max() > 0
