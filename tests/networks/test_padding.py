"""SAME padding: sizes and values worked out by hand, and TensorFlow's rule as its manual states it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.networks.layers import SameConv2d, SameMaxPool2d, same_padding


@pytest.mark.parametrize(
    ("size", "kernel_size", "stride", "expected"),
    [
        (28, 5, 1, (2, 2)),
        (28, 3, 1, (1, 1)),
        (28, 1, 1, (0, 0)),
        (28, 2, 2, (0, 0)),
        (14, 2, 2, (0, 0)),
        (28, 3, 2, (0, 1)),
        (14, 3, 2, (0, 1)),
        (27, 3, 2, (1, 1)),
        (7, 2, 1, (0, 1)),
        (227, 11, 4, (4, 4)),
        (5, 1, 3, (0, 0)),
    ],
)
def test_the_padding_is_what_one_finds_by_hand(size, kernel_size, stride, expected):
    assert same_padding(size, kernel_size, stride) == expected


@given(st.integers(1, 64), st.integers(1, 12), st.integers(1, 6))
def test_there_are_as_many_windows_as_strides_begun(size, kernel_size, stride):
    before, after = same_padding(size, kernel_size, stride)
    assert after - before in (0, 1)
    assert (before + size + after - kernel_size) // stride + 1 == -(-size // stride)
    # No row is padded in vain, or one could start elsewhere.
    if before + after:
        assert (before + size + after - kernel_size) % stride == 0


def test_a_strided_convolution_of_an_even_image_starts_at_the_corner():
    layer = SameConv2d(1, 1, 3, stride=2, bias=False)
    torch.nn.init.ones_(layer.weight)
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    # Windows over rows 0-2 and 2-4, where row 4 is padding; columns likewise.
    expected = [
        [0 + 1 + 2 + 4 + 5 + 6 + 8 + 9 + 10, 2 + 3 + 6 + 7 + 10 + 11],
        [8 + 9 + 10 + 12 + 13 + 14, 10 + 11 + 14 + 15],
    ]
    assert layer(image).squeeze().tolist() == expected


def test_a_strided_convolution_of_an_odd_image_starts_outside():
    layer = SameConv2d(1, 1, 3, stride=2, bias=False)
    torch.nn.init.ones_(layer.weight)
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert layer(image).squeeze().tolist() == [[0 + 1 + 3 + 4, 1 + 2 + 4 + 5], [3 + 4 + 6 + 7, 4 + 5 + 7 + 8]]


def test_rows_and_columns_are_padded_on_their_own():
    layer = SameConv2d(1, 1, 3, stride=2, bias=False)
    torch.nn.init.ones_(layer.weight)
    image = torch.arange(12.0).reshape(1, 1, 4, 3)
    # Rows 0-2 and 2-4; columns -1-1 and 1-3.
    assert layer(image).squeeze().tolist() == [
        [0 + 1 + 3 + 4 + 6 + 7, 1 + 2 + 4 + 5 + 7 + 8],
        [6 + 7 + 9 + 10, 7 + 8 + 10 + 11],
    ]


def test_a_convolution_of_stride_one_is_torchs_own():
    layer = SameConv2d(3, 4, 5)
    own = torch.nn.Conv2d(3, 4, 5, padding="same")
    own.load_state_dict(layer.state_dict())
    image = torch.randn(2, 3, 7, 6)
    torch.testing.assert_close(layer(image), own(image))


def test_a_pool_of_an_even_image_starts_at_the_corner():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert SameMaxPool2d(3, stride=2)(image).squeeze().tolist() == [[10, 11], [14, 15]]


def test_a_pool_of_an_odd_image_starts_outside():
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    assert SameMaxPool2d(3, stride=2)(image).squeeze().tolist() == [[4, 5], [7, 8]]


@pytest.mark.parametrize("size", [3, 4])
def test_the_padding_of_a_pool_never_wins(size):
    image = torch.full((1, 1, size, size), -5.0, requires_grad=True)
    pooled = SameMaxPool2d(3, stride=2)(image)
    assert pooled.squeeze().tolist() == [[-5, -5], [-5, -5]]
    pooled.sum().backward()
    assert image.grad.sum() == 4


@pytest.mark.parametrize("size", [27, 28, 14])
@pytest.mark.parametrize("layer", [SameConv2d(2, 2, 3, stride=2), SameMaxPool2d(3, stride=2)], ids=["conv", "pool"])
def test_the_size_is_halved_and_rounded_up(layer, size):
    assert layer(torch.zeros(1, 2, size, size)).shape == (1, 2, (size + 1) // 2, (size + 1) // 2)


def test_printing_shows_the_padding():
    assert repr(SameConv2d(2, 3, 3, stride=2)).endswith("padding=SAME)")
    assert repr(SameMaxPool2d(3, stride=2)) == "SameMaxPool2d(kernel_size=3, stride=2)"
