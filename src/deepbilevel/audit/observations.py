"""What a training run shows of every label, collected visit by visit; what follows from it is not this module's.

A *cell* is a label that can be right or wrong: one per sample, or one per sample and class where a sample has several
labels. Every visit counts the same, so order and processes do not matter. Giving later visits more weight helps while a
network still learns and hurts once it memorises.
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from deepbilevel.audit.curves import Curves

# Probabilities are kept in steps of 1/65535, as int16 with an offset: torch computes little with uint16.
_STEPS = 2**16 - 1
_OFFSET = 2**15
_GOLDEN = 40503  # 2**16 divided by the golden ratio
_CHUNK = 2**22  # numbers that are merged at once: 32 MB in float64


class Observations:
    """Running means over the visits of every sample.

    The mean probabilities are ``[samples, classes]`` in 16 bits. A mean that moves by less than half a step would stop
    moving, in float16 after some thousand visits, so what is added is rounded up or down in turns: a threshold that
    walks by the golden ratio rounds up as often as the fraction says. The error stays at a few steps, nothing is
    random, and there is no second buffer.

    Args:
        labels: int64 ``[samples]``, or bool ``[samples, classes]`` for several labels per sample.
        num_classes: how many classes there are.
        device: where the buffers are.
    """

    def __init__(self, labels: Tensor, num_classes: int, device: torch.device) -> None:
        self.labels = labels.to(device)
        self.num_classes = num_classes
        num_samples, cells = len(labels), labels.shape
        self._buffers: dict[str, Tensor] = {
            "probabilities": torch.full((num_samples, num_classes), -_OFFSET, dtype=torch.int16, device=device),
            "visits": torch.zeros(num_samples, dtype=torch.int32, device=device),
            "left_out": torch.zeros(num_samples, dtype=torch.int32, device=device),
            "margin": torch.zeros(cells, device=device),
            "hits": torch.zeros(cells, dtype=torch.int32, device=device),
            "agreement": torch.zeros(cells, device=device),
            "agreement_visits": torch.zeros(num_samples, dtype=torch.int32, device=device),
        }
        # Of one label, its probability and that of the strongest other class; of several labels, that of each class.
        self.curves = Curves(num_samples, num_classes if self.multi_label else 2, device)

    @property
    def multi_label(self) -> bool:
        """Whether a sample can have several labels."""
        return self.labels.ndim == 2

    @property
    def nbytes(self) -> int:
        """How much memory the labels and the buffers take."""
        return self.labels.nbytes + self.curves.points.nbytes + sum(each.nbytes for each in self._buffers.values())

    def __getitem__(self, name: str) -> Tensor:
        return self._buffers[name]

    def mean_probabilities(self) -> Tensor:
        """Return the mean predicted probabilities, float32 ``[samples, classes]``; NaN where there was no visit."""
        means = (self._buffers["probabilities"].float() + _OFFSET) / _STEPS
        if not self.multi_label:
            means /= means.sum(dim=1, keepdim=True)
        return torch.where(self._buffers["visits"][:, None] > 0, means, torch.nan)

    @torch.no_grad()
    def add(self, indices: Tensor, logits: Tensor, features: Tensor | None) -> None:
        """Add a visit of each of the samples; arguments are checked, ``indices`` are on the CPU."""
        device = self.labels.device
        logits = logits.detach().to(device, torch.float32)
        # An autocast region would take the products of the agreement in half precision.
        with torch.autocast(device.type, enabled=False):
            here = indices.to(device)
            labels = self.labels[here]
            margin = _margins(logits, labels)
            finite = torch.isfinite(logits).all(dim=1)
            probabilities = logits.sigmoid() if self.multi_label else logits.softmax(dim=1)
            seen: dict[str, Tensor] = {
                "finite": finite,
                "probabilities": probabilities,
                "margin": margin.clamp(-1e30, 1e30),  # a mean of larger ones would overflow
                "hits": margin > 0,  # a tie is no prediction
                "lines": probabilities if self.multi_label else _label_and_strongest_other(probabilities, labels),
                "places": self.curves.advance(len(indices)),
            }
            if features is not None:
                features = features.detach().to(device, torch.float32).flatten(1)
                seen["featured"] = finite & torch.isfinite(features).all(dim=1)
                seen["agreement"] = _agreement(logits, labels, features, seen["featured"])
        repeats = _count_repeats(indices)
        if repeats is None:
            self._add_distinct(here, seen)
            return
        for visit in range(int(repeats.max()) + 1):
            rows = (repeats == visit).nonzero()[:, 0].to(device)
            self._add_distinct(here[rows], {name: value[rows] for name, value in seen.items()})

    def _add_distinct(self, at: Tensor, seen: Mapping[str, Tensor]) -> None:
        """Add what was seen of samples that are all different. Nothing here waits for the device."""
        buffers, finite = self._buffers, seen["finite"]
        visits = buffers["visits"][at] + finite
        kept = buffers["probabilities"][at].int() + _OFFSET
        wanted = (seen["probabilities"] * _STEPS).clamp(0, _STEPS)
        threshold = (visits.long() * _GOLDEN % 2**16)[:, None] / 2**16
        moved = torch.floor((wanted - kept) / visits.clamp(min=1)[:, None] + threshold)
        moved = torch.where(finite[:, None], moved, 0).int()
        new = {
            "probabilities": (kept + moved - _OFFSET).short(),
            "margin": _moved_mean(buffers["margin"][at], seen["margin"], visits, finite),
            "hits": buffers["hits"][at] + (seen["hits"] & _like(finite, seen["hits"])),
            "left_out": buffers["left_out"][at] + ~finite,
            "visits": visits,
        }
        if "agreement" in seen:
            featured = seen["featured"]
            new["agreement_visits"] = buffers["agreement_visits"][at] + featured
            new["agreement"] = _moved_mean(
                buffers["agreement"][at], seen["agreement"], new["agreement_visits"], featured
            )
        for name, value in new.items():
            buffers[name][at] = value
        self.curves.set(at, seen["places"], seen["lines"], finite)

    def chunks(self) -> Iterator[slice]:
        """Yield the samples in parts that are merged at once; wide numbers of all would not always fit."""
        size = max(1, _CHUNK // (self.num_classes + 2 * self.curves.points[0].numel()))
        for start in range(0, len(self.labels), size):
            yield slice(start, start + size)

    def totals(self, rows: slice, clock: int) -> list[Tensor]:
        """Return sums over the visits, flat, in float64, on the CPU: those of several observations add up.

        Args:
            rows: of these samples.
            clock: the latest time of the curves of all these observations.
        """
        parts = {name: buffer[rows].cpu().double() for name, buffer in self._buffers.items()}
        parts["probabilities"] += _OFFSET
        for name, count in _COUNTED_BY.items():
            parts[name] *= _like(parts[count], parts[name])
        return [*(parts[name].flatten() for name in self._buffers), *self.curves.totals(rows, clock)]

    def set_totals(self, rows: slice, totals: list[Tensor]) -> None:
        """Take over sums over the visits."""
        *counted, points, num_points = (total.to("cpu") for total in totals)
        self.curves.set_totals(rows, points, num_points)
        parts = {
            name: total.view(self._buffers[name][rows].shape)
            for name, total in zip(self._buffers, counted, strict=True)
        }
        for name, count in _COUNTED_BY.items():
            parts[name] /= _like(parts[count], parts[name]).clamp(min=1)
        parts["probabilities"] = parts["probabilities"].round() - _OFFSET
        for name, part in parts.items():
            self._buffers[name][rows] = part.to(self._buffers[name].dtype).to(self.labels.device)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the buffers, and what the labels were."""
        return {"labels_checksum": self.labels_checksum, **{name: each.clone() for name, each in self._tensors.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of observations of the same labels; refused ones change nothing."""
        mine = self._tensors
        if set(state) != (expected := {"labels_checksum", *mine}):
            raise ValueError(
                f"state must have the keys {', '.join(sorted(expected))}, got {', '.join(map(str, state))}"
            )
        for name, buffer in mine.items():
            theirs = state[name]
            if not isinstance(theirs, Tensor) or theirs.shape != buffer.shape or theirs.dtype != buffer.dtype:
                found = f"{theirs.dtype} {tuple(theirs.shape)}" if isinstance(theirs, Tensor) else repr(theirs)
                raise ValueError(
                    f"state has {name} of {found}, this audit needs {buffer.dtype} {tuple(buffer.shape)}; "
                    "build it from the same labels and the same number of classes"
                )
        if int(state["labels_checksum"]) != self.labels_checksum:
            raise ValueError("state is of other labels than these; build the audit from the labels it was saved with")
        for name, buffer in mine.items():
            buffer.copy_(state[name])
        self.curves.clock = int(state["clock"])

    @property
    def _tensors(self) -> dict[str, Tensor]:
        return {**self._buffers, "curves": self.curves.points, "clock": torch.tensor(self.curves.clock)}

    @property
    def labels_checksum(self) -> int:
        """Tells labels apart."""
        return zlib.crc32(self.labels.cpu().numpy().tobytes())


# Means and their number of visits; all other buffers are counts.
_COUNTED_BY = {"probabilities": "visits", "margin": "visits", "agreement": "agreement_visits"}


def _margins(logits: Tensor, labels: Tensor) -> Tensor:
    """Return how far each cell's label is ahead: of the best other class, or of its opposite."""
    if labels.ndim == 2:
        return torch.where(labels, logits, -logits)
    given = logits.gather(1, labels[:, None])
    return (given - logits.scatter(1, labels[:, None], -torch.inf).amax(dim=1, keepdim=True))[:, 0]


def _label_and_strongest_other(probabilities: Tensor, labels: Tensor) -> Tensor:
    given = probabilities.gather(1, labels[:, None])
    return torch.cat([given, probabilities.scatter(1, labels[:, None], 0.0).amax(dim=1, keepdim=True)], dim=1)


def _agreement(logits: Tensor, labels: Tensor, features: Tensor, usable: Tensor) -> Tensor:
    """Return the cosine of each sample's last-layer gradient with the mean of the others', by cell.

    A sample's gradient is ``(p - y) h^T``, so its product with ``G``, the sum of all, is ``(p - y)^T G h``: one matrix
    product for all samples. Its own part, ``|p - y|^2 |h|^2``, is taken out again.
    """
    errors = torch.where(usable[:, None], _errors(logits, labels), 0.0)
    features = torch.where(usable[:, None], features, 0.0)
    total = errors.T @ features
    by_class = errors * (features @ total.T)
    own = errors.square() * features.square().sum(dim=1, keepdim=True)
    sq_own = own.sum(dim=1, keepdim=True)
    sq_total = total.square().sum()
    sq_others = sq_total - 2 * by_class.sum(dim=1, keepdim=True) + sq_own
    # What is left of a difference of nearly equal numbers is rounding: alone, a sample agrees with nobody.
    is_known = (sq_others > 1e-5 * (sq_total + sq_own)) & (sq_own > 0)
    norms = torch.where(is_known, sq_own.sqrt() * sq_others.clamp(min=0).sqrt(), 1.0)
    cosine = torch.where(is_known, (by_class - own) / norms, 0.0)
    return cosine if labels.ndim == 2 else cosine.sum(dim=1)


def _errors(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``p - y``, exact also where a probability is nearly 1."""
    if labels.ndim == 2:
        return torch.where(labels, -(-logits).sigmoid(), logits.sigmoid())
    others = logits.softmax(dim=1).scatter(1, labels[:, None], 0.0)
    return others.scatter(1, labels[:, None], -others.sum(dim=1, keepdim=True))


def _moved_mean(mean: Tensor, value: Tensor, visits: Tensor, counts: Tensor) -> Tensor:
    step = (value - mean) / _like(visits, mean).clamp(min=1)
    return mean + torch.where(_like(counts, mean), step, 0.0)


def _like(per_sample: Tensor, cells: Tensor) -> Tensor:
    return per_sample.view(-1, *(1,) * (cells.ndim - 1))


def _count_repeats(indices: Tensor) -> Tensor | None:
    """Return how often each sample was there before; nothing if all are different."""
    ordered, order = indices.sort(stable=True)
    is_new = torch.ones_like(ordered, dtype=torch.bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    if bool(is_new.all()):
        return None
    places = torch.arange(len(indices))
    return torch.empty_like(places).scatter(0, order, places - torch.where(is_new, places, 0).cummax(dim=0).values)
