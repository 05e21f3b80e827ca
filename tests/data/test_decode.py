"""Image files of every kind become RGB, damaged ones a clear message, and crops are what they say they are."""

import io
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deepbilevel.data.decode import (
    decode_rgb,
    random_crop,
    random_flip,
    random_resized_crop,
    resize_and_center_crop,
    resize_and_random_crop,
    side_needed,
    to_tensor,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photo(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    pixels = np.random.RandomState(seed).randint(0, 256, size=(height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def landscape(width: int, height: int) -> Image.Image:
    """A smooth image, of which a JPEG keeps almost everything."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(7 * x + 3 * y), np.cos(9 * y), np.sin(12 * x * y)]
    return Image.fromarray((127 + 100 * np.stack(waves, axis=2)).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    return tuple(to_tensor(image)[:, y, x].tolist())


def chi_square(values: list[float], low: float, high: float) -> float:
    counts = np.histogram(values, bins=10, range=(low, high))[0]
    assert counts.sum() == len(values)
    expected = len(values) / 10
    return float(((counts - expected) ** 2 / expected).sum())


UNLIKELY = 27.9  # chi-square with 9 degrees of freedom passes this by chance once in a thousand seeds


# Decoding


@pytest.mark.parametrize("give", [lambda path: path, str, lambda path: path.read_bytes()], ids=["path", "str", "bytes"])
def test_a_lossless_file_comes_back_pixel_by_pixel(tmp_path, give):
    photo().save(tmp_path / "a.png")
    image = decode_rgb(give(tmp_path / "a.png"))
    assert (image.mode, image.size) == ("RGB", (40, 30))
    np.testing.assert_array_equal(np.asarray(image), np.asarray(photo()))
    tensor = to_tensor(image)
    assert (tensor.dtype, tensor.shape, tensor.is_contiguous()) == (torch.uint8, (3, 30, 40), True)
    np.testing.assert_array_equal(tensor.permute(1, 2, 0).numpy(), np.asarray(photo()))


def test_tensors_share_no_memory_with_the_image():
    image = photo()
    to_tensor(image).zero_()
    assert to_tensor(image).any()


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF", "PPM"])
@pytest.mark.parametrize("mode", ["1", "L"])
def test_grey_images_get_three_equal_channels(kind, mode):
    grey = Image.new(mode, (2, 1))
    grey.putpixel((1, 0), 255)
    tensor = to_tensor(decode_rgb(encoded(grey, kind)))
    assert tensor.tolist() == [[[0, 255]]] * 3


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "PNG"), ("I;16", "TIFF"), ("I;16B", "TIFF"), ("I", "TIFF")])
def test_of_16_bits_the_upper_eight_are_kept(mode, kind):
    values = [0, 255, 256, 32768, 65535]
    deep = Image.new(mode, (5, 1))
    for x, value in enumerate(values):
        deep.putpixel((x, 0), value)
    tensor = to_tensor(decode_rgb(encoded(deep, kind)))
    assert tensor.tolist() == [[[0, 0, 1, 128, 255]]] * 3


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_becomes_the_colour_it_prints(kind):
    inks = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # magenta and yellow
    assert pixel(decode_rgb(encoded(inks, kind)), 8, 8) == pytest.approx((255, 0, 0), abs=3)
    assert pixel(decode_rgb(encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 255)), kind)), 8, 8) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["YCbCr", "HSV", "RGBX"])
def test_other_colour_spaces_are_converted(mode):
    red = Image.new("RGB", (2, 2), (254, 0, 0)).convert(mode)
    assert pixel(red) == pytest.approx((254, 0, 0), abs=2)


def test_transparent_images_are_laid_on_white():
    clear = Image.new("RGBA", (3, 1))
    for x, colour in enumerate([(255, 0, 0, 255), (255, 0, 0, 128), (0, 0, 0, 0)]):
        clear.putpixel((x, 0), colour)
    for image in (clear, decode_rgb(encoded(clear, "PNG"))):
        assert [pixel(image, x) for x in range(3)] == [(255, 0, 0), (255, 127, 127), (255, 255, 255)]
    assert pixel(decode_rgb(encoded(Image.new("LA", (1, 1), (0, 0)), "PNG"))) == (255, 255, 255)
    assert pixel(Image.new("La", (1, 1), (0, 0))) == (255, 255, 255)


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])], ids=["one colour", "a table"])
def test_transparent_palette_entries_are_laid_on_white_without_a_warning(transparency):
    palette = Image.new("P", (3, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for x in range(3):
        palette.putpixel((x, 0), x)
    image = decode_rgb(encoded(palette, "PNG", transparency=transparency))
    assert [pixel(image, x) for x in range(3)] == [(10, 20, 30), (255, 255, 255), (70, 80, 90)]
    opaque = decode_rgb(encoded(palette, "GIF"))
    assert [pixel(opaque, x) for x in range(3)] == [(10, 20, 30), (40, 50, 60), (70, 80, 90)]


def test_a_colour_declared_transparent_is_laid_on_white():
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (4, 5, 6))
    decoded = decode_rgb(encoded(image, "PNG", transparency=(1, 2, 3)))
    assert [pixel(decoded, x) for x in range(2)] == [(255, 255, 255), (4, 5, 6)]


def test_the_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixel(decode_rgb(content)) == (255, 0, 0)


def test_an_orientation_noted_by_the_camera_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn me by 90 degrees"
    content = encoded(landscape(64, 32), "JPEG", exif=exif)
    with Image.open(io.BytesIO(content)) as stored:
        assert stored.getexif()[0x0112] == 6
    assert decode_rgb(content).size == (64, 32)


# Decoding at a fraction of the size


@pytest.mark.parametrize(
    ("needed", "size"),
    [(None, (800, 640)), (161, (800, 640)), (160, (400, 320)), (80, (200, 160)), (40, (100, 80)), (1, (100, 80))],
)
def test_large_jpegs_are_decoded_smaller_but_no_smaller_than_twice_what_is_needed(needed, size):
    assert decode_rgb(encoded(landscape(800, 640), "JPEG"), needed_side=needed).size == size


def test_other_files_are_decoded_at_full_size():
    assert decode_rgb(encoded(landscape(800, 640), "PNG"), needed_side=10).size == (800, 640)


def test_a_crop_of_an_image_decoded_smaller_shows_the_same():
    content = encoded(landscape(800, 640), "JPEG", quality=95)
    full, small = (
        random_resized_crop(decode_rgb(content, needed_side=needed), 60, generator=seeded())
        for needed in (None, side_needed(60))
    )
    assert decode_rgb(content, needed_side=side_needed(60)).size == (400, 320)
    assert (full.float() - small.float()).abs().mean() < 1


@given(
    st.integers(1, 300),
    st.floats(0.05, 1),
    st.floats(0.3, 3),
    st.integers(1, 4000),
    st.integers(1, 4000),
)
def test_no_box_of_an_image_with_the_needed_side_is_smaller_than_the_crop(size, area, aspect, width, height):
    low, high = min(aspect, 1), max(aspect, 1)
    grow = max(1, side_needed(size, area=(area, 1), aspect=(low, high)) / min(width, height))
    for ratio in (low, high):
        pixels = area * (width * grow) * (height * grow)
        assert min(math.sqrt(pixels * ratio), math.sqrt(pixels / ratio)) >= size * (1 - 1e-9)


# Files that cannot be read


def test_a_missing_file_is_named_with_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg does not exist; correct the path, or fetch the data set"):
        decode_rgb(tmp_path / "gone.jpg")


def test_a_folder_is_no_image(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of an image file"):
        decode_rgb(tmp_path)


def test_a_file_that_the_system_refuses_is_named(tmp_path, monkeypatch):
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match=r"secret\.png cannot be read: Permission denied; check its permissions"):
        decode_rgb(tmp_path / "secret.png")


@pytest.mark.parametrize(
    "content", [b"", b"image,label\na.jpg,3\n", b"\xff\xd8", b"\x89PNG\r\n\x1a\n"], ids=["empty", "text", "SOI", "PNG"]
)
def test_what_is_no_image_is_named_with_what_to_do(tmp_path, content):
    path = tmp_path / "notes.jpg"
    path.write_bytes(content)
    message = rf"notes\.jpg \({len(content)} bytes\) (is not an image Pillow can read|cannot be decoded: .*); fetch the"
    with pytest.raises(ValueError, match=message):
        decode_rgb(path)
    with pytest.raises(ValueError, match=rf"the content \({len(content)} bytes\)"):
        decode_rgb(content)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_named_with_what_to_do(tmp_path, kind, kept):
    content = encoded(photo(200, 150), kind)
    path = tmp_path / "half.img"
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=r"half\.img .*; fetch the file again, or leave it out of the data set"):
        decode_rgb(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP"])
@given(data=st.data())
def test_a_damaged_file_is_decoded_or_refused_but_never_a_surprise(kind, data):
    content = bytearray(encoded(landscape(24, 16), kind))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what it could mend
        try:
            outcome = decode_rgb(bytes(content)).mode
        except ValueError as error:
            outcome = str(error)
    assert outcome == "RGB" or outcome.startswith("the content (")


@pytest.mark.parametrize(
    ("mode", "value", "message"),
    [("F", 0.5, "its pixels are floating point, of unknown range"), ("I", 70000, "70000, need more than 16 bits")],
)
def test_pixels_of_unknown_range_are_refused(mode, value, message):
    with pytest.raises(ValueError, match=message):
        decode_rgb(encoded(Image.new(mode, (2, 2), value), "TIFF"))


def test_running_out_of_memory_is_not_blamed_on_the_file(monkeypatch):
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", exhausted)
    with pytest.raises(MemoryError):
        decode_rgb(b"")


def test_a_missing_pillow_is_reported_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"Pillow; run: pip install 'deepbilevel\[cli\]'"):
        decode_rgb(b"")


def test_the_module_itself_needs_no_pillow():
    code = "import sys; sys.modules['PIL'] = None; import deepbilevel.data.decode"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Crops


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


def test_a_random_crop_copies_pixels_from_every_place_equally_often():
    image, generator = photo(12, 11), seeded()
    pixels = to_tensor(image)
    places = {pixels[:, y : y + 8, x : x + 8].numpy().tobytes(): (x, y) for x in range(5) for y in range(4)}
    counts = dict.fromkeys(places.values(), 0)
    for _ in range(2000):
        counts[places[random_crop(image, 8, generator=generator).numpy().tobytes()]] += 1
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 43.8  # 19 degrees of freedom


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
    "random_crop": lambda image, generator: random_crop(image, 7, generator=generator),
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
        (lambda: random_crop(photo(), 31), "size must be at most that of the image, 40 x 30, got 31; crop less, or"),
        (lambda: random_crop(photo(), 0), "size must be at least 1 pixel, got 0"),
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
