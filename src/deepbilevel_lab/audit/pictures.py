"""Small pictures of many images, so many on a sheet: a browser loads the sheets it shows, and no others."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deepbilevel_lab.data import ImageSet, ImagesOnDisk
from deepbilevel_lab.data.decode import decode_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

PER_ROW = 8
"""A sheet is a square of so many rows of so many pictures."""
_PER_SHEET = PER_ROW**2
_SIDE = 128
_QUALITY = 85
_GROUND = (127, 127, 127)  # beside pictures that are not square


def sheet_name(sheet: int) -> str:
    """Return the file of a sheet.

    >>> sheet_name(12)
    '00012.jpg'
    """
    return f"{sheet:05}.jpg"


def picture_side(data: ImageSet) -> int:
    """Return the size of a picture in pixels; small images keep theirs."""
    return _SIDE if isinstance(data, ImagesOnDisk) else min(_SIDE, max(data.read(0).shape[1:]))


def write_sheets(
    data: ImageSet, indices: Sequence[int], folder: Path, on_sheet: Callable[[int], None] = lambda num_done: None
) -> None:
    """Write pictures of these images, in this order; ``on_sheet`` is told how many are done."""
    from PIL import Image

    side = picture_side(data)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # decoding is not held up by Python
        for start in range(0, len(indices), _PER_SHEET):
            chosen = indices[start : start + _PER_SHEET]
            sheet = Image.new("RGB", (PER_ROW * side, PER_ROW * side), _GROUND)
            for place, picture in enumerate(threads.map(partial(_picture, data, side), chosen)):
                row, column = divmod(place, PER_ROW)
                left, top = column * side + (side - picture.width) // 2, row * side + (side - picture.height) // 2
                sheet.paste(picture, (left, top))
            sheet.save(folder / sheet_name(start // _PER_SHEET), quality=_QUALITY, subsampling=0)
            on_sheet(start + len(chosen))


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
