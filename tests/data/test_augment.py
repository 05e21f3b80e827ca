"""Augmentation does to every image what the textbook does to one, and nothing else."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from deepbilevel.data.augment import CIFAR10_CHANNELS, CIFAR100_CHANNELS, RECIPES, Recipe, find_recipe, permuted, preact
from deepbilevel.data.augmentation import (
    CenterCrop,
    HorizontalFlip,
    NormalizeChannels,
    PadAndCrop,
    RandomBrightness,
    RandomContrast,
    Standardize,
    ToUnit,
    permute_pixels,
)
from deepbilevel.data.augmentation.permutation import pixel_order

GEOMETRY = [PadAndCrop(padding=4, size=29), CenterCrop(28), HorizontalFlip()]
INTENSITY = [RandomContrast(), RandomBrightness(), Standardize(), ToUnit()]
RANDOM = [PadAndCrop(padding=4, size=29), HorizontalFlip(), RandomContrast(), RandomBrightness()]
STEPS = [*GEOMETRY, *INTENSITY]
SIZES = {"none": 32, "cifarnet": 28, "inception": 29, "inception-28": 28, "pixel-permutation": 29}
SIZES |= {"preact": 32, "preact-cifar100": 32, "imagenet": 32}


def photos(count: int = 6, *, channels: int = 3, height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    pixels = np.random.RandomState(seed).randint(0, 256, size=(count, channels, height, width))
    return torch.from_numpy(pixels.astype(np.uint8))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def name_of(value: object) -> str:
    return type(value).__name__


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def apply(recipe: Recipe, mode: str, images: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return recipe.apply(mode, images, seeded(seed), indices=torch.arange(len(images)), split="train")


# Crops and flips


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


# Values


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


def test_brightness_adds_one_number_per_image_up_to_the_limit_either_way():
    images = photos(2000, height=4, width=4)
    added = RandomBrightness(63)(images, seeded()) - images
    deltas = added[:, 0, 0, 0]
    torch.testing.assert_close(added, deltas[:, None, None, None].expand_as(added), atol=1e-4, rtol=0)
    assert -63 <= deltas.min() < -62.5
    assert 62.5 < deltas.max() <= 63
    assert chi_square(np.histogram(deltas.numpy(), bins=10, range=(-63, 63))[0]) < 27.9


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


def standardize_slowly(image: np.ndarray) -> np.ndarray:
    image = image.astype(np.float64)
    return (image - image.mean()) / max(image.std(), 1 / math.sqrt(image.size))


@pytest.mark.parametrize("scale", [1, 255, 1e4])
def test_standardising_equals_the_textbook_image_by_image(scale):
    images = photos(20, height=7, width=9).float() / 255 * scale + scale
    expected = np.stack([standardize_slowly(image) for image in images.numpy()])
    np.testing.assert_allclose(Standardize()(images).numpy(), expected, atol=2e-5)


def test_brightness_makes_no_difference_to_what_is_standardised():
    images = photos()
    bright = RandomBrightness(63)(images, seeded())
    assert (bright - images).abs().min() > 0.1
    torch.testing.assert_close(Standardize()(bright), Standardize()(images), atol=2e-5, rtol=0)


def test_bytes_are_scaled_to_the_unit_interval_and_floats_are_there_already():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 1, 1, 3)
    assert ToUnit()(images).flatten().tolist() == pytest.approx([0, 0.2, 1])
    assert ToUnit()(images.double() / 255).flatten().tolist() == pytest.approx([0, 0.2, 1])


def test_channels_are_normalised_by_hand():
    images = torch.tensor([0.5, 1.0]).reshape(1, 2, 1, 1)
    assert NormalizeChannels((0.5, 0.2), (0.1, 0.4))(images).flatten().tolist() == pytest.approx([0, 2])


# What all steps have in common


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


# Permuted pixels


def pixels_numbered(count: int, *, height: int = 4, width: int = 6) -> torch.Tensor:
    numbers = torch.arange(height * width).reshape(1, 1, height, width)
    return torch.cat([numbers, numbers + 100, numbers + 200], dim=1).to(torch.uint8).repeat(count, 1, 1, 1)


def test_every_pixel_moves_once_with_all_its_channels():
    result = permute_pixels(pixels_numbered(40), torch.arange(40), seed=0, split="train").long()
    assert result.shape == (40, 3, 4, 6)
    assert torch.equal(result[:, 0].flatten(1).sort().values, torch.arange(24).expand(40, 24))
    assert torch.equal(result[:, 1], result[:, 0] + 100)
    assert torch.equal(result[:, 2], result[:, 0] + 200)


def test_an_image_keeps_its_order_whatever_the_batch():
    images = photos(100)
    all_at_once = permute_pixels(images, torch.arange(100), seed=3, split="train")
    batch = torch.tensor([99, 5, 42, 5])
    for dtype in (torch.int64, torch.int32, torch.uint8):
        part = permute_pixels(images[batch], batch.to(dtype), seed=3, split="train")
        assert torch.equal(part, all_at_once[batch])


def test_orders_differ_between_images_seeds_and_splits():
    indices = torch.arange(50)
    orders = {
        tuple(order)
        for seed in (0, 1, 2, 2**62 - 1)
        for split in ("train", "test")
        for order in pixel_order(indices, 24, seed=seed, split=split).tolist()
    }
    assert len(orders) == 50 * 4 * 2


def order_slowly(seed: int, split: int, index: int, num_pixels: int) -> list[int]:
    """SplitMix64 with Python's unbounded integers, written from its definition."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(number: int) -> int:
        number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & mask
        number = (number ^ (number >> 27)) * 0x94D049BB133111EB & mask
        return number ^ (number >> 31)

    def signed(number: int) -> int:
        return number - 2**64 if number >= 2**63 else number

    stream = mix(mix((2 * seed + split) & mask) + golden * index & mask)
    numbers = [signed(mix(stream + golden * pixel & mask)) for pixel in range(1, num_pixels + 1)]
    low_bits = (num_pixels - 1).bit_length()  # where pixels are numbered instead
    return sorted(range(num_pixels), key=lambda pixel: (numbers[pixel] >> low_bits, pixel))


