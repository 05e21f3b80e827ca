"""How good a network is: top-1 accuracy, or mean average precision where images have several labels. In percent."""

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor, nn

from deepbilevel_lab.processes.one_process import OneProcess
from deepbilevel_lab.training.feeding import Feed

_BATCH_SIZE = 250


def predict(
    model: nn.Module,
    feed: Feed,
    *,
    crops: int = 1,
    autocast: torch.autocast | None = None,
    processes: OneProcess | None = None,
) -> Generator[tuple[Tensor, Tensor]]:
    """Yield ``(indices, probabilities)`` for all images in order, averaged over the crops of each; on the CPU.

    Several processes take turns with the batches, and each yields what all of them have found.
    """
    processes = processes or OneProcess()
    size = _BATCH_SIZE // crops or 1
    chunks = feed.chunks(size)
    answers = _own_probabilities(model, feed, size, crops, autocast, processes.own(len(chunks)))
    for start in range(0, len(chunks), processes.size):
        turn = chunks[start : start + processes.size]
        probabilities = processes.put_together(next(answers, None), list(map(len, turn)), feed.data.num_classes)
        yield torch.arange(turn[0].start, turn[-1].stop), probabilities


def _own_probabilities(
    model: nn.Module, feed: Feed, size: int, crops: int, autocast: torch.autocast | None, own: range
) -> Generator[Tensor]:
    multi_label = feed.data.multi_label
    total: Tensor | None = None
    for number, batch in enumerate(feed.batches(size, crops=crops, own=own), start=1):
        scores = _scores(model, batch.images, autocast)
        probabilities = (scores.sigmoid() if multi_label else scores.softmax(dim=1)).cpu()
        total = probabilities if total is None else total + probabilities
        if number % crops == 0:
            yield total / crops
            total = None


@torch.no_grad()
def _scores(model: nn.Module, images: Tensor, autocast: torch.autocast | None) -> Tensor:
    # Not around the generator above: between two of its values the caller's code would run in these modes.
    was_training = model.training
    model.eval()
    try:
        if autocast is None:
            return model(images).float()
        with autocast:
            return model(images).float()
    finally:
        model.train(was_training)


class Accuracy:
    """Top-1 accuracy against several sets of labels of the same images at once."""

    def __init__(self, **labels: Tensor | None) -> None:
        self._labels = {name: each for name, each in labels.items() if each is not None}
        self._right = dict.fromkeys(self._labels, 0)
        self._seen = 0

    def add(self, indices: Tensor, probabilities: Tensor) -> None:
        """Count a batch."""
        predicted = probabilities.argmax(dim=1)
        self._seen += len(indices)
        for name, labels in self._labels.items():
            self._right[name] += int((predicted == labels[indices]).sum())

    def result(self) -> dict[str, float]:
        """Return the accuracies by the names of the labels."""
        return {name: 100 * right / self._seen for name, right in self._right.items()}


class MeanAveragePrecision:
    """The mean over classes of the area under precision against recall; difficult labels do not count.

    A class without a positive image has no precision and is left out of the mean.
    """

    def __init__(self, difficult: Tensor | None, **labels: Tensor | None) -> None:
        self._difficult = difficult
        self._labels = {name: each for name, each in labels.items() if each is not None}
        self._probabilities: list[Tensor] = []

    def add(self, indices: Tensor, probabilities: Tensor) -> None:
        """Keep a batch; batches come in the order of the images."""
        self._probabilities.append(probabilities)

    def result(self) -> dict[str, float]:
        """Return the mean average precisions by the names of the labels."""
        probabilities = torch.cat(self._probabilities)
        return {
            name: 100 * mean_average_precision(probabilities, labels, self._difficult)
            for name, labels in self._labels.items()
        }


def mean_average_precision(probabilities: Tensor, labels: Tensor, difficult: Tensor | None = None) -> float:
    """Return the mean average precision, between 0 and 1; nan if no class has a positive image.

    >>> labels = torch.tensor([[1.0], [0.0], [1.0]])
    >>> round(mean_average_precision(torch.tensor([[0.9], [0.8], [0.7]]), labels), 4)  # (1 + 2/3) / 2
    0.8333
    """
    try:
        from sklearn.metrics import average_precision_score  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ImportError("average precision comes with scikit-learn; run: pip install 'deepbilevel[cli]'") from error
    precisions: list[float] = []
    for number in range(labels.shape[1]):
        counted = slice(None) if difficult is None else ~difficult[:, number]
        own = labels[counted, number].numpy()
        if own.any():
            precisions.append(float(average_precision_score(own, probabilities[counted, number].numpy())))
    return float(np.mean(precisions)) if precisions else float("nan")


def make_metric(feed: Feed) -> Accuracy | MeanAveragePrecision:
    """Return the metric that fits the labels; it scores against the labels as given, and the clean ones where known."""
    data = feed.data
    if data.multi_label:
        return MeanAveragePrecision(data.difficult, labels=data.labels, clean_labels=data.clean_labels)
    return Accuracy(labels=data.labels, clean_labels=data.clean_labels)
