"""The training loop: from wherever it stands to the end of the run, one group at a time.

The loop yields after every group and every evaluated batch. Whoever drives it may save, show progress or stop between
two yields; at each of them the state is complete. It writes no file and knows no signal.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from deepbilevel_lab.records import Row, to_json
from deepbilevel_lab.training.build import Parts
from deepbilevel_lab.training.evaluation import make_metric, predict
from deepbilevel_lab.training.feeding import Batch, Feed
from deepbilevel_lab.training.step_log import StepLog
from deepbilevel_lab.training.streams import restore_streams, save_streams

_SHOWN_IMAGES = 8


class DivergedError(RuntimeError):
    """Training has stopped making sense; going on would waste time and ruin the network."""


@dataclass(frozen=True)
class Progress:
    """Where the loop stands.

    Attributes:
        epoch: counted from 0.
        done: groups trained on, or images evaluated, of ``total``.
        stage: ``train``, ``evaluate``, or ``epoch`` when one is over and its row stands in the history.
        samples: images trained on since this process started.
    """

    epoch: int
    stage: str
    done: int
    total: int
    samples: int


@dataclass
class Clock:
    """Seconds a run has taken, over all the processes that worked on it."""

    wall: float = 0.0
    cpu: float = 0.0
    training: float = 0.0
    _started: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), time.process_time()))

    def totals(self) -> dict[str, float]:
        """Return the seconds so far."""
        wall, cpu = self._started
        return {
            "wall": self.wall + time.perf_counter() - wall,
            "cpu": self.cpu + time.process_time() - cpu,
            "training": self.training,
        }


class TrainingLoop:
    """A run under way.

    Attributes:
        epoch: the epoch under way, counted from 0; the number of epochs when the run is over.
        group: how many groups of it are trained on.
        history: a row of metrics per evaluated epoch.
        steps: the log of the epoch under way.
        finished_steps: that of the epoch before it.
        samples: images trained on since this process started.
        report: what the last step said.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.epoch = 0
        self.group = 0
        self.history: list[Row] = []
        self.steps = StepLog()
        self.finished_steps: dict[str, Tensor] = {}
        self.clock = Clock()
        self.samples = 0
        self.report: Any = None
        self._zeroed_in_a_row = 0
        self._sampler_state = parts.groups.state_dict()

    def run(self) -> Iterator[Progress]:
        """Train to the end."""
        spec = self.parts.spec
        while self.epoch < spec.epochs:
            yield from self._train()
            lr = max(settings["lr"] for settings in self.parts.optimizer.param_groups)  # of the last step
            scores: dict[str, float] = {}
            if (self.epoch + 1) % spec.evaluate_every == 0 or self.epoch + 1 == spec.epochs:
                yield from self._evaluate("train", self.parts.rated, 1, scores)
                if self.parts.selection is not None:
                    yield from self._evaluate("selection", self.parts.selection, 1, scores)
                yield from self._evaluate("test", self.parts.test, spec.data.test_crops, scores)
                scores["gap"] = scores["train"] - scores["test"]
            row = Row(epoch=self.epoch + 1, lr=float(lr), **self.steps.summary())
            self.history.append(replace(row, **scores))
            self.finished_steps = self.steps.columns()
            done = self._progress("epoch", self.group, self.group)
            # Before the yield: a state saved there must begin with the next epoch.
            self.epoch, self.group = self.epoch + 1, 0
            self.steps.clear()
            yield done
        if self._zeroed_in_a_row >= self.parts.groups.num_groups:
            raise DivergedError(f"nothing was learned in the last {self._zeroed_in_a_row} steps of the run")

    def _train(self) -> Iterator[Progress]:
        parts = self.parts
        total = parts.groups.num_groups
        if self.group == total:
            return  # stopped while it was evaluated
        parts.model.train()
        parts.groups.load_state_dict(self._sampler_state)
        start = time.perf_counter()
        if parts.objective is not None and self.group == 0:
            parts.objective.begin_epoch(self.epoch, self._predict_training_set)
        own = parts.processes.own(parts.num_parts)
        for batches in parts.train.groups(parts.groups, self.epoch, self.group, num_parts=parts.num_parts, own=own):
            self._step(batches)
            self.group += 1
            self.samples += parts.spec.group.size
            self._sampler_state = parts.groups.state_dict(num_groups=self.group)
            self.clock.training += time.perf_counter() - start
            yield self._progress("train", self.group, total)
            start = time.perf_counter()

    def _predict_training_set(self) -> Tensor:
        parts = self.parts
        everything = predict(parts.model, parts.train, autocast=parts.autocast, processes=parts.processes)
        return torch.cat([each for _, each in everything])

    def _step(self, batches: list[Batch]) -> None:
        parts = self.parts
        for settings in parts.optimizer.param_groups:
            settings["lr"] = parts.spec.optimizer.lr * self._lr_factor() * settings.get("lr_scale", 1.0)
        report = parts.step(batches)
        if parts.audit is not None:
            parts.audit.end_group(parts.processes, parts.num_parts)
        if parts.scaler is None:
            self._check(report)
            parts.optimizer.step()
        else:
            parts.scaler.step(parts.optimizer)
            parts.scaler.update()
            self._check(report)
        parts.optimizer.zero_grad(set_to_none=True)
        if parts.averaged is not None:
            parts.averaged.update_parameters(parts.model)
        self.steps.add(report)
        self.report = report

    def _lr_factor(self) -> float:
        epoch = self.epoch + min(self.group / self.parts.groups.num_groups, 1.0)
        return self.parts.spec.schedule.factor(epoch, self.parts.spec.epochs)

    def _check(self, report: Any) -> None:
        """Stop at a loss that is not finite, a plain gradient that is not, or too many steps without learning."""
        parts = self.parts
        bad = torch.nonzero(~torch.isfinite(report.losses)).flatten().tolist()
        if bad:
            raise DivergedError(f"the loss of {self._where(bad[0])} is {report.losses[bad[0]].item()}")
        self._zeroed_in_a_row = 0 if report.applied else self._zeroed_in_a_row + 1
        if self._zeroed_in_a_row >= parts.spec.zeroed_steps:
            bad = torch.nonzero(~report.finite).flatten().tolist()
            why = f"the gradient of {self._where(bad[0])} was not finite" if bad else "all weights were zero"
            raise DivergedError(f"nothing was learned in {self._zeroed_in_a_row} consecutive steps; in the last, {why}")
        if parts.scaler is None and not parts.method.rule.tolerates_bad_batches and not bool(report.finite.all()):
            first = int(torch.nonzero(~report.finite)[0])
            raise DivergedError(f"the gradient of {self._where(first)} is not finite")

    def _where(self, number: int) -> str:
        parts = self.parts
        # Drawn again: another process may have had this mini-batch.
        parts.groups.load_state_dict(self._sampler_state)
        group = torch.tensor(list(islice(parts.groups, parts.groups.num_batches)))
        images = group.flatten().chunk(parts.num_parts)[number].tolist()
        shown = ", ".join(map(str, images[:_SHOWN_IMAGES])) + (", ..." if len(images) > _SHOWN_IMAGES else "")
        step = self.epoch * self.parts.groups.num_groups + self.group + 1
        return f"mini-batch {number} of step {step} (epoch {self.epoch + 1}, training images {shown})"

    def _evaluate(self, name: str, feed: Feed, crops: int, scores: dict[str, float]) -> Iterator[Progress]:
        parts, metric = self.parts, make_metric(feed)
        done, kept = 0, list[Tensor]()
        is_audited = name == "test" and parts.audit is not None and parts.audit.observes_tests
        for indices, probabilities in predict(
            parts.result, feed, crops=crops, autocast=parts.autocast, processes=parts.processes
        ):
            metric.add(indices, probabilities)
            done += len(indices)
            if is_audited:
                kept.append(probabilities)
            yield self._progress("evaluate", done, len(feed.data))
        if is_audited and parts.audit is not None:  # not before: a run that is stopped above evaluates all again
            parts.audit.observe_tests(torch.cat(kept))
        for labels, score in metric.result().items():
            scores[name if labels == "labels" else f"{name}_clean"] = score

    def _progress(self, stage: str, done: int, total: int) -> Progress:
        return Progress(self.epoch, stage, done, total, self.samples)

    def check_parameters(self) -> None:
        """Refuse a network that has become useless; such a state must not replace a good checkpoint."""
        learned = {} if self.parts.objective is None else dict(self.parts.objective.named_parameters(prefix="loss"))
        for name, parameter in {**dict(self.parts.model.named_parameters()), **learned}.items():
            if not bool(torch.isfinite(parameter).all()):
                step = self.epoch * self.parts.groups.num_groups + self.group
                raise DivergedError(f"after step {step} the parameter {name} is not finite")

    def state_dict(self) -> dict[str, Any]:
        """Return everything that decides how the run goes on; between two yields."""
        parts = self.parts
        return {
            "spec": parts.spec.id,
            "epoch": self.epoch,
            "group": self.group,
            "model": parts.model.state_dict(),
            "averaged": None if parts.averaged is None else parts.averaged.state_dict(),
            "objective": None if parts.objective is None else parts.objective.state_dict(),
            "optimizer": parts.optimizer.state_dict(),
            "scaler": None if parts.scaler is None else parts.scaler.state_dict(),
            "method": parts.method.state_dict(),
            "sampler": self._sampler_state,
            "random": save_streams(),
            "history": to_json(self.history),
            "steps": self.steps.state_dict(),
            "zeroed_in_a_row": self._zeroed_in_a_row,
            "clock": self.clock.totals(),
            **({} if parts.audit is None else {"audit": parts.audit.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was called."""
        parts = self.parts
        if state["spec"] != parts.spec.id:
            raise ValueError(
                f"the checkpoint belongs to run {state['spec']}, this is {parts.spec.id}; move it to where it came "
                "from, or start again with --no-resume"
            )
        parts.model.load_state_dict(state["model"])
        if parts.averaged is not None:
            parts.averaged.load_state_dict(state["averaged"])
        if parts.objective is not None:
            parts.objective.load_state_dict(state["objective"])
        parts.optimizer.load_state_dict(state["optimizer"])
        if parts.scaler is not None:
            parts.scaler.load_state_dict(state["scaler"])
        # Version 0.1 wrote settings alone, which the id has vouched for, and what `momentum` remembers elsewhere.
        if "rule" in state["method"]:
            parts.method.load_state_dict(state["method"])
        elif state["method"].get("validation_average") is not None:
            raise ValueError(
                "the checkpoint was written by deepbilevel 0.1, whose average of validation gradients is not read any "
                "more; finish the run with that version, or start again with --no-resume"
            )
        parts.groups.load_state_dict(state["sampler"])  # refuses other labels than the run began with
        self._sampler_state = state["sampler"]
        self.epoch, self.group = state["epoch"], state["group"]
        self.history = [Row(**row) for row in state["history"]]
        self.steps.load_state_dict(state["steps"])
        self._zeroed_in_a_row = state["zeroed_in_a_row"]
        self.clock = Clock(**state["clock"])
        if parts.audit is not None:
            parts.audit.load_state_dict(state["audit"])
        restore_streams(state["random"])
