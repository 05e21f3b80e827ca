"""Data sets, as tensors in memory with labels beside them."""

from deepbilevel.data.digits import Digits, load_digits

__all__ = ["Digits", "load_digits"]
