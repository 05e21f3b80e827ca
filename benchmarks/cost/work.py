"""What is to be done in one update: a network, k mini-batches of synthetic images, and an optimizer.

Every contender gets the same samples and its own copy of the same network. This module knows no contender and no clock.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepbilevel.checks import choose
from deepbilevel_lab.networks import NETWORKS, build_network

Batch = tuple[Tensor, Tensor]
Update = Callable[[], object]
"""Does one update: all forward and backward passes, whatever becomes of the gradients, and the optimizer's step."""

_NUM_CLASSES = 10
_MOST_IMAGES = 100_000
_MADE_SHAPE = (3, 32, 32)
_LEARNING_RATE = 1e-3  # made labels are learned by heart; a larger rate ends in numbers that are not finite


@dataclass(frozen=True)
class Setting:
    """A network, one of ours or ``conv`` with a width, and the shape of its groups.

    >>> str(Setting("cifarnet", 8, 16))
    'cifarnet 8x16'
    """

    network: str
    num_batches: int
    batch_size: int

    def __str__(self) -> str:
        return f"{self.network} {self.num_batches}x{self.batch_size}"

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """Read a setting as people write it.

        >>> Setting.parse("cifarnet:8x16")
        Setting(network='cifarnet', num_batches=8, batch_size=16)
        """
        network, _, group = text.partition(":")
        if (numbers := re.fullmatch(r"(\d+)x(\d+)", group)) is None:
            raise ValueError(f"a setting is written as in cifarnet:8x16, got {text!r}")
        choose("network", network, list(NETWORKS))
        num_batches, batch_size = map(int, numbers.groups())
        if num_batches < 2 or batch_size < 1:
            raise ValueError(f"a setting has at least 2 mini-batches of at least 1 image, got {text!r}")
        if num_batches * batch_size > _MOST_IMAGES:
            raise ValueError(f"a setting has at most {_MOST_IMAGES:,} images in a group, got {text!r}")
        return cls(network, num_batches, batch_size)


@dataclass(frozen=True, eq=False)
class Work:
    """The work of one setting.

    Attributes:
        setting: what it was made for.
        batches: the k mini-batches, images and labels.
    """

    setting: Setting
    batches: list[Batch]

    @classmethod
    def of(cls, setting: Setting) -> "Work":
        """Make the samples of a setting, always the same."""
        generator = torch.Generator().manual_seed(0)
        shape = (setting.num_batches, setting.batch_size)
        made = _width(setting.network) is not None
        input_shape = _MADE_SHAPE if made else NETWORKS[setting.network].input_shape
        images = torch.randn(*shape, *input_shape, generator=generator)
        labels = torch.randint(_NUM_CLASSES, shape, generator=generator)
        return cls(setting, list(zip(images, labels, strict=True)))

    @property
    def num_batches(self) -> int:
        """How many mini-batches make an update."""
        return len(self.batches)

    @property
    def num_parameters(self) -> int:
        """How many numbers are trained."""
        return sum(each.numel() for each in self.network().parameters())

    @property
    def model_bytes(self) -> int:
        """How many bytes the trained numbers take."""
        return sum(each.numel() * each.element_size() for each in self.network().parameters())

    def network(self) -> nn.Module:
        """Return a new network in training mode, always with the same weights."""
        width = _width(self.setting.network)
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            if width is not None:
                return _made_network(width)
            return build_network(self.setting.network, num_classes=_NUM_CLASSES).train()


def _width(network: str) -> int | None:
    found = re.fullmatch(r"conv(\d+)", network)
    return None if found is None else int(found[1])


def _made_network(width: int) -> nn.Module:
    """Return CifarNet's two convolutions and a hidden layer, as wide as is wanted: one shape in any size."""
    return nn.Sequential(
        *(nn.Conv2d(3, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, _NUM_CLASSES)),
    )


def pooled(batches: list[Batch]) -> Batch:
    """Return several mini-batches as one."""
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def optimizer_of(network: nn.Module) -> torch.optim.SGD:
    """Return the optimizer all contenders share: SGD with momentum."""
    return torch.optim.SGD(network.parameters(), lr=_LEARNING_RATE, momentum=0.9)
