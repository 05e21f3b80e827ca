"""What every network of the catalog must do, as asserts that know none of them by name.

A new network passes by having a line in the catalog.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.networks import NETWORKS, build_network

NUM_CLASSES = 7
BATCH_SIZE = 2


def _is_large(name: str) -> bool:
    return NETWORKS[name].input_shape[-1] > 100


every_network = pytest.mark.parametrize("name", NETWORKS)
# Two networks of photographs side by side, in float64, take longer than everything else here.
every_network_compared = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if _is_large(name) else name for name in NETWORKS]
)


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return build_network(name, num_classes=NUM_CLASSES)


def images_for(name: str, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH_SIZE, *NETWORKS[name].input_shape, generator=generator)


def loss_of(network: nn.Module, images: Tensor, seed: int = 0) -> Tensor:
    """Return a loss in training mode; dropout as after ``manual_seed(seed)``."""
    torch.manual_seed(seed)
    return F.cross_entropy(network.train()(images), torch.arange(len(images)))


def assert_it_scores_every_class(name: str) -> None:
    network = build(name)
    for mode in (True, False):
        scores = network.train(mode)(images_for(name))
        assert scores.shape == (BATCH_SIZE, NUM_CLASSES)
        assert scores.dtype == torch.float32
        assert scores.isfinite().all()


def assert_gradients_are_everywhere(name: str) -> None:
    """A finite gradient that is not all zero reaches every parameter and the images."""
    network, images = build(name), images_for(name).requires_grad_()
    loss_of(network, images).backward()
    for label, tensor in [*network.named_parameters(), ("images", images)]:
        assert tensor.grad is not None, label
        assert tensor.grad.isfinite().all(), label
        assert tensor.grad.any(), label


def assert_the_seed_decides_the_weights(name: str) -> None:
    first, again, other = (build(name, seed).state_dict() for seed in (0, 0, 1))
    for label, weights in first.items():
        assert torch.equal(weights, again[label]), label
        # What is drawn differs; what starts at a constant does not.
        is_constant = bool((weights == weights.flatten()[0]).all())
        assert torch.equal(weights, other[label]) == is_constant, label


def assert_evaluation_is_deterministic(name: str) -> None:
    """Scores of evaluation repeat, leave no trace in the network, and do not depend on the rest of the batch."""
    network, images = build(name).eval(), images_for(name)
    before = copy.deepcopy(network.state_dict())
    scores = network(images)
    assert torch.equal(network(images), scores)
    for label, value in network.state_dict().items():
        assert torch.equal(value, before[label]), label
    # In float64: a batch of another size adds up in another order, and deep networks make more of that than a digit.
    network, images = network.double(), images.double()
    alone, together = network(images[:1]), network(images)[:1]
    assert torch.dist(alone, together) <= 1e-8 * together.norm()


def assert_memory_format_does_not_matter(name: str) -> None:
    """Scores and gradients with channels last are those of the usual layout."""

    def to_channels_last(network: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
        return network.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)

    assert_nothing_changes(name, to_channels_last)


def assert_tracing_does_not_matter(name: str) -> None:
    """torch.compile takes the whole network without a break, and changes neither scores nor gradients."""

    def compiled(network: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
        return torch.compile(network, backend="aot_eager", fullgraph=True), images

    torch._dynamo.reset()
    assert_nothing_changes(name, compiled)
    torch._dynamo.reset()


def assert_nothing_changes(name: str, change: Callable[[nn.Module, Tensor], tuple[nn.Module, Tensor]]) -> None:
    """Compare scores of evaluation, and loss and gradients of training, before and after a change.

    In float64: in float32 rounding turns some ReLU on or off, which moves the gradients of a deep network by several
    percent. Without dropout: masks are drawn in the order of memory, which may be what changes.
    """
    network, images = build(name).double(), images_for(name)[:1].double()
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    buffers = [buffer.clone() for buffer in network.buffers()]
    before = scores_loss_and_gradients(network, images)
    for buffer, value in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(value)
    after = scores_loss_and_gradients(*change(network, images))
    for label, value in before.items():
        assert value.norm() > 0, label
        assert torch.dist(after[label], value) <= 1e-8 * value.norm(), label


def scores_loss_and_gradients(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        scores = network.eval()(images)
    loss = loss_of(network, images)
    names = [name.removeprefix("_orig_mod.") for name, _ in network.named_parameters()]
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    return {"scores": scores, "loss": loss.detach(), **dict(zip(names, gradients, strict=True))}


def assert_weights_survive_a_round_trip(name: str) -> None:
    network, other = build(name, seed=0).eval(), build(name, seed=1).eval()
    assert other.load_state_dict(network.state_dict()) == ([], [])
    assert torch.equal(other(images_for(name)), network(images_for(name)))


def assert_other_images_are_refused(name: str) -> None:
    """The error names the expected and the given shape, and what to do, in training and evaluation."""
    channels, height, width = NETWORKS[name].input_shape
    expected = rf"\[batch, {channels}, {height}, {width}\] for this network, got "
    wrong = {
        (2, channels, height + 1, width): f"crop or resize them to {height}x{width}",
        (2, channels, height, width - 1): f"crop or resize them to {height}x{width}",
        (2, channels + 1, height, width): "check how the images were loaded",
        (2, height, width, channels): r"images\.movedim\(-1, 1\)",
        (channels, height, width): r"images\[None\]",
        (2, channels * height * width): "check how the images were loaded",
    }
    network = build(name)
    for shape, remedy in wrong.items():
        given = str(list(shape)).replace("[", r"\[").replace("]", r"\]")
        for mode in (True, False):
            with pytest.raises(ValueError, match=f"{expected}{given}; .*{remedy}"):
                network.train(mode)(torch.zeros(shape))


def assert_impossible_numbers_of_classes_are_refused(name: str) -> None:
    for num_classes in (0, -3):
        with pytest.raises(ValueError, match=f"num_classes must be at least 1, got {num_classes}"):
            build_network(name, num_classes=num_classes)
    for num_classes in (10.0, "10", True):
        with pytest.raises(TypeError, match="num_classes must be a whole number, got"):
            build_network(name, num_classes=num_classes)
