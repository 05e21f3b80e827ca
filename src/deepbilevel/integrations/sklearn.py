"""scikit-learn: a classifier for tables whose labels cannot be trusted.

    NoisyLabelClassifier(rule="cross-validated").fit(x, y).predict(x)

A small network trained by any rule, usable in pipelines, cross-validation and searches. Files are in
``sklearn_files.py``.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from os import PathLike
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel.checks import check_count
from deepbilevel.contract import Rule
from deepbilevel.distributed import share
from deepbilevel.rules.catalog import find_rule
from deepbilevel.sampling import MatchedGroups
from deepbilevel.shared_dropout import seeded
from deepbilevel.step import GroupStep

# pyright: reportMissingTypeStubs=false
try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"{error}; run: pip install 'deepbilevel[sklearn]'") from error

__all__ = ["NoisyLabelClassifier"]

_ROWS_AT_ONCE = 4096  # when predicting
_STEPS_PER_EPOCH = 4  # at least, where there are enough samples
_ROUNDING = 8 * np.finfo(np.float64).eps  # of values that are the same, relative to their size


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):
    """A neural network trained on labels of which some are wrong.

    Features are standardised. ``fit`` takes no ``sample_weight``: rules compare whole mini-batches, in which weights of
    single samples have no meaning yet.

    >>> import numpy as np
    >>> x = np.concatenate([np.linspace(-2, -1, 50), np.linspace(1, 2, 50)])[:, None]
    >>> model = NoisyLabelClassifier(epochs=5, random_state=0).fit(x, ["low"] * 50 + ["high"] * 50)
    >>> model.predict([[-1.5], [1.5]]).tolist()
    ['low', 'high']

    Args:
        rule: how the gradients of a group become one: a name, such as ``"cross-validated"``, ``"bilevel"`` or
            ``"sgd"``, or a rule with its settings.
        network: called with the numbers of features and classes, returns a module that maps rows to logits; a
            perceptron by default.
        hidden_sizes: the hidden layers of that perceptron.
        num_batches: k, the number of mini-batches in a group; fewer if there are few samples.
        batch_size: how many samples each of them has; fewer if there would be less than 4 steps in an epoch.
        epochs: how often all samples are visited.
        learning_rate: of SGD with momentum 0.9, at the start; a cosine schedule lets it go to zero.
        weight_decay: of the optimizer.
        device: where to train; predictions are made on the CPU.
        random_state: determines everything that is drawn.

    Attributes:
        classes_: the labels, sorted.
        network_: the trained module, on the CPU in double precision.
        mean_: of the features.
        scale_: of the features, their standard deviation; 1 where a feature is constant.
        group_shape_: mini-batches of a group, and samples of each, as they were used.
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[Any]

    def __init__(
        self,
        rule: str | Rule[Any] = "cross-validated",
        network: Callable[[int, int], nn.Module] | None = None,
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        num_batches: int = 8,
        batch_size: int = 16,
        epochs: int = 50,
        learning_rate: float = 0.1,
        weight_decay: float = 1e-4,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.rule = rule
        self.network = network
        self.hidden_sizes = hidden_sizes
        self.num_batches = num_batches
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "NoisyLabelClassifier":  # noqa: N803
        """Train on rows and their labels; what was learned before is forgotten."""
        rule = self.rule if isinstance(self.rule, Rule) else find_rule(self.rule)()
        for name, least in (("num_batches", max(2, rule.min_batches)), ("batch_size", 1), ("epochs", 1)):
            check_count(name, getattr(self, name), least, remedy="see the documentation of NoisyLabelClassifier")
        rows, y = cast(tuple[Any, Any], validate_data(self, X, y, dtype=np.float64))
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}; a classifier needs at least two")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.mean_, self.scale_ = rows.mean(axis=0), rows.std(axis=0)
        # Rounding gives a constant 0.1 a tiny deviation; divided by it, any other value would outweigh all features.
        varies = np.ptp(rows, axis=0) > _ROUNDING * np.abs(rows).max(axis=0)
        self.scale_[~(varies & (self.scale_ > 0))] = 1.0
        device = torch.device(self.device)
        with seeded(seed, device):
            network = self.make_network(rows.shape[1]).to(device, torch.float32)
            self._train(network, rule, self._standardised(rows).float().to(device), labels, seed)
        self.network_ = network.to("cpu", torch.float64).eval()
        return self

    def make_network(self, num_features: int) -> nn.Module:
        """Return a network for these classes that has learned nothing."""
        if self.network is not None:
            return self.network(num_features, len(self.classes_))
        sizes = [num_features, *self.hidden_sizes]
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers += [nn.Linear(size, next_size), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], len(self.classes_)))

    def _train(
        self, network: nn.Module, rule: Rule[Any], rows: Tensor, labels: npt.NDArray[np.int64], seed: int
    ) -> None:
        optimizer = torch.optim.SGD(
            network.parameters(), lr=self.learning_rate, momentum=0.9, weight_decay=self.weight_decay
        )
        num_batches, batch_size = self.group_shape_ = self._fitting_groups(rule, labels)
        groups = MatchedGroups(
            labels,
            num_batches=num_batches,
            batch_size=batch_size,
            seed=seed,
            matched=rule.matches,
            on_rare="repeat",
        ).alone()
        step = share(
            GroupStep(network, rule, num_batches=num_batches, optimizer=optimizer if rule.shrinks_updates else None),
            "nothing",
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.epochs * groups.num_groups)
        targets = torch.from_numpy(labels).to(rows.device)
        network.train()
        for _ in range(self.epochs):
            for indices in groups:
                step.backward(F.cross_entropy(network(rows[indices]), targets[indices]))
                if step.full:
                    step.fill()
                    optimizer.step()
                    schedule.step()

    def _fitting_groups(self, rule: Rule[Any], labels: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Return k and the size of mini-batches, small enough for these samples."""
        least = max(2, rule.min_batches)
        if len(labels) < least:
            raise ValueError(f"n_samples={len(labels)} cannot be split into {least} mini-batches; bring more samples")
        num_batches = max(least, min(self.num_batches, len(labels) // (4 * _STEPS_PER_EPOCH)))
        # A class with fewer samples than mini-batches comes once in each, with samples that repeat.
        room = np.maximum(np.bincount(labels) // num_batches, 1).sum() if rule.matches else len(labels) // num_batches
        wanted = len(labels) // (num_batches * _STEPS_PER_EPOCH)
        return num_batches, max(1, min(self.batch_size, wanted, int(room)))

    def _standardised(self, rows: npt.NDArray[np.float64]) -> Tensor:
        return torch.from_numpy((rows - self.mean_) / self.scale_)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:  # noqa: N803
        """Return the probability of each of ``classes_``, shape ``[rows, classes]``."""
        check_is_fitted(self)
        rows = cast(npt.NDArray[np.float64], validate_data(self, X, dtype=np.float64, reset=False))
        with torch.no_grad():
            parts = [self.network_(part).softmax(dim=1) for part in self._standardised(rows).split(_ROWS_AT_ONCE)]
        return torch.cat(parts).numpy()

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        """Return the most probable label of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the trained classifier to a file that cannot hold code; :meth:`load` reads it."""
        from deepbilevel.integrations.sklearn_files import write_classifier  # which imports this module

        check_is_fitted(self)
        write_classifier(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        network: Callable[[int, int], nn.Module] | None = None,
        rule: str | Rule[Any] | None = None,
    ) -> "NoisyLabelClassifier":
        """Read what :meth:`save` has written.

        Args:
            path: of the file.
            network: makes the network, if it was trained with one of one's own; files hold no code.
            rule: the same, for a rule of one's own.
        """
        from deepbilevel.integrations.sklearn_files import read_classifier  # which imports this module

        return read_classifier(cls, path, network, rule)
