"""How the images of a mini-batch and their labels are mixed before the network sees them, as a spec that does it.

It knows one mini-batch at a time and carries no random state: whoever calls it hands in the generator.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class Mixup:
    """Every image is blended with another one of its mini-batch, and so are their labels (Zhang et al. 2018).

    ``x = lam x_i + (1 - lam) x_j`` and ``y = lam y_i + (1 - lam) y_j``, with one ``lam ~ Beta(alpha, alpha)`` for the
    mini-batch and j a permutation of its images.

    >>> images, labels = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])
    >>> mixed, shares = Mixup()(images, labels, num_classes=2, generator=np.random.default_rng(0))
    >>> shares.sum(dim=1)
    tensor([1., 1., 1.])

    Attributes:
        alpha: how strongly; the smaller, the nearer ``lam`` is to 0 or 1.
    """

    kind: ClassVar[str] = "mixup"
    description: ClassVar[str] = "images and labels are blended in pairs"

    alpha: float = 1.0

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.alpha <= 1000:  # far beyond, numpy's beta overflows
            raise SpecError(
                f"alpha must be more than 0 and at most 1000, where pairs are blended half and half, got {self.alpha}"
            )

    def __call__(
        self, images: Tensor, labels: Tensor, *, num_classes: int, generator: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return blended images and the shares of the classes in each, ``[N, num_classes]``.

        Args:
            images: ``[N, ...]``, floating point.
            labels: one class per image, ``[N]``.
            num_classes: of the network.
            generator: all that is random comes from it.
        """
        lam = float(generator.beta(self.alpha, self.alpha))
        others = torch.from_numpy(generator.permutation(len(images))).to(images.device)
        shares = F.one_hot(labels, num_classes).to(images.dtype)
        return lam * images + (1 - lam) * images[others], lam * shares + (1 - lam) * shares[others]
