"""Networks, built from their number of classes alone, by name or by function."""

from deepbilevel_lab.networks.alexnet import alexnet
from deepbilevel_lab.networks.catalog import NETWORKS, NetworkEntry, NetworkSpec, build_network
from deepbilevel_lab.networks.cifarnet import cifarnet
from deepbilevel_lab.networks.digit_cnn import digit_cnn
from deepbilevel_lab.networks.inception import inception, inception_half, inception_zhang
from deepbilevel_lab.networks.named_code import name_code
from deepbilevel_lab.networks.preact_resnet import preact_resnet18
from deepbilevel_lab.networks.resnet50 import resnet50
from deepbilevel_lab.networks.small_resnet import small_resnet

__all__ = [
    "NETWORKS",
    "NetworkEntry",
    "NetworkSpec",
    "alexnet",
    "build_network",
    "cifarnet",
    "digit_cnn",
    "inception",
    "inception_half",
    "inception_zhang",
    "name_code",
    "preact_resnet18",
    "resnet50",
    "small_resnet",
]
