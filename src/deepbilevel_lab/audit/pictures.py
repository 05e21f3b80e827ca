"""Small pictures of many images, as text that a page can hold."""

import io
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from deepbilevel_lab.data import ImageSet, ImagesOnDisk
from deepbilevel_lab.data.decode import decode_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

PER_SHEET = 256
"""So many pictures are read from the page at once."""
_SIDE = 128
_SMALL = 64  # pixels; below that one wants to see them


def picture_side(data: ImageSet) -> int:
    """Return the size of a picture in pixels; small images keep theirs."""
    return _SIDE if isinstance(data, ImagesOnDisk) else min(_SIDE, max(data.read(0).shape[1:]))


def are_small(data: ImageSet) -> bool:
    """Whether a browser should show the pixels of the pictures as squares."""
    return picture_side(data) < _SMALL


def make_sheets(data: ImageSet, indices: Sequence[int]) -> Iterator[list[bytes]]:
    """Yield pictures of these images, in this order, :data:`PER_SHEET` at a time: WebP in base64."""
    encode = partial(_encode, data, picture_side(data), quality=90 if are_small(data) else 75)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # decoding and encoding are not held up by Python
        for start in range(0, len(indices), PER_SHEET):
            yield list(threads.map(encode, indices[start : start + PER_SHEET]))


def _encode(data: ImageSet, side: int, index: int, *, quality: int) -> bytes:
    content = io.BytesIO()
    _picture(data, side, index).save(content, "WEBP", quality=quality, method=2)
    return b64encode(content.getvalue())


def _picture(data: ImageSet, side: int, index: int) -> "Image":
    """Return an image that fits a square; small ones keep their size, and the browser enlarges them."""
    from PIL import Image

    if isinstance(data, ImagesOnDisk):
        picture = decode_rgb(data.paths[index], needed_side=side)
    else:
        pixels = data.read(index)
        channels = pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels
        picture = Image.fromarray(channels.permute(1, 2, 0).contiguous().numpy())
    scale = side / max(picture.size)
    if scale >= 1:
        return picture
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)
