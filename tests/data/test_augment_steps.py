"""Single steps of augmentation: crops, flips and values, each against a hand-worked or slow version."""

import math

import numpy as np
import pytest
import torch

from deepbilevel_lab.data.augmentation import (
    CenterCrop,
    HorizontalFlip,
    NormalizeChannels,
    PadAndCrop,
    RandomContrast,
    Standardize,
    ToUnit,
)
from tests.data.steps import chi_square, photos, seeded, standardize_slowly


def test_crops_of_a_padded_2x2_image_are_its_nine_windows_equally_often():
    image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)
    crops = PadAndCrop(padding=1, size=2)(image.expand(1800, 1, 2, 2), seeded())
    found, counts = np.unique(crops.flatten(1).numpy(), axis=0, return_counts=True)
    assert sorted(found.tolist()) == sorted(
        [
            [0, 0, 0, 1], [0, 0, 1, 2], [0, 0, 2, 0],
            [0, 1, 0, 3], [1, 2, 3, 4], [2, 0, 4, 0],
            [0, 3, 0, 0], [3, 4, 0, 0], [4, 0, 0, 0],
        ]
    )  # fmt: skip
    assert chi_square(counts) < 26.1  # 8 degrees of freedom; passed by chance once in a thousand seeds


@pytest.mark.parametrize(("height", "width", "padding", "size"), [(32, 32, 4, 29), (9, 14, 3, 8), (8, 8, 0, 8)])
def test_every_crop_is_one_window_of_its_own_padded_image(height, width, padding, size):
    images = photos(50, height=height, width=width)
    crops = PadAndCrop(padding, size)(images, seeded()).numpy()
    places = set()
    for image, crop in zip(images.numpy(), crops, strict=True):
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
        matches = np.argwhere((windows == crop[:, None, None]).all(axis=(0, 3, 4)))
        assert len(matches) == 1
        places.add(tuple(matches[0].tolist()))
    possible = (height + 2 * padding - size + 1) * (width + 2 * padding - size + 1)
    assert len(places) > min(possible, 50) / 2  # each image its own


def test_crop_offsets_are_uniform_and_rows_say_nothing_about_columns():
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    images = torch.stack([rows, columns]).float().expand(14400, 2, 32, 32)
    corners = PadAndCrop(padding=0, size=21)(images, seeded())[:, :, 0, 0].long()
    counts = torch.zeros(12, 12).index_put_((corners[:, 0], corners[:, 1]), torch.ones(14400), accumulate=True)
    assert chi_square(counts.numpy()) < 200  # 143 degrees of freedom; 198.6 once in a thousand seeds


@pytest.mark.parametrize(
    ("side", "size", "kept"), [(4, 2, slice(1, 3)), (5, 2, slice(1, 3)), (32, 29, slice(1, 30)), (32, 28, slice(2, 30))]
)
def test_the_centre_crop_cuts_an_odd_pixel_more_at_the_far_side(side, size, kept):
    images = photos(2, height=side, width=side)
    assert torch.equal(CenterCrop(size)(images), images[:, :, kept, kept])


def test_the_centre_crop_of_an_oblong_image_is_its_middle():
    images = torch.arange(8).reshape(1, 1, 2, 4).float()
    assert CenterCrop(2)(images).flatten().tolist() == [1, 2, 5, 6]


def test_every_image_is_mirrored_as_a_whole_or_left_alone():
    images = photos(400, height=5, width=4)
    flipped = HorizontalFlip()(images, seeded())
    mirrored = 0
    for image, result in zip(images.numpy(), flipped.numpy(), strict=True):
        if (result == image[:, :, ::-1]).all():
            mirrored += 1
        else:
            np.testing.assert_array_equal(result, image)
    assert abs(mirrored - 200) < 40  # four standard deviations of 400 fair coins


def test_contrast_by_hand():
    image = torch.tensor([0.0, 4.0, 10.0, 10.0]).reshape(1, 2, 1, 2)
    halved = RandomContrast(0.5, 0.5)(image, seeded())
    assert halved.flatten().tolist() == [1, 3, 10, 10]
    doubled = RandomContrast(2, 2)(image.to(torch.uint8), seeded())
    assert doubled.flatten().tolist() == [-2, 6, 10, 10]  # nothing is clipped


def test_contrast_moves_all_channels_of_an_image_by_one_factor_between_the_limits():
    images = photos(2000, height=4, width=4)
    changed = RandomContrast(0.2, 1.8)(images, seeded()).double().numpy()
    factors = []
    for image, result in zip(images.double().numpy(), changed, strict=True):
        mean = image.mean(axis=(1, 2), keepdims=True)
        factors.append(np.abs(result - mean).sum() / np.abs(image - mean).sum())
        np.testing.assert_allclose(result, (image - mean) * factors[-1] + mean, atol=1e-3)
    assert 0.2 <= min(factors) < 0.21
    assert 1.79 < max(factors) <= 1.8
    assert chi_square(np.histogram(factors, bins=10, range=(0.2, 1.8))[0]) < 27.9  # 9 degrees of freedom


def test_standardising_gives_the_numbers_of_tensorflows_documentation():
    # Its example is one image of 2 x 2 pixels and three channels, channels last.
    image = torch.arange(1, 13, dtype=torch.uint8).reshape(1, 2, 2, 3).permute(0, 3, 1, 2)
    expected = [-1.593255, -1.3035723, -1.0138896, -0.7242068, -0.4345241, -0.14484136]
    expected += [0.14484136, 0.4345241, 0.7242068, 1.0138896, 1.3035723, 1.593255]
    result = Standardize()(image).permute(0, 2, 3, 1).flatten()
    torch.testing.assert_close(result, torch.tensor(expected))


def test_standardising_divides_by_no_less_than_one_over_the_root_of_the_number_of_values():
    images = torch.tensor([[0.0, 0.1], [7.0, 7.0], [0.0, 255.0]]).reshape(3, 1, 1, 2)
    # The first: mean 0.05, std 0.05, which is less than 1 / sqrt(2).
    expected = torch.tensor([[-0.05 * math.sqrt(2), 0.05 * math.sqrt(2)], [0, 0], [-1, 1]]).reshape(3, 1, 1, 2)
    torch.testing.assert_close(Standardize()(images), expected)


@pytest.mark.parametrize("value", [0, 1, 127, 255])
def test_a_uniform_image_becomes_exactly_zero(value):
    assert (Standardize()(torch.full((2, 3, 29, 29), value, dtype=torch.uint8)) == 0).all()


@pytest.mark.parametrize("scale", [1, 255, 1e4])
def test_standardising_equals_the_textbook_image_by_image(scale):
    images = photos(20, height=7, width=9).float() / 255 * scale + scale
    expected = np.stack([standardize_slowly(image) for image in images.numpy()])
    np.testing.assert_allclose(Standardize()(images).numpy(), expected, atol=2e-5)


def test_bytes_are_scaled_to_the_unit_interval_and_floats_are_there_already():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)
    assert ToUnit()(images).flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert ToUnit()(images.double() / 255).flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_channels_are_normalised_by_hand():
    images = torch.tensor([0.5, 1.0]).reshape(1, 2, 1, 1)
    assert NormalizeChannels((0.5, 0.2), (0.1, 0.4))(images).flatten().tolist() == pytest.approx([0, 2])
