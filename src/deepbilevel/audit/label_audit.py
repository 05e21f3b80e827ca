"""Which labels are wrong: observations of a training run in, a ranked table out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepbilevel.audit.inputs import Array, as_tensor, check_rows, read_indices, read_labels
from deepbilevel.audit.mixture import Floats, Ints, NoiseRate, judge_scores
from deepbilevel.audit.observations import Observations
from deepbilevel.audit.scores import Score, has_learned, score_labels, std_of_wrong, to_normal
from deepbilevel.audit.table import Issues
from deepbilevel.checks import check_count
from deepbilevel.distributed.ranks import find_ranks

if TYPE_CHECKING:  # a torch built without distribution has no such class
    from torch.distributed import ProcessGroup


class LabelAudit:
    """Collects the predictions of a training run for every label, and says which labels are probably wrong.

    Works in any loop, with any rule or none: call :meth:`observe` with the logits of the training pass, then
    :meth:`issues`. No further pass is needed.

    >>> truth = torch.arange(100) % 4
    >>> labels = truth.clone()
    >>> labels[:10] = (truth[:10] + 1) % 4  # wrong
    >>> audit = LabelAudit(labels, num_classes=4)
    >>> for epoch in range(3):
    ...     logits = 4 * torch.nn.functional.one_hot(truth) + torch.randn(100, 4)  # of a network that has learned
    ...     audit.observe(range(100), logits)
    >>> issues = audit.issues()
    >>> sorted(issues.index[issues.is_label_issue].tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

    The buffers take ``2 * classes + 96`` bytes per sample: 5.8 MB for 50,000 samples of 10 classes. For several
    labels per sample they take ``47 * classes + 12``. The curves are 64 and ``32 * classes`` of them.

    Args:
        labels: as they are trained on: a class per sample, or a 0/1 matrix ``[samples, classes]`` where a sample can
            have several labels or none.
        num_classes: how many classes the network distinguishes.
        device: where the buffers are. With a network on a GPU, its device saves waiting for the logits at every visit.
    """

    def __init__(self, labels: Array, *, num_classes: int, device: torch.device | str = "cpu") -> None:
        num_classes = check_count("num_classes", num_classes, 1, remedy="it is the number of logits per sample")
        self._seen = Observations(read_labels(labels, num_classes), num_classes, torch.device(device))

    def __len__(self) -> int:
        return len(self._seen.labels)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """The labels as given."""
        return self._seen.labels.cpu().numpy().astype(np.int64)

    @property
    def visits(self) -> npt.NDArray[np.int64]:
        """How often each sample was observed; visits that were left out do not count."""
        return self._seen["visits"].cpu().numpy().astype(np.int64)

    @property
    def nbytes(self) -> int:
        """How much memory the observations take."""
        return self._seen.nbytes

    def observe(
        self, indices: Array, logits: Tensor, *, features: Tensor | None = None, labels: Array | None = None
    ) -> None:
        """Add one visit of each of the samples; a sample that is there several times is visited several times.

        A sample with a NaN or infinite logit is left out and counted. If an argument is refused, nothing changes.

        Args:
            indices: which samples, numbers from 0. On the CPU, as a ``DataLoader`` has them: reading them from a GPU
                waits for it.
            logits: what the network says, ``[batch, classes]``, before softmax or sigmoid. Gradients do not flow.
            features: what the last layer was given, ``[batch, width]``: needed for the score ``agreement``, which
                compares each sample with the others of this call.
            labels: what was trained on, if it is to be checked that it is still what the audit was given.
        """
        at = read_indices(indices, len(self))
        check_rows("logits", logits, len(at))
        if logits.ndim != 2 or logits.shape[1] != self._seen.num_classes:
            raise ValueError(
                f"logits must have shape [batch, {self._seen.num_classes}], got {tuple(logits.shape)}; num_classes of "
                "the audit and the network's last layer must be the same"
            )
        if features is not None:
            check_rows("features", features, len(at))
        if labels is not None:
            self._check_same_labels(at, labels)
        self._seen.add(at, logits, features)

    def pred_probs(self) -> npt.NDArray[np.float32]:
        """Return the mean predicted probabilities ``[samples, classes]``; rows of NaN for samples never visited."""
        return self._seen.mean_probabilities().cpu().numpy()

    def curves(self, indices: Array | None = None) -> npt.NDArray[np.float32]:
        """Return how the predicted probabilities of samples moved in the course of training.

        Args:
            indices: which samples; all of them by default.

        Returns:
            ``[samples, points, 2]``: the probability of the given label, and that of the strongest other class. For
            several labels per sample ``[samples, points, classes]``: that of each class. Up to 32 points divide the
            training evenly, and each has the last visit within its part; NaN where there was none.
        """
        at = torch.arange(len(self)) if indices is None else read_indices(indices, len(self))
        return self._seen.curves.read(at.to(self._seen.labels.device)).cpu().numpy()

    def scores(self, name: Score = "contrast") -> Floats:
        """Return a score of every label; low ones are suspicious, NaN where nothing is known.

        Args:
            name: ``probability``, the mean predicted probability of the label; ``contrast``, the log-odds of that minus
                half those of the best other class; ``margin``, the mean logit margin (AUM): the label's logit minus the
                largest other; ``hit_rate``, the share of visits at which the label was predicted; or ``agreement``, the
                mean cosine of the sample's last-layer gradient with that of the others of its mini-batch.

        Returns:
            ``[samples]``, or ``[samples, classes]`` for several labels per sample. There a score is that of the class
            being present or absent as given: ``contrast`` are the log-odds, ``margin`` is the logit with that sign.
        """
        return score_labels(self._seen, name)

    def issues(self, score: Score = "contrast") -> Issues:
        """Return all labels, the most suspicious first, with the probability that they are wrong.

        Args:
            score: what to judge by; see :meth:`scores`.
        """
        scores, labels, seen = self.scores(score), self.labels, self._seen
        unvisited = self.visits == 0
        p_wrong, noise_rate, missing_rate = self._judge(score, scores, labels)
        is_issue = p_wrong > 0.5  # false for NaN
        likely = np.nan_to_num(self.pred_probs())
        if seen.multi_label:
            predicted = np.where(is_issue, 1 - labels, likely > 0.5)
        else:
            likely[is_issue, labels[is_issue]] = -1
            predicted = likely.argmax(axis=1)
        predicted[unvisited] = -1
        # NaN is sorted last; among equally probable ones the score decides, then the index.
        order = np.lexsort((scores.ravel(), -p_wrong.ravel()))
        cells = np.unravel_index(order, labels.shape)
        return Issues(
            index=cells[0],
            given_label=labels[cells],
            predicted_label=predicted[cells],
            label_score=scores[cells],
            is_label_issue=is_issue[cells],
            p_wrong=p_wrong[cells],
            class_index=cells[1] if seen.multi_label else None,
            noise_rate=noise_rate,
            missing_rate=missing_rate,
            num_unvisited=int(unvisited.sum()),
            num_left_out=int(seen["left_out"].sum()),
        )

    def merged(self, *others: "LabelAudit") -> "LabelAudit":
        """Return an audit of all visits of this one and the others, which are of the same labels; none changes.

        In the curves, the audits ran side by side: what they saw in the same part of training is averaged.
        """
        for other in others:
            self._check_same_audit(other)
        parts = [self._seen, *(other._seen for other in others)]
        whole = self._blank()
        whole._seen.curves.clock = clock = max(part.curves.clock for part in parts)
        for rows in whole._seen.chunks():
            totals = zip(*(part.totals(rows, clock) for part in parts), strict=True)
            whole._seen.set_totals(rows, [torch.stack(each).sum(dim=0) for each in totals])
        return whole

    def gathered(
        self, process_group: "ProcessGroup | None" = None, *, device: torch.device | str = "cpu"
    ) -> "LabelAudit":
        """Return an audit of the visits of all processes; called by all of them, and the same in all of them.

        Each process's own stays as it is and can go on observing.

        Args:
            process_group: ``None`` takes all processes.
            device: what the processes exchange is put there; NCCL needs a GPU.
        """
        ranks = find_ranks(process_group)
        if ranks is None:
            return self.merged()
        labels = self._seen.labels
        mine = [len(labels), labels.ndim, self._seen.num_classes, self._seen.labels_checksum]
        numbers = ranks.numbers_of_all([*mine, self._seen.curves.clock], torch.device(device))
        if any(theirs[:-1] != mine for theirs in numbers):
            raise ValueError("processes audit different labels; build the audit from the whole data set in all of them")
        whole = self._blank()
        whole._seen.curves.clock = clock = max(theirs[-1] for theirs in numbers)
        for rows in whole._seen.chunks():
            whole._seen.set_totals(rows, ranks.add_up([each.to(device) for each in self._seen.totals(rows, clock)]))
        return whole

    def state_dict(self) -> dict[str, Any]:
        """Return everything observed so far, as tensors and a number."""
        return self._seen.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, bit for bit; one of other labels is refused, and nothing changes."""
        self._seen.load_state_dict(state)

    def _blank(self) -> "LabelAudit":
        return LabelAudit(self._seen.labels, num_classes=self._seen.num_classes, device=self._seen.labels.device)

    def _judge(self, score: Score, scores: Floats, labels: Ints) -> tuple[Floats, NoiseRate, NoiseRate | None]:
        """Return the probability that each label is wrong, and the shares of wrong and of missing ones."""
        seen, scores = self._seen, to_normal(self._seen, score, scores)
        if not seen.multi_label:
            wrong_std = std_of_wrong(seen, score)
            return *judge_scores(scores, labels, seen.num_classes, wrong_std=wrong_std), None
        p_wrong, rates = np.full(scores.shape, np.nan), list[NoiseRate]()
        if not has_learned(seen):
            return p_wrong, NoiseRate(), NoiseRate()
        for value in (1, 0):  # given and absent labels have nothing in common: most are absent, and rightly so
            cells, wrong_std = labels == value, std_of_wrong(seen, score, value)
            p_wrong[cells], rate = judge_scores(
                scores[cells], cells.nonzero()[1], seen.num_classes, wrong_std=wrong_std
            )
            rates.append(rate)
        return p_wrong, rates[0], rates[1]

    def _check_same_labels(self, at: Tensor, labels: Array) -> None:
        now = as_tensor(labels)
        known = self._seen.labels[at.to(self._seen.labels.device)].cpu()
        if now.shape != known.shape:
            raise ValueError(f"labels must have shape {tuple(known.shape)}, got {tuple(now.shape)}; one per index")
        changed = (now != known).nonzero()
        if len(changed):
            row = int(changed[0, 0])
            raise ValueError(
                f"labels of sample {int(at[row])} are {now[row].tolist()}, the audit was given {known[row].tolist()}; "
                "observe with the labels it was built from, or build a new audit from the changed ones"
            )

    def _check_same_audit(self, other: "LabelAudit") -> None:
        if other._seen.num_classes != self._seen.num_classes or not np.array_equal(other.labels, self.labels):
            raise ValueError("audits of different labels cannot be merged; build each from the whole data set's labels")
