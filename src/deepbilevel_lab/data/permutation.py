"""One random order of the pixels for each image of a data set, the same for a whole run.

An order is computed anew whenever it is needed, from the seed, the split and the number of the image: nothing is
stored, whatever the size of the data set, and no order depends on which images share its batch.
"""

import numpy as np
import torch
from torch import Tensor

from deepbilevel_lab.data.augmentation import Split, check_images

_SPLITS: tuple[Split, ...] = ("train", "test")


def permute_pixels(images: Tensor, indices: Tensor, *, seed: int, split: Split) -> Tensor:
    """Put the pixels of every image into its own random order; all channels of a pixel move together.

    Args:
        images: ``[N, C, H, W]``.
        indices: the number of each image in its data set, ``[N]``.
        seed: another seed, other orders for all images.
        split: the set in which ``indices`` count; image 0 of the test set has another order than image 0 of the
            training set. A holdout taken from the training set and numbered there is ``"train"``.

    >>> images = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
    >>> permute_pixels(images, torch.tensor([7]), seed=0, split="train").flatten().sort().values
    tensor([0, 1, 2, 3], dtype=torch.uint8)
    """
    check_images(images)
    pixels = images.flatten(2)
    indices = _checked(indices, len(images)).to(images.device)
    order = pixel_order(indices, pixels.shape[2], seed=seed, split=split)
    return pixels.gather(2, order[:, None].expand_as(pixels)).reshape(images.shape)


def pixel_order(indices: Tensor, num_pixels: int, *, seed: int, split: Split) -> Tensor:
    """Return for each image which of its pixels comes first, second and so on: ``[N, num_pixels]``.

    Every (seed, split, image) starts a SplitMix64 stream of its own; its pixels are sorted by the numbers they draw.
    """
    if split not in _SPLITS:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}; it says which data set the indices count in")
    if not 0 <= seed < 2**62:
        raise ValueError(f"seed must lie in 0 .. 2**62 - 1, got {seed}; beyond that, two seeds would be the same")
    start = torch.tensor(len(_SPLITS) * seed + _SPLITS.index(split), device=indices.device)
    streams = _mix(_mix(start) + _GOLDEN * indices)
    pixels = torch.arange(num_pixels, device=indices.device)
    numbers = _mix(streams[:, None] + _GOLDEN * (pixels + 1))
    # A pixel's own number takes the place of the lowest bits: no two are equal, so every device sorts alike, and the
    # order can be read off the sorted numbers.
    low_bits = 2 ** (num_pixels - 1).bit_length() - 1
    return _sort((numbers & ~low_bits) | pixels) & low_bits


def _sort(numbers: Tensor) -> Tensor:
    if numbers.device.type != "cpu":
        return numbers.sort(dim=1).values
    # torch moves indices along with the values, which nobody needs here: numpy is seven times as fast.
    return torch.from_numpy(np.sort(numbers.numpy(), axis=1))


def _checked(indices: Tensor, num_images: int) -> Tensor:
    if not isinstance(indices, Tensor) or indices.dtype not in _INTEGERS:  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = indices.dtype if isinstance(indices, Tensor) else type(indices).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"indices must be a tensor of whole numbers, got {kind}; pass the numbers the sampler drew")
    if indices.shape != (num_images,):
        raise ValueError(
            f"indices must name one image each, shape [{num_images}], got {tuple(indices.shape)}; "
            "pass the numbers of the images of this batch"
        )
    # On another device the question would wait for it; there a negative number is just another image.
    if indices.device.type == "cpu" and num_images > 0 and (lowest := int(indices.min())) < 0:
        raise ValueError(f"indices must count from 0, got {lowest}; counting from the end would be another image")
    return indices.long()


_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def _as_int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


# SplitMix64 (Steele, Lea and Flood 2014) in wrapping int64 arithmetic, which is the same on every device.
_GOLDEN, _FIRST, _SECOND = map(_as_int64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mix(numbers: Tensor) -> Tensor:
    numbers = (numbers ^ _shift(numbers, 30)) * _FIRST
    numbers = (numbers ^ _shift(numbers, 27)) * _SECOND
    return numbers ^ _shift(numbers, 31)


def _shift(numbers: Tensor, bits: int) -> Tensor:
    # `>>` copies the sign into the bits it frees; the algorithm wants zeros there.
    return (numbers >> bits) & (2 ** (64 - bits) - 1)
