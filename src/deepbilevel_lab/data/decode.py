"""Image files, decoded to RGB and cropped to what a network wants. The only file that reads images with Pillow.

Every crop is a box of the image, resampled in one go (bilinear, antialiased where it shrinks): pixels outside the box
are never resized. Boxes may begin and end within a pixel. Random crops draw the same number of random numbers whatever
the image; without a generator they draw from torch's own, which a ``DataLoader`` seeds for each worker.
"""

import io
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from deepbilevel_lab.regular_files import read_regular

if TYPE_CHECKING:
    from PIL.Image import Image

_ATTEMPTS = 10
# Pillow looks at the content, not at the name, and hands PostScript to another program.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_REMEDY = "fetch the file again, or leave it out of the data set"


def decode_rgb(source: str | os.PathLike[str] | bytes, *, needed_side: int | None = None) -> "Image":
    """Decode an image file, or the bytes of one, to an RGB image of 8 bits per channel.

    Transparent images are laid on white, as a browser shows them: the colours under transparent pixels are arbitrary.
    Of 16 bits per pixel the upper eight are kept. Of an animation, the first frame. An orientation noted by the camera
    is not applied: annotations and published results of the usual data sets refer to the pixels as they are stored.

    Args:
        source: the path of a file, or its content.
        needed_side: the shorter side that is wanted in the end. A JPEG of four times that or more is decoded at 1/2,
            1/4 or 1/8 of its size, which is faster; at least twice ``needed_side`` is kept, so that antialiasing is
            still Pillow's. See :func:`side_needed` for random resized crops.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError("reading image files needs Pillow; run: pip install 'deepbilevel[cli]'") from error
    if needed_side is not None and needed_side < 1:
        raise ValueError(f"needed_side must be at least 1 pixel, got {needed_side}; None decodes at full size")
    name, content = _read(source)
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if needed_side is not None:
                image.draft(None, (2 * needed_side, 2 * needed_side))
            image.load()
            return _to_rgb(image)
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{name} ({len(content):,} bytes) is not an image of a known format ({', '.join(_FORMATS)}); {_REMEDY}"
        ) from error
    except MemoryError:
        raise
    # Pillow's readers raise whatever they trip over: OSError, SyntaxError, EOFError, struct.error and more.
    except Exception as error:
        raise ValueError(f"{name} ({len(content):,} bytes) cannot be decoded: {error}; {_REMEDY}") from error


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return width and height as the head of a file states them; nothing is decoded."""
    from PIL import Image

    name, content = _read(path)
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            return image.size
    except Exception as error:  # as in decode_rgb
        raise ValueError(f"{name} ({len(content):,} bytes) is not an image: {error}; {_REMEDY}") from error


