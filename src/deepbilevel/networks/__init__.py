"""Networks, built from their number of classes alone."""

from deepbilevel.networks.digit_cnn import digit_cnn

__all__ = ["digit_cnn"]
