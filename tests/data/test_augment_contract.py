"""What all steps of augmentation have in common, and what they refuse."""

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
    ToUnit,
)
from deepbilevel_lab.data.permutation import permute_pixels, pixel_order
from deepbilevel_lab.data.recipes import CIFAR10_CHANNELS, Recipe, find_recipe
from tests.data.steps import GEOMETRY, RANDOM, STEPS, name_of, photos, seeded


@pytest.mark.parametrize("step", [step for step in STEPS if step != ToUnit()], ids=name_of)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_images_of_every_type_get_the_same_treatment_and_stay_as_they_were(step, dtype):
    images = photos().to(dtype)
    before = images.clone()
    result = step(images, seeded())
    assert result.dtype == (dtype if step in GEOMETRY else torch.float32)
    torch.testing.assert_close(result.float(), step(photos().float(), seeded()))
    assert torch.equal(images, before)


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_channels_last_changes_no_value_and_is_kept(step):
    images = photos()
    expected = step(images, seeded())
    result = step(images.contiguous(memory_format=torch.channels_last), seeded())
    torch.testing.assert_close(result, expected)
    assert result.stride(1) == 1
    assert expected.stride(3) == 1


@pytest.mark.parametrize("step", RANDOM, ids=name_of)
def test_the_generator_decides_and_goes_on(step):
    images = photos()
    generator = seeded()
    first, second = step(images, generator), step(images, generator)
    again = seeded()
    assert torch.equal(step(images, again), first)
    assert torch.equal(step(images, again), second)
    assert not torch.equal(first, second)
    assert not torch.equal(step(images, seeded(1)), first)


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_an_image_changes_nothing_about_its_neighbours(step):
    images = photos()
    changed = images.clone()
    changed[2] = 255 - changed[2]
    before, after = step(images, seeded()), step(changed, seeded())
    same = [bool(torch.equal(one, other)) for one, other in zip(before, after, strict=True)]
    assert same == [True, True, False, True, True, True]


@pytest.mark.parametrize("step", RANDOM, ids=name_of)
def test_equal_images_are_not_all_treated_alike(step):
    results = step(photos(1).expand(20, -1, -1, -1), seeded())
    assert len({result.numpy().tobytes() for result in results}) > 1


@pytest.mark.parametrize("step", RANDOM, ids=name_of)
def test_random_numbers_come_from_the_cpu_wherever_the_images_are(step):
    # The meta device stands for any other: the numbers drawn are those drawn for images on the CPU.
    here, elsewhere = seeded(), seeded()
    expected = step(photos(), here)
    result = step(photos().to("meta"), elsewhere)
    assert (result.device.type, result.shape) == ("meta", expected.shape)
    assert torch.equal(here.get_state(), elsewhere.get_state())


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_an_empty_batch_stays_empty(step):
    assert len(step(photos(0), seeded())) == 0


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_torchs_own_random_numbers_are_left_alone(step):
    before = torch.get_rng_state()
    step(photos(), seeded())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("step", STEPS, ids=name_of)
@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (torch.zeros(3, 32, 32), ValueError, r"images must have the shape .* got \(3, 32, 32\); .* images\[None\]"),
        (torch.zeros(2, 3, 32, 32).long(), TypeError, r"images must be uint8 or floating point, got torch.int64"),
        (torch.zeros(2, 3, 32, 32).bool(), TypeError, r"images must be uint8 or floating point, got torch.bool"),
        (np.zeros((2, 3, 32, 32)), TypeError, r"images must be a tensor, got ndarray; torch.as_tensor makes one"),
    ],
)
def test_what_is_not_a_batch_of_images_is_refused(step, images, error, message):
    with pytest.raises(error, match=message):
        step(images, seeded())
    with pytest.raises(error, match=message):
        Recipe(train=(step,), test=()).apply("train", images, seeded())


@pytest.mark.parametrize("step", RANDOM, ids=name_of)
def test_a_random_step_asks_for_its_generator(step):
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator .* got None; make one with"):
        step(photos(), None)
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator .* got 7"):
        step(photos(), 7)


class GeneratorOnAGpu(torch.Generator):
    device = torch.device("cuda")


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(ValueError, match=r"generator must draw on the CPU, .* got one on cuda; make it with"):
        HorizontalFlip()(photos(), GeneratorOnAGpu())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PadAndCrop(-1, 8), "padding must not be negative, got -1"),
        (lambda: PadAndCrop(1, 0), "size must be at least 1 pixel, got 0"),
        (lambda: CenterCrop(0), "size must be at least 1 pixel, got 0"),
        (lambda: RandomContrast(1.8, 0.2), "lower and upper must satisfy .* got 1.8 and 0.2"),
        (lambda: RandomContrast(-1, 1), "lower and upper must satisfy .* got -1 and 1"),
        (lambda: RandomContrast(0, math.nan), "lower and upper must satisfy .* got 0 and nan"),
        (lambda: NormalizeChannels((0, 0), (1, 1, 1)), "mean and std must have one entry .* got 2 and 3 entries"),
        (lambda: NormalizeChannels((0, 0), (1, 0)), r"std must be positive and finite, got \(1, 0\)"),
        (lambda: PadAndCrop(4, 41)(photos(), seeded()), "size must be at most .* padded images, 40 x 40, got 41"),
        (lambda: PadAndCrop(0, 9)(photos(height=8, width=9), seeded()), "size must be at most .* 8 x 9, got 9"),
        (lambda: CenterCrop(33)(photos()), "size must be at most that of the images, 32 x 32, got 33; crop less"),
        (lambda: CIFAR10_CHANNELS(photos(channels=1).float()), "one entry per channel of the images, 1, got 3"),
        (lambda: find_recipe("imception"), "unknown recipe 'imception'; did you mean 'inception'"),
        (lambda: find_recipe("none").apply("eval", photos()), "mode must be 'train' or 'test', got 'eval'"),
        (lambda: find_recipe("pixel-permutation").apply("test", photos()), "indices and split must be given"),
        (
            lambda: pixel_order(torch.arange(2), 4, seed=0, split="valid"),
            "split must be 'train' or 'test', got 'valid'",
        ),
        (lambda: pixel_order(torch.arange(2), 4, seed=-1, split="test"), "seed must lie in 0 .. .* got -1"),
        (lambda: pixel_order(torch.arange(2), 4, seed=2**62, split="test"), "seed must lie in 0 .. .* got 4611"),
        (
            lambda: permute_pixels(photos(), torch.arange(5), seed=0, split="train"),
            r"indices must name one image each, shape \[6\], got \(5,\)",
        ),
        (
            lambda: permute_pixels(photos(2), torch.tensor([0, -1]), seed=0, split="train"),
            "indices must count from 0, got -1",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("indices", [torch.tensor([0.0, 1.0]), torch.tensor([True, False]), [0, 1]], ids=str)
def test_indices_that_are_no_whole_numbers_are_refused(indices):
    with pytest.raises(TypeError, match="indices must be a tensor of whole numbers, got"):
        permute_pixels(photos(2), indices, seed=0, split="train")


def test_bytes_are_not_normalised_before_they_are_scaled():
    with pytest.raises(TypeError, match=r"got uint8; put ToUnit\(\) first"):
        CIFAR10_CHANNELS(photos())
