"""Pixels in an order of their own for every image, the same for ever."""

import math

import pytest
import torch

from deepbilevel_lab.data.permutation import permute_pixels, pixel_order
from tests.data.steps import chi_square, photos


def pixels_numbered(count: int, *, height: int = 4, width: int = 6) -> torch.Tensor:
    numbers = torch.arange(height * width).reshape(1, 1, height, width)
    return torch.cat([numbers, numbers + 100, numbers + 200], dim=1).to(torch.uint8).repeat(count, 1, 1, 1)


def test_every_pixel_moves_once_with_all_its_channels():
    result = permute_pixels(pixels_numbered(40), torch.arange(40), seed=0, split="train").long()
    assert result.shape == (40, 3, 4, 6)
    assert torch.equal(result[:, 0].flatten(1).sort().values, torch.arange(24).expand(40, 24))
    assert torch.equal(result[:, 1], result[:, 0] + 100)
    assert torch.equal(result[:, 2], result[:, 0] + 200)


def test_an_image_keeps_its_order_whatever_the_batch():
    images = photos(100)
    all_at_once = permute_pixels(images, torch.arange(100), seed=3, split="train")
    batch = torch.tensor([99, 5, 42, 5])
    for dtype in (torch.int64, torch.int32, torch.uint8):
        part = permute_pixels(images[batch], batch.to(dtype), seed=3, split="train")
        assert torch.equal(part, all_at_once[batch])


def test_orders_differ_between_images_seeds_and_splits():
    indices = torch.arange(50)
    orders = {
        tuple(order)
        for seed in (0, 1, 2, 2**62 - 1)
        for split in ("train", "test")
        for order in pixel_order(indices, 24, seed=seed, split=split).tolist()
    }
    assert len(orders) == 50 * 4 * 2


def order_slowly(seed: int, split: int, index: int, num_pixels: int) -> list[int]:
    """SplitMix64 with Python's unbounded integers, written from its definition."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(number: int) -> int:
        number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & mask
        number = (number ^ (number >> 27)) * 0x94D049BB133111EB & mask
        return number ^ (number >> 31)

    def signed(number: int) -> int:
        return number - 2**64 if number >= 2**63 else number

    stream = mix(mix((2 * seed + split) & mask) + golden * index & mask)
    numbers = [signed(mix(stream + golden * pixel & mask)) for pixel in range(1, num_pixels + 1)]
    low_bits = (num_pixels - 1).bit_length()  # where pixels are numbered instead
    return sorted(range(num_pixels), key=lambda pixel: (numbers[pixel] >> low_bits, pixel))


@pytest.mark.parametrize("seed", [0, 1, 2018, 2**62 - 1])
def test_orders_equal_the_textbook_generator(seed):
    indices = [0, 1, 49999, 2**40]
    for number, split in enumerate(("train", "test")):
        for num_pixels in (1, 2, 64, 65, 1024):
            orders = pixel_order(torch.tensor(indices), num_pixels, seed=seed, split=split)
            assert orders.tolist() == [order_slowly(seed, number, index, num_pixels) for index in indices]


def test_the_generator_is_splitmix64():
    # The first numbers of its stream from state 1234567, as its published test vectors give them.
    from deepbilevel_lab.data.permutation import _GOLDEN, _mix

    numbers = _mix(1234567 + _GOLDEN * torch.arange(1, 4))
    assert [number % 2**64 for number in numbers.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_orders_are_those_of_earlier_versions():
    orders = pixel_order(torch.tensor([0, 1]), 8, seed=0, split="train")
    assert orders.tolist() == [[7, 0, 3, 2, 4, 6, 5, 1], [0, 3, 1, 6, 4, 5, 7, 2]]


def test_every_pixel_goes_everywhere_equally_often():
    orders = pixel_order(torch.arange(6400), 16, seed=0, split="train")
    counts = torch.zeros(16, 16).index_put_(
        (torch.arange(16).expand_as(orders), orders), torch.ones(1), accumulate=True
    )
    assert chi_square(counts.numpy()) < 307  # about 15 x 15 degrees of freedom; 295 once in a thousand seeds


def test_the_orders_of_two_neighbours_have_nothing_in_common():
    orders = pixel_order(torch.arange(2001), 1024, seed=0, split="train")
    fixed_points = (orders[1:] == orders[:-1]).sum(dim=1).double()  # of two random orders: one on average, variance one
    assert abs(fixed_points.mean() - 1) < 4 / math.sqrt(2000)


def test_an_empty_batch_is_permuted_to_an_empty_one():
    assert permute_pixels(photos(0), torch.arange(0), seed=0, split="test").shape == (0, 3, 32, 32)


def test_pixels_are_permuted_on_the_device_of_the_images():
    result = permute_pixels(photos(2).to("meta"), torch.arange(2), seed=0, split="test")
    assert (result.device.type, result.shape, result.dtype) == ("meta", (2, 3, 32, 32), torch.uint8)


def test_permuting_keeps_type_values_and_layouts_meaning():
    images = photos(4)
    expected = permute_pixels(images, torch.arange(4), seed=0, split="test")
    last = permute_pixels(images.contiguous(memory_format=torch.channels_last), torch.arange(4), seed=0, split="test")
    assert torch.equal(last, expected)
    assert torch.equal(permute_pixels(images.half(), torch.arange(4), seed=0, split="test"), expected.half())
