"""Reading the pickled batches of CIFAR without running what a pickle may contain.

A pickle is a program: loading one from a stranger runs the stranger's code. The published batches need three names of
numpy and nothing else, so nothing else is admitted.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

# What numpy itself calls to make an empty array; the name of its module differs between versions.
_reconstruct = np.empty(0).__reduce__()[0]

_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")  # the batches were written by Python 2

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}") from None


def read_batch(content: bytes, path: Path) -> dict[bytes, Any]:
    """Return the dictionary a published batch holds; anything but plain values and arrays is refused.

    Args:
        content: the bytes of the file.
        path: where they came from, for messages.
    """
    try:
        batch = _RestrictedUnpickler(content).load()
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(
            f"{path} is not a published batch ({error}); it was not executed. "
            "Delete it and unpack or download the data set again"
        ) from error
    if not isinstance(batch, dict):
        raise ValueError(f"{path} holds a {type(batch).__name__}, expected a dictionary; download the data set again")
    return batch
