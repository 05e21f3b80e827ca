"""What a run sees of every label: collected from passes it makes anyway, kept with its checkpoints and in its folder.

Images are counted as in their data set, whatever part of it is trained on. What follows from the observations is for
others to say.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from deepbilevel.audit import LabelAudit
from deepbilevel_lab.data import LabelledSet
from deepbilevel_lab.processes.one_process import OneProcess
from deepbilevel_lab.regular_files import read_regular
from deepbilevel_lab.replacement import replacing
from deepbilevel_lab.specs import canonical_json, from_plain
from deepbilevel_lab.training.packing import ENTRY, from_bytes, to_bytes
from deepbilevel_lab.training.spec import RunSpec


class RunAudit:
    """Observes the labels of a run.

    Args:
        train: the images trained on, observed at every training pass.
        tested: images of the same data set that are set aside for testing, observed whenever they are tested: their
            labels are as doubtful as the others.
        device: where the observations are kept.

    Attributes:
        numbers: which image of the data set each observed one is; in ascending order.
    """

    def __init__(self, train: LabelledSet, tested: LabelledSet | None, device: torch.device) -> None:
        sets = [train] if tested is None else [train, tested]
        self.numbers, order = torch.cat([_numbers(each) for each in sets]).sort()
        self._places = torch.empty_like(order)
        self._places[order] = torch.arange(len(order))
        self._num_trained = len(train)
        self._labels = torch.cat([each.labels for each in sets])[order]
        self._audit = LabelAudit(
            self._labels, num_classes=train.num_classes, device="cpu" if device.type == "mps" else device
        )
        self.observes_tests = tested is not None
        self._noted: list[tuple[Tensor, Tensor]] = []

    def observe(self, indices: Tensor, scores: Tensor) -> None:
        """Note a visit of training images; it counts at the end of the group."""
        self._noted.append((self._places[indices], scores.detach()))

    def end_group(self, processes: OneProcess, num_parts: int) -> None:
        """Add all visits of a group, whoever made them: so all processes have the same audit, and any one can save it.

        Args:
            processes: those that share the group's mini-batches.
            num_parts: how many mini-batches it has.
        """
        places, scores = torch.cat([each for each, _ in self._noted]), torch.cat([each for _, each in self._noted])
        self._noted.clear()
        if processes.size > 1:
            width = scores.shape[1]
            # In float64, which holds places and scores alike.
            rows = torch.column_stack([places.to(scores.device), scores.double()])
            num_own = len(processes.own(num_parts))
            rows = processes.rows_of_all(rows.view(num_own, -1), num_parts).view(-1, width + 1)
            places, scores = rows[:, 0].long(), rows[:, 1:]
        self._audit.observe(places, scores)

    def observe_tests(self, probabilities: Tensor) -> None:
        """Add a visit of all images set aside for testing."""
        indices = torch.arange(self._num_trained, self._num_trained + len(probabilities))
        self._audit.observe(self._places[indices], probabilities.clamp(min=1e-30).log())

    @contextmanager
    def watching(self, model: nn.Module, indices: Tensor, images: Tensor) -> Generator[None]:
        """Observe the first pass of these very images, whoever makes it."""
        waits = True

        def catch(_: nn.Module, inputs: tuple[Any, ...], scores: Tensor) -> None:
            nonlocal waits
            if waits and inputs[0] is images:
                waits = False
                self.observe(indices, scores)

        hook = model.register_forward_hook(catch)
        try:
            yield
        finally:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return what was observed so far."""
        return self._audit.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._audit.load_state_dict(state)

    def save(self, path: Path, class_names: tuple[str, ...], spec: RunSpec) -> None:
        """Write the observations, whole or not at all."""
        state = self.state_dict()
        about = {
            "spec": json.loads(canonical_json(spec)),
            "class_names": class_names,
            "labels_checksum": state.pop("labels_checksum"),
        }
        tensors = {"labels": self._labels, "numbers": self.numbers, **state}
        content = to_bytes({name: each.cpu().contiguous() for name, each in tensors.items()}, json.dumps(about))
        with replacing(path) as stream:
            stream.write(content)


def _numbers(data: LabelledSet) -> Tensor:
    return torch.arange(len(data)) if data.numbers is None else data.numbers


@dataclass(frozen=True, eq=False)
class KeptAudit:
    """The observations of a finished run; ``numbers`` says which image of its data set each observed one is."""

    audit: LabelAudit
    numbers: Tensor
    class_names: tuple[str, ...]
    spec: RunSpec


def load_audit(path: Path) -> KeptAudit:
    """Read what :meth:`RunAudit.save` wrote."""
    content = read_regular(path)
    try:
        entries, tensors = from_bytes(content)
        about = json.loads(entries[ENTRY])
        class_names = tuple(about["class_names"])
        labels, numbers = tensors.pop("labels"), tensors.pop("numbers")
        is_numbering = numbers.dtype == torch.int64 and numbers.shape == labels.shape and numbers.numel() > 0
        if not is_numbering or int(numbers.min()) < 0:
            raise ValueError("its numbers do not say which images were observed")
        audit = LabelAudit(labels, num_classes=len(class_names))
        audit.load_state_dict({**tensors, "labels_checksum": about["labels_checksum"]})
        return KeptAudit(audit, numbers, class_names, from_plain(RunSpec, about["spec"]))
    except Exception as error:  # a stranger's file can fail anywhere: JSON and its depth, the spec, torch
        raise ValueError(f"{path} is damaged: {error}; put back a copy of it, or train the run again") from error
