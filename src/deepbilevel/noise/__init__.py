"""Ways of making labels wrong, for experiments in which the truth is known."""

from deepbilevel.noise.uniform import NoisyLabels, flip_uniformly

__all__ = ["NoisyLabels", "flip_uniformly"]
