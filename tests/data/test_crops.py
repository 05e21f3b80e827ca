"""Crops are what they say they are: in size, place, shape and chance."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from deepbilevel_lab.data.decode import (
    decode_rgb,
    random_flip,
    random_resized_crop,
    resize_and_center_crop,
    resize_and_random_crop,
    side_needed,
    to_tensor,
)
from tests.data.photos import landscape, photo, seeded


def chi_square(values: list[float], low: float, high: float) -> float:
    counts = np.histogram(values, bins=10, range=(low, high))[0]
    assert counts.sum() == len(values)
    expected = len(values) / 10
    return float(((counts - expected) ** 2 / expected).sum())


UNLIKELY = 27.9  # chi-square with 9 degrees of freedom passes this by chance once in a thousand seeds


class Boxes:
    """Stands for an image of that size, and remembers the boxes that were resampled from it."""

    mode = "RGB"

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.size = width, height, (width, height)
        self.boxes: list[tuple[float, float, float, float]] = []

    def resize(self, size: tuple[int, int], _: object, box: tuple[float, float, float, float]) -> Image.Image:
        self.boxes.append(box)
        return Image.new("RGB", size)

    def shapes(self) -> tuple[list[float], list[float], list[float], list[float]]:
        """Width, height, and the places from left to right and top to bottom, as shares of the room there is."""
        rows = []
        for left, top, right, bottom in self.boxes:
            assert 0 <= left < right <= self.width
            assert 0 <= top < bottom <= self.height
            width, height = right - left, bottom - top
            rows.append((width, height, left / (self.width - width), top / (self.height - height)))
        return tuple(map(list, zip(*rows, strict=True)))


def test_boxes_are_uniform_in_area_place_and_the_logarithm_of_their_aspect():
    image, generator = Boxes(500, 480), seeded()
    for _ in range(2000):
        random_resized_crop(image, 1, area=(0.3, 0.6), generator=generator)
    widths, heights, lefts, tops = image.shapes()
    areas = [width * height / (500 * 480) for width, height in zip(widths, heights, strict=True)]
    aspects = [math.log(width / height) for width, height in zip(widths, heights, strict=True)]
    assert chi_square(areas, 0.3 - 1e-9, 0.6 + 1e-9) < UNLIKELY
    assert chi_square(aspects, math.log(3 / 4) - 1e-9, math.log(4 / 3) + 1e-9) < UNLIKELY
    assert chi_square(lefts, 0, 1) < UNLIKELY
    assert chi_square(tops, 0, 1) < UNLIKELY


def test_boxes_fit_into_images_of_any_shape_and_keep_their_limits_where_they_can():
    generator = seeded()
    for width, height in [(500, 375), (375, 500), (37, 51), (3, 3), (1, 1)]:
        image = Boxes(width, height)
        for _ in range(300):
            random_resized_crop(image, 1, generator=generator)
        for left, top, right, bottom in image.boxes:
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
            assert 0.3 - 1e-6 <= (right - left) * (bottom - top) / (width * height) <= 1
            assert 3 / 4 - 1e-6 <= (right - left) / (bottom - top) <= 4 / 3 + 1e-6


def test_the_aspect_is_width_over_height():
    image = Boxes(90, 60)
    for seed in range(50):
        random_resized_crop(image, 1, area=(0.1, 0.2), aspect=(2, 3), generator=seeded(seed))
    widths, heights, _, _ = image.shapes()
    assert all(2 - 1e-6 <= width / height <= 3 + 1e-6 for width, height in zip(widths, heights, strict=True))


@pytest.mark.parametrize(
    ("width", "height", "box"), [(1000, 30, (480, 0, 520, 30)), (30, 1000, (0, 480, 30, 520)), (900, 1, None)]
)
def test_of_a_strip_the_largest_box_in_the_middle_is_taken(width, height, box):
    image = Boxes(width, height)
    random_resized_crop(image, 4, generator=seeded())
    expected = box or (450 - 2 / 3, 0, 450 + 2 / 3, 1)
    assert image.boxes[0] == pytest.approx(expected)


def test_a_box_that_is_the_whole_image_at_its_own_size_copies_it():
    image = photo(24, 24)
    crop = random_resized_crop(image, 24, area=(1, 1), aspect=(1, 1), generator=seeded())
    assert torch.equal(crop, to_tensor(image))


def shrink_slowly(row: np.ndarray, start: float, stop: float, size: int) -> np.ndarray:
    """Average along the first axis with triangles as wide as the pixels of the result, two on each side."""
    scale = (stop - start) / size
    reach = max(scale, 1)
    centers = np.arange(len(row)) + 0.5
    result = []
    for number in range(size):
        weights = np.clip(1 - np.abs(centers - (start + (number + 0.5) * scale)) / reach, 0, None)
        result.append(np.tensordot(weights / weights.sum(), row, axes=1))
    return np.stack(result)


@pytest.mark.parametrize("size", [8, 20, 60])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_boxes_are_resampled_as_the_textbook_does_it(size, seed):
    image, recorded = photo(40, 30), Boxes(40, 30)
    random_resized_crop(recorded, size, generator=seeded(seed))
    left, top, right, bottom = recorded.boxes[0]
    pixels = np.asarray(image).astype(np.float64)
    columns = shrink_slowly(pixels.transpose(1, 0, 2), left, right, size).transpose(1, 0, 2)
    expected = shrink_slowly(columns, top, bottom, size).transpose(2, 0, 1)
    crop = random_resized_crop(image, size, generator=seeded(seed))
    assert (crop.dtype, crop.shape) == (torch.uint8, (3, size, size))
    np.testing.assert_allclose(crop.numpy(), expected, atol=1.6)  # Pillow rounds after each of the two directions


def test_the_centre_is_resized_and_cropped_by_hand():
    image = photo(8, 4)
    # The shorter side stays at 4, so the crop copies the middle 2 x 2 pixels.
    assert torch.equal(resize_and_center_crop(image, 4, 2), to_tensor(image)[:, 1:3, 3:5])
    recorded = Boxes(500, 400)
    resize_and_center_crop(recorded, 256, 224)
    assert recorded.boxes == [pytest.approx((75, 25, 425, 375))]  # 224 / 256 of 400 is 350


def test_resizing_only_the_crop_equals_resizing_everything_and_cropping():
    image = landscape(512, 768)
    everything = to_tensor(image.resize((256, 384), Image.Resampling.BILINEAR))[:, 80:304, 16:240]
    crop = resize_and_center_crop(image, 256, 224)
    assert (everything.float() - crop.float())[:, 1:-1, 1:-1].abs().max() <= 1  # a box does not look past its edge


def test_random_places_after_resizing_are_uniform():
    image, generator = Boxes(500, 400), seeded()
    for _ in range(1000):
        assert resize_and_random_crop(image, 256, 224, generator=generator).shape == (3, 224, 224)
    widths, heights, lefts, tops = image.shapes()
    assert widths == pytest.approx([350] * 1000)
    assert heights == pytest.approx([350] * 1000)
    assert chi_square(lefts, 0, 1) < UNLIKELY
    assert chi_square(tops, 0, 1) < UNLIKELY


def test_a_flip_mirrors_every_second_image_left_to_right():
    image, generator = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2), seeded()
    mirrored = 0
    for _ in range(400):
        result = random_flip(image, generator=generator)
        if not torch.equal(result, image):
            mirrored += 1
            assert result.flatten().tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]
    assert abs(mirrored - 200) < 40  # four standard deviations of 400 fair coins


CROPS = {
    "random_resized_crop": lambda image, generator: random_resized_crop(image, 7, generator=generator),
    "resize_and_random_crop": lambda image, generator: resize_and_random_crop(image, 20, 7, generator=generator),
}


@pytest.mark.parametrize("crop", CROPS.values(), ids=CROPS)
def test_the_generator_decides_and_torchs_own_is_taken_without_one(crop):
    image, generator = photo(), seeded()
    first, second = crop(image, generator), crop(image, generator)
    assert torch.equal(crop(image, seeded()), first)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(crop(image, None), first)
    assert torch.equal(crop(image, None), second)


@pytest.mark.parametrize("crop", CROPS.values(), ids=CROPS)
def test_as_many_numbers_are_drawn_for_one_image_as_for_another(crop):
    states = []
    for size in [(40, 30), (30, 40), (400, 9)]:
        generator = seeded()
        crop(photo(*size), generator)
        states.append(generator.get_state())
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


# Wrong arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: decode_rgb(b"", needed_side=0), "needed_side must be at least 1 pixel, got 0; None decodes at full"),
        (lambda: random_resized_crop(photo(), 0), "size must be at least 1 pixel, got 0"),
        (lambda: random_resized_crop(photo(), 8, area=(0, 1)), r"area must be two shares .* got \(0, 1\)"),
        (lambda: random_resized_crop(photo(), 8, area=(30, 100)), r"area must be two shares .* got \(30, 100\)"),
        (lambda: random_resized_crop(photo(), 8, aspect=(2, 1)), r"aspect must be two ratios .* got \(2, 1\)"),
        (lambda: side_needed(8, aspect=(0, 1)), r"aspect must be two ratios .* got \(0, 1\)"),
        (lambda: resize_and_center_crop(photo(), 224, 256), "size must be at most resize = 224, got 256"),
        (lambda: resize_and_random_crop(photo(), 224, 256), "size must be at most resize = 224, got 256"),
        (lambda: resize_and_center_crop(photo(), 0, 0), "resize must be at least 1 pixel, got 0"),
    ],
)
def test_wrong_values_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("image", ["a.jpg", b"", torch.zeros(3, 8, 8), np.zeros((8, 8, 3))], ids=type)
@pytest.mark.parametrize("crop", [*CROPS.values(), lambda image, _: to_tensor(image)])
def test_what_is_no_pillow_image_is_refused(crop, image):
    with pytest.raises(TypeError, match=r"image must be a Pillow image, got \w+; decode_rgb makes one of a file"):
        crop(image, seeded())
