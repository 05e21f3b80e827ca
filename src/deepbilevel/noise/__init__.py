"""Ways of making labels wrong, for experiments in which the truth is known.

Every noise takes clean labels and a rate, and returns :class:`NoisyLabels`. The same seed gives the same labels on
every machine, except where a model makes them; a higher rate keeps the labels a lower one made wrong, except where a
matrix gives the rates. Only :func:`flip_by_model` needs torch, which is loaded when its name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepbilevel.noise.catalog import CATALOG, Noise, NoiseSpec, parse_noise
from deepbilevel.noise.files import Provenance, load_noisy_labels, save_noisy_labels
from deepbilevel.noise.matrix import flip_by_matrix
from deepbilevel.noise.noisy_labels import NoisyLabels
from deepbilevel.noise.pair import flip_to_next
from deepbilevel.noise.symmetric import flip_symmetrically
from deepbilevel.noise.uniform import flip_uniformly

if TYPE_CHECKING:
    from deepbilevel.noise.model import flip_by_model

__all__ = [
    "CATALOG",
    "Noise",
    "NoiseSpec",
    "NoisyLabels",
    "Provenance",
    "flip_by_matrix",
    "flip_by_model",
    "flip_symmetrically",
    "flip_to_next",
    "flip_uniformly",
    "load_noisy_labels",
    "parse_noise",
    "save_noisy_labels",
]


def __getattr__(name: str) -> Any:
    if name != "flip_by_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module("deepbilevel.noise.model").flip_by_model
    globals()[name] = value
    return value
