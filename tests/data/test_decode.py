"""Image files of every kind become RGB, and damaged ones a clear message."""

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

from deepbilevel_lab.data.decode import (
    decode_rgb,
    random_resized_crop,
    side_needed,
    to_tensor,
)
from tests.data.photos import encoded, landscape, photo, pixel, seeded


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
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(OSError, match=r"secret\.png cannot be read: Permission denied; check its permissions"):
        decode_rgb(tmp_path / "secret.png")


@pytest.mark.parametrize(
    "content", [b"", b"image,label\na.jpg,3\n", b"\xff\xd8", b"\x89PNG\r\n\x1a\n"], ids=["empty", "text", "SOI", "PNG"]
)
def test_what_is_no_image_is_named_with_what_to_do(tmp_path, content):
    path = tmp_path / "notes.jpg"
    path.write_bytes(content)
    message = (
        rf"notes\.jpg \({len(content)} bytes\) (is not an image of a known format .*|cannot be decoded: .*); fetch the"
    )
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
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", exhausted)
    with pytest.raises(MemoryError):
        decode_rgb(b"")


def test_a_missing_pillow_is_reported_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"Pillow; run: pip install 'deepbilevel\[cli\]'"):
        decode_rgb(b"")


def test_the_module_itself_needs_no_pillow():
    code = "import sys; sys.modules['PIL'] = None; import deepbilevel_lab.data.decode"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
