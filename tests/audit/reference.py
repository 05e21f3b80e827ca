"""The audit as a textbook would write it: one sample after the other, every visit kept, in float64."""

import numpy as np
import torch


class ReferenceAudit:
    """Keeps every visit; labels are ``[samples]``, or a 0/1 matrix ``[samples, classes]``."""

    def __init__(self, labels):
        self.labels = np.asarray(labels)
        self.visits = [[] for _ in self.labels]  # logits
        self.cosines = [[] for _ in self.labels]

    def observe(self, indices, logits, features=None):
        logits = np.asarray(logits, dtype=np.float64)
        used = np.isfinite(logits).all(axis=1)
        for index, row in zip(indices, logits, strict=True):
            if np.isfinite(row).all():
                self.visits[index].append(row)
        if features is None:
            return
        features = np.asarray(features, dtype=np.float64)
        gradients = [
            np.outer(self._probabilities(row) - self._target(index), feature)
            if ok
            else np.zeros((len(row), len(feature)))
            for index, row, feature, ok in zip(indices, logits, features, used, strict=True)
        ]
        for position, index in enumerate(indices):
            if not used[position]:
                continue
            others = sum(each for other, each in enumerate(gradients) if other != position)
            products = (gradients[position] * others).sum(axis=1)
            norms = np.linalg.norm(gradients[position]) * np.linalg.norm(others)
            cosines = products / norms if norms > 0 else 0 * products
            self.cosines[index].append(cosines if self.labels.ndim == 2 else cosines.sum())

    def _probabilities(self, logits):
        if self.labels.ndim == 2:
            return 1 / (1 + np.exp(-logits))
        exponentials = np.exp(logits - logits.max())
        return exponentials / exponentials.sum()

    def _target(self, index):
        label = self.labels[index]
        return label.astype(float) if self.labels.ndim == 2 else np.eye(self._num_classes)[label]

    @property
    def _num_classes(self):
        return next(len(visits[0]) for visits in self.visits if visits)

    def pred_probs(self):
        unknown = np.full(self._num_classes, np.nan)
        return np.array(
            [np.mean([self._probabilities(v) for v in vs], axis=0) if vs else unknown for vs in self.visits]
        )

    def scores(self, name):
        if name == "contrast":
            return np.array(
                [self._contrast(label, row) for label, row in zip(self.labels, self.pred_probs(), strict=True)]
            )
        if name == "agreement":
            cell = np.full(self.labels.shape[1:], np.nan)
            return np.array([np.mean(each, axis=0) if each else cell for each in self.cosines])
        return np.array(
            [self._score_of(name, label, visits) for label, visits in zip(self.labels, self.visits, strict=True)]
        )

    def _contrast(self, label, means):
        odds = np.log((means + 1e-3) / (1 - means + 1e-3))
        if self.labels.ndim == 2:
            return np.where(label == 1, odds, -odds)
        return odds[label] - np.delete(odds, label).max() / 2

    def _score_of(self, name, label, visits):
        if not visits:
            return np.full(self.labels.shape[1:], np.nan)
        return np.mean([self._at_visit(name, label, logits) for logits in visits], axis=0)

    def _at_visit(self, name, label, logits):
        if self.labels.ndim == 2:
            signed = np.where(label == 1, logits, -logits)
            return {"probability": 1 / (1 + np.exp(-signed)), "margin": signed, "hit_rate": signed > 0}[name]
        margin = logits[label] - np.delete(logits, label).max()
        return {"probability": self._probabilities(logits)[label], "margin": margin, "hit_rate": margin > 0}[name]


def visits_of_epochs(num_samples, num_classes, epochs, *, batch_size=16, width=5, seed=0):
    """Yield indices, logits and features of shuffled epochs."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for indices in torch.randperm(num_samples, generator=random).split(batch_size):
            logits = 3 * torch.randn(len(indices), num_classes, generator=random)
            yield indices, logits, torch.randn(len(indices), width, generator=random)
