"""The small Inception in both versions: size, maps, BatchNorm, dropout, initial values."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks import inception, inception_half, inception_zhang
from deepbilevel_lab.networks.inception import DownModule, InceptionModule
from deepbilevel_lab.networks.layers import ShiftBatchNorm2d

both_versions = pytest.mark.parametrize("build", [inception, inception_zhang])


@both_versions
@pytest.mark.parametrize(("num_classes", "expected"), [(10, 1_649_402), (100, 1_679_732)])
def test_it_has_the_published_number_of_parameters(build, num_classes, expected):
    assert sum(parameter.numel() for parameter in build(num_classes).parameters()) == expected


@pytest.mark.parametrize(("build", "size", "after_stem"), [(inception, 29, 27), (inception_zhang, 28, 28)])
def test_the_stem_pads_in_one_version_only_and_both_end_with_7x7_maps(build, size, after_stem):
    network = build().eval()
    x = network.stem(torch.randn(1, 3, size, size))
    assert x.shape == (1, 96, after_stem, after_stem)
    shapes = []
    for module in network.body:
        x = module(x)
        shapes.append((x.shape[1], x.shape[2]))
    first = (after_stem, after_stem)
    assert shapes == [
        *[(64, first[0]), (80, first[1]), (160, 14)],
        *[(160, 14), (160, 14), (160, 14), (144, 14), (240, 7)],
        *[(336, 7), (336, 7)],
    ]


@both_versions
def test_modules_are_those_of_the_papers_figure(build):
    kinds = [type(module) for module in build().body]
    one, down = InceptionModule, DownModule
    assert kinds == [one, one, down, one, one, one, one, down, one, one]


def test_the_narrow_one_has_half_the_channels_everywhere():
    wide, narrow = (
        [module.out_channels for module in build().modules() if isinstance(module, nn.Conv2d)]
        for build in (inception, inception_half)
    )
    assert [2 * channels for channels in narrow] == wide
    assert inception_half(100)(torch.zeros(1, 3, 29, 29)).shape == (1, 100)


def test_a_down_module_puts_the_convolution_before_the_pool():
    module = DownModule(4, 6).eval()
    x = torch.randn(2, 4, 8, 8)
    out = module(x)
    assert out.shape == (2, 10, 4, 4)
    padded = torch.nn.functional.pad(x, (0, 1, 0, 1), value=-100)
    assert torch.equal(out[:, 6:], torch.nn.functional.max_pool2d(padded, 3, 2))
    assert (out[:, :6] >= 0).all()


@both_versions
def test_every_convolution_is_followed_by_batch_norm_without_scale(build):
    modules = list(build().modules())
    convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
    norms = [module for module in modules if isinstance(module, nn.BatchNorm2d)]
    assert len(convolutions) == len(norms) == 1 + 8 * 2 + 2
    assert all(convolution.bias is None for convolution in convolutions)
    for norm in norms:
        assert isinstance(norm, ShiftBatchNorm2d)
        assert (norm.eps, norm.momentum, norm.weight) == (1e-3, 0.025, None)
    followers = [b for a, b in pairwise(modules) if isinstance(a, nn.Conv2d)]
    assert followers == norms


@both_versions
def test_weights_start_from_he(build):
    network = build(100)
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            # Five standard errors of a variance over so many draws.
            tolerance = 5 * (2 / module.weight.numel()) ** 0.5
            assert module.weight.var().item() == pytest.approx(2 / fan_in, rel=tolerance), name
    assert not network.fc.bias.any()


@pytest.mark.parametrize(("build", "size", "repeats"), [(inception, 29, False), (inception_zhang, 28, True)])
def test_only_the_authors_version_drops_features(build, size, repeats):
    network, images = build(), torch.randn(4, 3, size, size)
    assert torch.equal(network(images), network(images)) is repeats


def test_half_of_the_pooled_features_are_dropped():
    network = inception()
    seen = []
    network.fc.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    network(torch.randn(16, 3, 29, 29))
    assert seen[0].shape == (16, 336)
    assert (seen[0] == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_training_moves_the_running_statistics_and_evaluation_uses_them():
    network, images = inception_zhang(), 3 + torch.randn(8, 3, 28, 28)
    untrained = network.eval()(images)
    network.train()(images)
    norm = network.stem[1]
    assert norm.num_batches_tracked == 1
    assert norm.running_mean.any()
    assert not torch.equal(network.eval()(images), untrained)
