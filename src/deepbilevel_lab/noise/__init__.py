"""Ways of making labels wrong, for experiments in which the truth is known.

Every noise takes clean labels and a rate, and returns :class:`NoisyLabels`. The same seed gives the same labels on
every machine, except where a model makes them; a higher rate keeps the labels a lower one made wrong, except where a
matrix gives the rates.
"""

from deepbilevel_lab.noise.catalog import CATALOG, Noise, NoiseSpec, parse_noise
from deepbilevel_lab.noise.files import Provenance, load_noisy_labels, save_noisy_labels
from deepbilevel_lab.noise.flips import flip_by_matrix, flip_symmetrically, flip_to_next, flip_uniformly
from deepbilevel_lab.noise.model import flip_by_model
from deepbilevel_lab.noise.noisy_labels import NoisyLabels

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
