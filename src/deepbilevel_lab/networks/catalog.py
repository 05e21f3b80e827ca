"""Every network by name, with what builds it and which images it takes; and the network of a run as a value."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torch import nn

from deepbilevel.checks import choose
from deepbilevel.contract import ADDED_LATER
from deepbilevel_lab.networks.alexnet import alexnet
from deepbilevel_lab.networks.cifarnet import cifarnet
from deepbilevel_lab.networks.digit_cnn import digit_cnn
from deepbilevel_lab.networks.inception import inception, inception_half, inception_zhang
from deepbilevel_lab.networks.layers import ImageShape
from deepbilevel_lab.networks.mlp import mlp
from deepbilevel_lab.networks.named_code import is_own_code
from deepbilevel_lab.networks.preact_resnet import preact_resnet8, preact_resnet18
from deepbilevel_lab.networks.resnet50 import resnet50
from deepbilevel_lab.networks.small_resnet import SIDES, small_resnet
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.specs import SpecError, validate

_LARGEST_SIDE = 4096


@dataclass(frozen=True)
class NetworkEntry:
    """One line of the catalog.

    Attributes:
        build: makes the network for a number of classes, and a side where it takes any, its weights drawn from torch's
            global generator.
        input_shape: channels, height and width of its images.
        description: a few words for a list.
        has_dropout: whether there is a place for dropout, and so a rate to set.
        sides: the smallest and the largest side of images, where it takes any; ``input_shape`` is then the usual one.
        fits_rows: whether ``build`` also takes an ``input_shape``, of rows of numbers for instance.
    """

    build: Callable[..., nn.Module]
    input_shape: ImageShape
    description: str
    has_dropout: bool = True
    sides: tuple[int, int] | None = None
    fits_rows: bool = False


NETWORKS: Mapping[str, NetworkEntry] = MappingProxyType(
    {
        "alexnet": NetworkEntry(alexnet, (3, 227, 227), "AlexNet as in Caffe, two halves, response normalisation"),
        "cifarnet": NetworkEntry(cifarnet, (3, 28, 28), "AlexNet's small relative for CIFAR, no BatchNorm"),
        "digit_cnn": NetworkEntry(digit_cnn, (1, 8, 8), "two convolutions for the digits of the demonstration"),
        "inception": NetworkEntry(inception, (3, 29, 29), "small Inception with dropout, as the paper's authors"),
        "inception_half": NetworkEntry(inception_half, (3, 29, 29), "the same with half the channels, for few cores"),
        "inception_zhang": NetworkEntry(inception_zhang, (3, 28, 28), "small Inception of Zhang et al., no dropout"),
        "mlp": NetworkEntry(mlp, (1, 8, 8), "two hidden layers; for tables, as wide as their rows", fits_rows=True),
        "preact_resnet8": NetworkEntry(preact_resnet8, (3, 32, 32), "a small PreAct ResNet, for few cores"),
        "preact_resnet18": NetworkEntry(preact_resnet18, (3, 32, 32), "PreAct ResNet-18 as in the mixup paper"),
        "resnet50": NetworkEntry(resnet50, (3, 224, 224), "ResNet-50 with torchvision's names", False),
        "small_resnet": NetworkEntry(small_resnet, (3, 64, 64), "for photographs, of any side", sides=SIDES),
    }
)


def build_network(
    name: str, *, num_classes: int, side: int | None = None, input_shape: tuple[int, ...] | None = None
) -> nn.Module:
    """Build a network of the catalog, its weights drawn from torch's global generator.

    ``input_shape`` is for those that fit themselves to it; the others refuse what they cannot take when they see it.

    >>> build_network("cifarnet", num_classes=100).fc3
    Linear(in_features=192, out_features=100, bias=True)
    """
    entry = NETWORKS[choose("network", name, NETWORKS)]
    if input_shape is not None and entry.fits_rows:
        return entry.build(num_classes, input_shape)
    return entry.build(num_classes) if side is None else entry.build(num_classes, side)


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the catalog, of another library, or of the user.

    Attributes:
        name: in the catalog; ``timm:resnet18``; ``transformers:folder``; or code, ``file.py:make`` or
            ``package.module:make``.
        weights: what it starts from, if not from scratch: a file; ``data:<file>``, in the folder of the data sets;
            or ``run:<id>``, the network of another run.
        dropout: the share of numbers that dropout sets to zero, instead of the network's own.
        side: of its images, in pixels, where it takes any; unless given, the network's usual one.
        pretrained: start from the weights that timm or transformers have for it.
        freeze: let only the last layer learn.
        arguments: what else is passed to whatever makes the network; not for the catalog.
        code: the hash of what ``name`` is, where that is a file of the user; see ``named_code.py``.

    >>> NetworkSpec("small_resnet", side=96).input_shape
    (3, 96, 96)
    """

    name: str
    weights: str | None = None
    dropout: float | None = None
    side: int | None = field(default=None, metadata=ADDED_LATER)
    pretrained: bool = field(default=False, metadata=ADDED_LATER)
    freeze: bool = field(default=False, metadata=ADDED_LATER)
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, metadata=ADDED_LATER)
    code: str | None = field(default=None, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        validate(self)
        referred_run(self.weights, key="weights")
        if self.pretrained and self.weights is not None:
            raise SpecError(f"pretrained and weights {self.weights!r} are two places to start from; drop one")
        if self.freeze and not self.pretrained and self.weights is None:
            raise SpecError("freeze leaves all but the last layer as it begins: at random; add weights or pretrained")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise SpecError(
                f"dropout must be at least 0 and less than 1, which would drop everything, got {self.dropout}"
            )
        if ":" not in self.name:
            self._check_entry(NETWORKS[choose("network", self.name, NETWORKS)])
        elif is_own_code(self.name) and self.pretrained:
            raise SpecError(
                f"pretrained is for timm and transformers; {self.name} may load weights itself, or --weights"
            )
        elif self.side is not None and not 1 <= self.side <= _LARGEST_SIDE:
            raise SpecError(f"side must lie in 1 .. {_LARGEST_SIDE:,} pixels, got {self.side}")

    def _check_entry(self, entry: NetworkEntry) -> None:
        self._check_side(entry)
        if self.arguments:
            raise SpecError(f"arguments {dict(self.arguments)} are for networks of one's own; {self.name} takes none")
        if self.pretrained:
            raise SpecError(f"pretrained weights of {self.name} are not published; give a file with weights")
        if self.dropout is not None and not entry.has_dropout:
            fitting = ", ".join(name for name, each in NETWORKS.items() if each.has_dropout)
            raise SpecError(f"dropout {self.dropout} has no place in {self.name}; networks with dropout: {fitting}")

    def _check_side(self, entry: NetworkEntry) -> None:
        if self.side is None:
            return
        if entry.sides is None:
            raise SpecError(f"side {self.side} cannot be chosen: {self.name} takes images of {entry.input_shape[1]}")
        low, high = entry.sides
        if not low <= self.side <= high:
            raise SpecError(f"side must lie in {low} .. {high} pixels for {self.name}, got {self.side}")

    @property
    def input_shape(self) -> ImageShape | None:
        """Channels, height and width of its images; None where it takes what it is given."""
        if ":" in self.name:
            return None if self.side is None else (3, self.side, self.side)
        channels, height, width = NETWORKS[self.name].input_shape
        return (channels, height, width) if self.side is None else (channels, self.side, self.side)

    @classmethod
    def parse(cls, text: str) -> "NetworkSpec":
        """Read a name alone."""
        return cls(text)
