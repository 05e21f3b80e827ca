"""A data set at a glance: some images of each class on one picture, with their labels."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from deepbilevel_lab.data.image_set import ImageSet

if TYPE_CHECKING:
    from PIL.Image import Image

_PER_CLASS = 8
_MOST_CLASSES = 20
_TILE = 72
_GAP = 6
_NAME_WIDTH = 150
_CAPTION = 14
_WRONG = (200, 60, 0)  # also said in words, for those who do not see the colour


def draw_contact_sheet(data: ImageSet, path: Path) -> None:
    """Write a PNG with a row per class: images that carry its label, chosen at random.

    Where clean labels are known, an image whose label is wrong is framed and captioned with what it really is. Of more
    than 20 classes an even selection is shown.
    """
    from PIL import Image, ImageDraw, ImageFont

    step = math.ceil(data.num_classes / _MOST_CLASSES)
    shown = range(0, data.num_classes, step)
    width = _NAME_WIDTH + _PER_CLASS * (_TILE + _GAP) + _GAP
    row_height = _TILE + _CAPTION + _GAP
    sheet = Image.new("RGB", (width, len(shown) * row_height + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    font, small = ImageFont.load_default(13), ImageFont.load_default(10)
    random = np.random.RandomState(0)
    for row, label in enumerate(shown):
        top = _GAP + row * row_height
        pen.text((_GAP, top + _TILE / 2 - 8), _shorten(data.class_names[label], 20), fill="black", font=font)
        members = np.flatnonzero(_carries(data, label).numpy())
        for column, index in enumerate(random.permutation(members)[:_PER_CLASS].tolist()):
            left = _NAME_WIDTH + column * (_TILE + _GAP)
            sheet.paste(_tile(data.read(index)), (left, top))
            if data.clean_labels is not None and data.clean_labels[index] != label:
                truth = data.class_names[int(data.clean_labels[index])]
                pen.rectangle((left - 2, top - 2, left + _TILE + 1, top + _TILE + 1), outline=_WRONG, width=3)
                pen.text((left, top + _TILE + 1), _shorten(f"is {truth}", 13), fill=_WRONG, font=small)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def _carries(data: ImageSet, label: int) -> Tensor:
    return data.labels[:, label] == 1 if data.multi_label else data.labels == label


def _tile(pixels: Tensor) -> "Image":
    from PIL import Image

    channels = pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels
    image = Image.fromarray(channels.to(torch.uint8).permute(1, 2, 0).contiguous().numpy())
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # Small images are enlarged without blur, so that one sees their pixels.
    how = Image.Resampling.NEAREST if side < _TILE else Image.Resampling.BILINEAR
    return image.resize((_TILE, _TILE), how, (left, top, left + side, top + side))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
