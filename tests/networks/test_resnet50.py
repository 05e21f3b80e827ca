"""ResNet-50: size, and that files in torchvision's layout fit, name by name and number by number."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from deepbilevel_lab.networks import NetworkSpec, resnet50
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.networks.weights_file import fill_network

STAGES = {"layer1": (64, 3), "layer2": (128, 4), "layer3": (256, 6), "layer4": (512, 3)}


def torchvision_layout(num_classes: int = 1000) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of torchvision's file, written down without a look at our network."""
    shapes: dict[str, tuple[int, ...]] = {}

    def norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    shapes["conv1.weight"] = (64, 3, 7, 7)
    norm("bn1", 64)
    channels = 64
    for stage, (width, num_blocks) in STAGES.items():
        for block in range(num_blocks):
            at = f"{stage}.{block}"
            shapes[f"{at}.conv1.weight"] = (width, channels, 1, 1)
            norm(f"{at}.bn1", width)
            shapes[f"{at}.conv2.weight"] = (width, width, 3, 3)
            norm(f"{at}.bn2", width)
            shapes[f"{at}.conv3.weight"] = (4 * width, width, 1, 1)
            norm(f"{at}.bn3", 4 * width)
            if block == 0:
                shapes[f"{at}.downsample.0.weight"] = (4 * width, channels, 1, 1)
                norm(f"{at}.downsample.1", 4 * width)
            channels = 4 * width
    shapes["fc.weight"] = (num_classes, channels)
    shapes["fc.bias"] = (num_classes,)
    return shapes


def random_weights(num_classes: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    weights = {}
    for name, shape in torchvision_layout(num_classes).items():
        if name.endswith("num_batches_tracked"):
            weights[name] = torch.tensor(17)
        elif len(shape) == 1:
            weights[name] = 0.5 + torch.rand(shape, generator=generator)
        else:
            fan_in = torch.Size(shape[1:]).numel()
            weights[name] = torch.randn(shape, generator=generator) * fan_in**-0.5
    return weights


def textbook_scores(weights: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    """Evaluate the network from the weights of the file and torch's functions alone."""

    def conv_norm(x, conv, norm, stride=1, padding=0):
        x = F.conv2d(x, weights[f"{conv}.weight"], stride=stride, padding=padding)
        mean, var, scale, shift = (weights[f"{norm}.{p}"] for p in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, scale, shift, eps=1e-5)

    x = F.max_pool2d(F.relu(conv_norm(images, "conv1", "bn1", stride=2, padding=3)), 3, 2, 1)
    for stage, (_, num_blocks) in STAGES.items():
        for block in range(num_blocks):
            at, stride = f"{stage}.{block}", 2 if block == 0 and stage != "layer1" else 1
            out = F.relu(conv_norm(x, f"{at}.conv1", f"{at}.bn1"))
            out = F.relu(conv_norm(out, f"{at}.conv2", f"{at}.bn2", stride=stride, padding=1))
            out = conv_norm(out, f"{at}.conv3", f"{at}.bn3")
            if block == 0:
                x = conv_norm(x, f"{at}.downsample.0", f"{at}.downsample.1", stride=stride)
            x = F.relu(out + x)
    return F.linear(x.mean(dim=(2, 3)), weights["fc.weight"], weights["fc.bias"])


@pytest.fixture(scope="module")
def weights():
    return random_weights(num_classes=11)


@pytest.fixture(scope="module")
def path(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("resnet50") / "resnet50.pth"
    torch.save(weights, path)
    return path


def test_names_and_shapes_are_torchvisions():
    network = resnet50()
    assert {name: tuple(value.shape) for name, value in network.state_dict().items()} == torchvision_layout()
    assert sum(parameter.numel() for parameter in network.parameters()) == 25_557_032


def test_a_file_in_torchvisions_layout_is_loaded_and_gives_the_textbooks_scores(weights, path):
    network = make_model(NetworkSpec("resnet50", weights=str(path)), 11).eval()
    for name, value in network.state_dict().items():
        assert torch.equal(value, weights[name]), name
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        scores, expected = network(images), textbook_scores(weights, images)
    assert scores.shape == (1, 11)
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_safetensors_give_the_same(weights, tmp_path):
    save_file(weights, tmp_path / "resnet50.safetensors")
    network = make_model(NetworkSpec("resnet50", weights=str(tmp_path / "resnet50.safetensors")), 11)
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())


def test_for_other_classes_the_classifier_alone_is_fresh(weights, path):
    torch.manual_seed(5)
    network = make_model(NetworkSpec("resnet50", weights=str(path)), 14)
    torch.manual_seed(5)
    again = make_model(NetworkSpec("resnet50", weights=str(path)), 14)
    state = network.state_dict()
    assert state["fc.weight"].shape == (14, 2048)
    assert state["fc.bias"].shape == (14,)
    assert 0 < state["fc.weight"].std() < 0.1
    assert torch.equal(state["fc.weight"], again.fc.weight)
    for name, value in state.items():
        assert name.startswith("fc.") or torch.equal(value, weights[name]), name


WRONG = {
    "one missing": (
        lambda weights: {name: value for name, value in weights.items() if name != "layer3.5.conv2.weight"},
        r"1 missing: layer3\.5\.conv2\.weight$",
    ),
    "no classifier": (
        lambda weights: {name: value for name, value in weights.items() if not name.startswith("fc.")},
        r"2 missing: fc\.weight, fc\.bias$",
    ),
    "one too many": (
        lambda weights: {**weights, "aux.weight": torch.zeros(1)},
        r"1 unexpected: aux\.weight$",
    ),
    "grey images": (
        lambda weights: {**weights, "conv1.weight": torch.zeros(64, 1, 7, 7)},
        r"1 of another shape: conv1\.weight is \[64, 1, 7, 7\] instead of \[64, 3, 7, 7\]$",
    ),
    "names of a wrapper": (
        lambda weights: {f"module.{name}": value for name, value in weights.items()},
        r"267 missing: conv1\.weight, .* and 262 more; 320 unexpected: module\.conv1",
    ),
}


@pytest.mark.parametrize(("change", "complaint"), WRONG.values(), ids=WRONG)
def test_weights_that_do_not_fit_are_refused_by_name(weights, change, complaint):
    with pytest.raises(ValueError, match=f"the weights of a file do not fit ResNet50: .*{complaint}"):
        fill_network(resnet50(11), change(weights), "a file")


def test_convolutions_start_from_he_by_fan_out():
    network = resnet50(2)
    for name in ("conv1", "layer1.0.conv2", "layer4.2.conv3"):
        weight = network.get_submodule(name).weight
        fan_out = weight.shape[0] * weight[0, 0].numel()
        assert weight.var().item() == pytest.approx(2 / fan_out, rel=0.1), name
