"""Views: what they cut out, at which size, and where their randomness comes from."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from deepbilevel_lab.data.decode import resize_and_center_crop
from deepbilevel_lab.data.views import VIEWS, RandomArea, ResizedCrop, Thumbnail, View, find_view

SIZES = [(64, 48), (48, 64), (40, 40), (200, 20)]
RANDOM_VIEWS = ["random-area", "resized-crop"]
EVERY_VIEW = pytest.mark.parametrize("name", VIEWS)
RANDOM_VIEW = pytest.mark.parametrize("name", RANDOM_VIEWS)


def ramp(width, height):
    """Return an image whose red grows to the right and whose green grows downwards."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)[None]
    pixels[..., 1] = np.linspace(0, 255, height)[:, None]
    return Image.fromarray(pixels)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@EVERY_VIEW
@pytest.mark.parametrize("mode", ["train", "test", "crops"])
@pytest.mark.parametrize("shape", SIZES)
def test_every_view_gives_bytes_of_its_size_for_images_of_any_shape(name, mode, shape):
    view = find_view(name, 24)
    crop = view(ramp(*shape), mode, seeded())
    assert crop.dtype == torch.uint8
    assert crop.shape == (3, view.size, view.size)


def test_the_sizes_a_view_has_and_needs():
    assert [find_view(name, 224).size for name in VIEWS] == [224, 224, 32]
    assert find_view("random-area", 227).needed_side == 479
    assert find_view("resized-crop", 224).needed_side == 256
    assert find_view("resized-crop", 227).needed_side == 259
    assert find_view("thumbnail", 28).needed_side == 32


@EVERY_VIEW
def test_the_same_seed_gives_the_same_crop_whatever_torchs_own_numbers(name):
    view, image = find_view(name, 24), ramp(64, 48)
    crops = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        crops.append(view(image, "train", seeded(7)))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*crops)


@RANDOM_VIEW
@pytest.mark.parametrize("mode", ["train", "crops"])
def test_training_and_averaged_crops_are_random(name, mode):
    view, image, generator = find_view(name, 24), ramp(64, 48), seeded()
    assert len({view(image, mode, generator).numpy().tobytes() for _ in range(20)}) > 10


@EVERY_VIEW
def test_testing_draws_nothing(name):
    generator = seeded()
    before = generator.get_state()
    find_view(name, 24)(ramp(64, 48), "test", generator)
    assert torch.equal(before, generator.get_state())


@RANDOM_VIEW
def test_training_crops_are_mirrored_half_of_the_time_and_averaged_crops_never(name):
    view, image, generator = find_view(name, 24), ramp(64, 48), seeded()

    def mirrored(mode):
        crops = [view(image, mode, generator)[0].float() for _ in range(200)]
        return sum(bool(red[:, 0].mean() > red[:, -1].mean()) for red in crops) / 200

    assert 0.35 < mirrored("train") < 0.65
    assert mirrored("crops") == 0


@RANDOM_VIEW
def test_a_training_crop_is_an_averaged_crop_that_may_be_mirrored(name):
    view, image = find_view(name, 24), ramp(64, 48)
    for seed in range(20):
        plain = view(image, "crops", seeded(seed))
        trained = view(image, "train", seeded(seed))
        assert torch.equal(trained, plain) or torch.equal(trained, plain.flip(-1))


@RANDOM_VIEW
@pytest.mark.parametrize("mode", ["train", "crops"])
def test_how_much_is_drawn_does_not_depend_on_the_image(name, mode):
    states = []
    for shape in SIZES:
        generator = seeded()
        find_view(name, 24)(ramp(*shape), mode, generator)
        states.append(generator.get_state())
    assert all(torch.equal(states[0], state) for state in states[1:])


@pytest.mark.parametrize("name", RANDOM_VIEWS)
def test_testing_sees_the_middle_seven_eighths(name):
    image = ramp(64, 48)
    assert torch.equal(find_view(name, 28)(image, "test", seeded()), resize_and_center_crop(image, 32, 28))
    # 7/8 of 48 are 42 pixels, of which the middle is the image's.
    crop = find_view(name, 42)(image, "test", seeded())
    assert torch.equal(crop, torch.from_numpy(np.array(image)).permute(2, 0, 1)[:, 3:45, 11:53])


def test_resized_crops_keep_the_scale_and_random_areas_do_not():
    image, generator = ramp(80, 80), seeded()

    def extents(view):
        reds = [view(image, "crops", generator)[0].float() for _ in range(100)]
        return torch.tensor([float(red[0, -1] - red[0, 0]) for red in reds])

    kept, random = extents(ResizedCrop(35)), extents(RandomArea(35))
    assert kept.max() - kept.min() < 10
    assert random.max() - random.min() > 60
    assert random.min() > 255 * 0.4  # 30 % of the area at the narrowest aspect is 47 % of the width


def test_a_thumbnail_is_the_middle_square_in_every_mode():
    image = ramp(64, 32)
    expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)[:, :, 16:48]
    for mode in ("train", "test", "crops"):
        assert torch.equal(Thumbnail()(image, mode, seeded()), expected)


@EVERY_VIEW
def test_views_are_values_that_travel_to_workers(name):
    view = find_view(name, 24)
    assert pickle.loads(pickle.dumps(view)) == view == find_view(name, 24)
    assert isinstance(view, View)


def test_unknown_views_get_the_nearest_one():
    with pytest.raises(ValueError, match="unknown view 'random_area'; did you mean 'random-area'"):
        find_view("random_area", 24)