@pytest.mark.parametrize("seed", [0, 1, 2018, 2**62 - 1])
def test_orders_equal_the_textbook_generator(seed):
    indices = [0, 1, 49999, 2**40]
    for number, split in enumerate(("train", "test")):
        for num_pixels in (1, 2, 64, 65, 1024):
            orders = pixel_order(torch.tensor(indices), num_pixels, seed=seed, split=split)
            assert orders.tolist() == [order_slowly(seed, number, index, num_pixels) for index in indices]


def test_the_generator_is_splitmix64():
    # The first numbers of its stream from state 1234567, as its published test vectors give them.
    from deepbilevel.data.augmentation.permutation import _GOLDEN, _mix

    numbers = _mix(1234567 + _GOLDEN * torch.arange(1, 4))
    assert [number % 2**64 for number in numbers.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_orders_are_those_of_earlier_versions():
    orders = pixel_order(torch.tensor([0, 1]), 8, seed=0, split="train")
    assert orders.tolist() == [[7, 0, 3, 2, 4, 6, 5, 1], [0, 3, 1, 6, 4, 5, 7, 2]]


def test_every_pixel_goes_everywhere_equally_often():
    orders = pixel_order(torch.arange(6400), 16, seed=0, split="train")
    counts = torch.zeros(16, 16).index_put_(
        (torch.arange(16).expand_as(orders), orders), torch.ones(1), accumulate=True
    )
    assert chi_square(counts.numpy()) < 307  # about 15 x 15 degrees of freedom; 295 once in a thousand seeds


def test_the_orders_of_two_neighbours_have_nothing_in_common():
    orders = pixel_order(torch.arange(2001), 1024, seed=0, split="train")
    fixed_points = (orders[1:] == orders[:-1]).sum(dim=1).double()  # of two random orders: one on average, variance one
    assert abs(fixed_points.mean() - 1) < 4 / math.sqrt(2000)


def test_an_empty_batch_is_permuted_to_an_empty_one():
    assert permute_pixels(photos(0), torch.arange(0), seed=0, split="test").shape == (0, 3, 32, 32)


def test_pixels_are_permuted_on_the_device_of_the_images():
    result = permute_pixels(photos(2).to("meta"), torch.arange(2), seed=0, split="test")
    assert (result.device.type, result.shape, result.dtype) == ("meta", (2, 3, 32, 32), torch.uint8)


def test_permuting_keeps_type_values_and_layouts_meaning():
    images = photos(4)
    expected = permute_pixels(images, torch.arange(4), seed=0, split="test")
    last = permute_pixels(images.contiguous(memory_format=torch.channels_last), torch.arange(4), seed=0, split="test")
    assert torch.equal(last, expected)
    assert torch.equal(permute_pixels(images.half(), torch.arange(4), seed=0, split="test"), expected.half())


# Recipes


def test_the_catalog_has_a_size_for_every_recipe():
    assert set(RECIPES) == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("mode", ["train", "test"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_recipe_makes_float32_images_of_the_size_its_network_wants(name, mode, dtype):
    images = photos()
    before = images.clone()
    result = apply(find_recipe(name), mode, images if dtype == torch.uint8 else images.float() / 255)
    assert result.shape == (6, 3, SIZES[name], SIZES[name])
    assert result.dtype == torch.float32
    # The network sees bytes and floats of the same images alike.
    torch.testing.assert_close(result, apply(find_recipe(name), mode, images), atol=1e-4, rtol=1e-4)
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", SIZES)
def test_training_is_random_where_it_should_be_and_testing_never(name):
    images, recipe = photos(), find_recipe(name)
    random = not torch.equal(apply(recipe, "train", images, seed=0), apply(recipe, "train", images, seed=1))
    assert random == (name not in {"none", "cifarnet", "imagenet"})
    tested = recipe.apply("test", images, indices=torch.arange(6), split="test")
    assert torch.equal(recipe.apply("test", images, seeded(1), indices=torch.arange(6), split="test"), tested)


def inception_slowly(images: np.ndarray, generator: torch.Generator, size: int) -> np.ndarray:
    """Image by image in float64, with the random numbers in the order in which the recipe draws them."""
    count = len(images)
    places = images.shape[2] + 8 - size + 1
    tops, lefts = (torch.randint(places, (count,), generator=generator).tolist() for _ in range(2))
    coins, factors = (torch.rand(count, generator=generator).tolist() for _ in range(2))
    results = []
    for image, top, left, coin, factor in zip(images, tops, lefts, coins, factors, strict=True):
        padded = np.zeros((3, image.shape[1] + 8, image.shape[2] + 8))
        padded[:, 4:-4, 4:-4] = image
        crop = padded[:, top : top + size, left : left + size]
        if coin < 0.5:
            crop = crop[:, :, ::-1]
        mean = crop.mean(axis=(1, 2), keepdims=True)
        results.append(standardize_slowly((crop - mean) * (0.2 + 1.6 * factor) + mean))
    return np.stack(results)


@pytest.mark.parametrize(("name", "size"), [("inception", 29), ("inception-28", 28)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_inception_recipe_equals_the_textbook_image_by_image(name, size, seed):
    images = photos(64, seed=seed)
    expected = inception_slowly(images.numpy(), seeded(seed), size)
    np.testing.assert_allclose(find_recipe(name).apply("train", images, seeded(seed)).numpy(), expected, atol=2e-5)


def test_the_cifarnet_recipe_is_the_standardised_centre_for_training_and_testing():
    images = photos()
    expected = np.stack([standardize_slowly(image[:, 2:30, 2:30]) for image in images.numpy()])
    for mode in ("train", "test"):
        np.testing.assert_allclose(find_recipe("cifarnet").apply(mode, images).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "black", "white"),
    [
        ("preact", [-0.4914 / 0.2470, -0.4822 / 0.2435, -0.4465 / 0.2616], [2.05911, 2.12649, 2.11583]),
        ("preact-cifar100", [-0.5071 / 0.2673, -0.4865 / 0.2564, -0.4409 / 0.2762], [1.84400, 2.00273, 2.02426]),
    ],
)
def test_the_preact_recipe_normalises_black_and_white_as_computed_by_hand(name, black, white):
    images = torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 3, 32, 32)
    result = find_recipe(name).apply("test", images)
    torch.testing.assert_close(result[0, :, 5, 5], torch.tensor(black))
    torch.testing.assert_close(result[1, :, 5, 5], torch.tensor(white), atol=1e-5, rtol=0)


def test_the_preact_recipe_pads_with_black_before_it_normalises():
    white = torch.full((200, 3, 32, 32), 255, dtype=torch.uint8)
    values = find_recipe("preact").apply("train", white, seeded())[:, 0].unique()
    torch.testing.assert_close(values, torch.tensor([-0.4914 / 0.2470, (1 - 0.4914) / 0.2470]))


def test_the_permuted_recipe_is_the_inception_recipe_on_permuted_images():
    images, indices = photos(), torch.tensor([9, 3, 7, 1, 0, 4])
    for mode in ("train", "test"):
        scrambled = permute_pixels(images, indices, seed=0, split="train")
        expected = find_recipe("inception").apply(mode, scrambled, seeded())
        result = find_recipe("pixel-permutation").apply(mode, images, seeded(), indices=indices, split="train")
        assert torch.equal(result, expected)


def test_a_training_image_keeps_its_order_when_it_is_evaluated():
    # No crop, so that nothing but the order is left: training and evaluation see the same image.
    recipe, images = permuted(find_recipe("none"), seed=5), photos()
    indices = torch.arange(6)
    trained = recipe.apply("train", images, indices=indices, split="train")
    assert torch.equal(recipe.apply("test", images, indices=indices, split="train"), trained)
    assert not torch.equal(recipe.apply("test", images, indices=indices, split="test"), trained)


def test_recipes_are_values():
    assert preact(CIFAR100_CHANNELS) == find_recipe("preact-cifar100") != preact(CIFAR10_CHANNELS)
    assert permuted(find_recipe("inception"), 0) == find_recipe("pixel-permutation")
    assert len({*RECIPES.values()}) == len(RECIPES)
    with pytest.raises(FrozenInstanceError):
        find_recipe("none").train = ()
    with pytest.raises(TypeError):
        RECIPES["none"] = find_recipe("preact")


@pytest.mark.parametrize("name", SIZES)
def test_recipes_work_on_channels_last_images(name):
    images, recipe = photos(), find_recipe(name)
    last = images.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(apply(recipe, "train", last), apply(recipe, "train", images), atol=1e-5, rtol=1e-5)


# Wrong arguments


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
        (lambda: RandomBrightness(-3), "max_delta must be finite and not negative, got -3"),
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
