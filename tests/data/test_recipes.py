"""Recipes: what a network gets to see, against the textbook."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from deepbilevel_lab.data.permutation import permute_pixels
from deepbilevel_lab.data.recipes import CIFAR10_CHANNELS, CIFAR100_CHANNELS, RECIPES, find_recipe, permuted, preact
from tests.data.steps import SIZES, apply, photos, seeded, standardize_slowly


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
