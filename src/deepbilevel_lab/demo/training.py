"""One training run of the demonstration, by one of three methods under equal conditions.

All methods start from the same weights and take the same number of steps over the same number of images. Nothing
is tuned for one of them: learning rate, momentum and epochs are the same.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from deepbilevel.rules.bilevel import Bilevel
from deepbilevel.sampling import MatchedGroups
from deepbilevel.sampling.draws import Draw
from deepbilevel_lab.data import load_digits
from deepbilevel_lab.networks import digit_cnn
from deepbilevel_lab.noise import flip_uniformly

Method = Literal["sgd", "uniform", "bilevel"]
METHODS: tuple[Method, ...] = get_args(Method)

_NUM_CLASSES = 10


@dataclass(frozen=True)
class Setting:
    """What all methods of a demonstration have in common."""

    noise_rate: float = 0.5
    epochs: int = 50
    lr: float = 0.1
    momentum: float = 0.9
    num_batches: int = 8
    batch_size: int = 16
    draw: Draw = "shuffled"


@dataclass
class Curve:
    """Accuracies of one run in percent, one entry per epoch."""

    method: Method
    seed: int
    test: list[float] = field(default_factory=list[float])
    noisy_train: list[float] = field(default_factory=list[float])
    seconds: float = 0.0


def train(method: Method, seed: int, setting: Setting, on_epoch: Callable[[], None]) -> Curve:
    """Train one network; ``on_epoch`` is called after each epoch and may raise to stop."""
    torch.set_num_threads(1)  # two runs of one thread are faster than one run of two
    digits = load_digits(seed)
    noisy = flip_uniformly(digits.train_labels.numpy(), setting.noise_rate, num_classes=_NUM_CLASSES, seed=seed)
    labels = torch.from_numpy(noisy.labels)
    torch.manual_seed(seed)
    model = digit_cnn(_NUM_CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.lr, momentum=setting.momentum)
    criterion = nn.CrossEntropyLoss()
    # SGD draws its batches without regard to labels, as a plain loader would.
    groups = MatchedGroups(
        noisy.labels,
        num_batches=setting.num_batches,
        batch_size=setting.batch_size,
        seed=seed,
        draw=setting.draw,
        matched=method != "sgd",
    )
    bilevel = Bilevel(model, num_batches=setting.num_batches)

    def loss_of(images: list[int]) -> Tensor:
        return criterion(model(digits.train_images[images]), labels[images])

    curve = Curve(method, seed)
    for _ in range(setting.epochs):
        start = time.perf_counter()
        model.train()
        batches = iter(groups)
        for _ in range(groups.num_groups):
            group = [next(batches) for _ in range(setting.num_batches)]
            if method == "bilevel":
                bilevel.step_over(group, loss_of)
            elif method == "uniform":
                for images in group[1:]:  # the validation mini-batch stays out, as in bilevel
                    (loss_of(images) / (setting.num_batches - 1)).backward()
            else:
                loss_of([image for images in group for image in images]).backward()
            optimizer.step()
            optimizer.zero_grad()
        curve.seconds += time.perf_counter() - start
        curve.test.append(_accuracy(model, digits.test_images, digits.test_labels))
        curve.noisy_train.append(_accuracy(model, digits.train_images, labels))
        on_epoch()
    return curve


@torch.no_grad()
def _accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return 100 * (model(images).argmax(dim=1) == labels).double().mean().item()
