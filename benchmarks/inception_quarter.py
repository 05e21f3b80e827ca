"""The Inception of the paper with a quarter of its channels, for 28x28 images: the network of ``memorisation.py``."""

from deepbilevel_lab.networks.inception import SmallInception


def make(num_classes: int) -> SmallInception:
    """Build it; BatchNorm, dropout and the unpadded stem are those of the paper's authors."""
    return SmallInception(num_classes, input_size=28, padded_stem=False, dropout=0.5, narrowing=4)