def to_tensor(image: "Image") -> Tensor:
    """Return the pixels of an image: uint8, ``[3, height, width]``."""
    _check_image(image)
    pixels = np.array(image if image.mode == "RGB" else _to_rgb(image))
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def random_resized_crop(
    image: "Image",
    size: int,
    *,
    area: tuple[float, float] = (0.3, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    generator: torch.Generator | None = None,
) -> Tensor:
    """Cut out a random box and resample it to ``[3, size, size]``.

    Args:
        image: see :func:`decode_rgb`.
        size: the side of the result.
        area: the box's share of the image's area, uniform between these two.
        aspect: the box's width divided by its height, uniform in its logarithm between these two.
        generator: where to draw from; torch's own if not given.

    A box that does not fit is drawn again; after ten that did not (the image is very wide or very high), the largest
    box of an allowed aspect in the middle is taken.
    """
    _check_image(image)
    _check_size("size", size)
    _check_box(area, aspect)
    for draws in torch.rand(_ATTEMPTS, 4, generator=generator, dtype=torch.float32, device="cpu").tolist():
        pixels = image.width * image.height * (area[0] + draws[0] * (area[1] - area[0]))
        ratio = aspect[0] * (aspect[1] / aspect[0]) ** draws[1]
        width, height = math.sqrt(pixels * ratio), math.sqrt(pixels / ratio)
        if width <= image.width and height <= image.height:
            return _resample(image, width, height, at=(draws[2], draws[3]), size=size)
    width = min(image.width, image.height * aspect[1])
    height = min(image.height, image.width / aspect[0])
    return _resample(image, width, height, at=(0.5, 0.5), size=size)


def side_needed(
    size: int, *, area: tuple[float, float] = (0.3, 1.0), aspect: tuple[float, float] = (3 / 4, 4 / 3)
) -> int:
    """Return the shorter side an image needs for no :func:`random_resized_crop` of it to be enlarged.

    >>> side_needed(227)
    479
    """
    _check_size("size", size)
    _check_box(area, aspect)
    return math.ceil(size / math.sqrt(area[0] * min(aspect[0], 1 / aspect[1])))


def resize_and_center_crop(image: "Image", resize: int, size: int) -> Tensor:
    """Return the middle ``[3, size, size]`` of the image resized to ``resize`` at its shorter side."""
    side = _side_before_resizing(image, resize, size)
    return _resample(image, side, side, at=(0.5, 0.5), size=size)


def resize_and_random_crop(
    image: "Image", resize: int, size: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Return a random ``[3, size, size]`` of the image resized to ``resize`` at its shorter side."""
    side = _side_before_resizing(image, resize, size)
    left, top = torch.rand(2, generator=generator, dtype=torch.float32, device="cpu").tolist()
    return _resample(image, side, side, at=(left, top), size=size)


def random_flip(image: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Return the image ``[3, H, W]`` mirrored left to right, with probability one half."""
    mirrored = torch.rand(1, generator=generator, dtype=torch.float32, device="cpu").item() < 0.5
    return image.flip(-1) if mirrored else image


def _read(source: str | os.PathLike[str] | bytes) -> tuple[str, bytes]:
    """Return what to call the file, and its content."""
    if isinstance(source, bytes):
        return "the content", source
    path = Path(source)
    try:
        return str(path), read_regular(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist; correct the path, or fetch the data set again") from None
    except IsADirectoryError:
        raise IsADirectoryError(f"{path} is a folder; give the path of an image file") from None
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror}; check its permissions and its disk") from error


def _to_rgb(image: "Image") -> "Image":
    from PIL import Image

    if image.mode == "F":
        raise ValueError("its pixels are floating point, of unknown range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # "I;16" and its kin; "I" is what older versions of Pillow make of 16-bit PNGs
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError(f"its pixels, {values.min()} to {values.max()}, need more than 16 bits; save it with 16")
        # Pillow's own conversion would make everything above 255 white.
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        opaque = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", opaque.size, "white"), opaque).convert("RGB")
    return image.convert("RGB")


def _resample(image: "Image", width: float, height: float, *, at: tuple[float, float], size: int) -> Tensor:
    """Resample the box of that size, ``at`` shares of the way from left to right and from top to bottom."""
    from PIL.Image import Resampling

    left, top = at[0] * (image.width - width), at[1] * (image.height - height)
    box = (left, top, left + width, top + height)
    return to_tensor(image.resize((size, size), Resampling.BILINEAR, box))


def _side_before_resizing(image: "Image", resize: int, size: int) -> float:
    _check_image(image)
    _check_size("resize", resize)
    _check_size("size", size)
    if size > resize:
        raise ValueError(f"size must be at most resize = {resize}, got {size}; crop less or resize to more")
    return min(image.size) * size / resize


def _check_image(image: "Image") -> None:
    if not isinstance(getattr(image, "mode", None), str):
        raise TypeError(f"image must be a Pillow image, got {type(image).__name__}; decode_rgb makes one of a file")


def _check_size(name: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{name} must be at least 1 pixel, got {size}")


def _check_box(area: tuple[float, float], aspect: tuple[float, float]) -> None:
    if not 0 < area[0] <= area[1] <= 1:
        raise ValueError(f"area must be two shares of the image with 0 < low <= high <= 1, got {area}")
    if not 0 < aspect[0] <= aspect[1] < math.inf:
        raise ValueError(f"aspect must be two ratios with 0 < low <= high, got {aspect}; 1 is a square")
