"""What is to be done in one update: a network, k mini-batches of made images, and an optimizer.

Every contender gets the same samples and its own copy of the same network. This module knows no contender and no clock.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepbilevel.networks import NETWORKS, build_network

Batch = tuple[Tensor, Tensor]
Update = Callable[[], object]
"""Does one update: all forward and backward passes, whatever becomes of the gradients, and the optimizer's step."""

_NUM_CLASSES = 10
_LEARNING_RATE = 1e-3  # made labels are learned by heart; a larger rate ends in numbers that are not finite


@dataclass(frozen=True)
class Setting:
    """A network and the shape of its groups.

    >>> str(Setting("cifarnet", 8, 16))
    'cifarnet 8x16'
    """

    network: str
    num_batches: int
    batch_size: int

    def __str__(self) -> str:
        return f"{self.network} {self.num_batches}x{self.batch_size}"


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
        images = torch.randn(*shape, *NETWORKS[setting.network].input_shape, generator=generator)
        labels = torch.randint(_NUM_CLASSES, shape, generator=generator)
        return cls(setting, list(zip(images, labels, strict=True)))

    @property
    def num_batches(self) -> int:
        """How many mini-batches make an update."""
        return len(self.batches)

    def network(self) -> nn.Module:
        """Return a new network in training mode, always with the same weights."""
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            return build_network(self.setting.network, num_classes=_NUM_CLASSES).train()


def pooled(batches: list[Batch]) -> Batch:
    """Return several mini-batches as one."""
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def optimizer_of(network: nn.Module) -> torch.optim.SGD:
    """Return the optimizer all contenders share: SGD with momentum."""
    return torch.optim.SGD(network.parameters(), lr=_LEARNING_RATE, momentum=0.9)
