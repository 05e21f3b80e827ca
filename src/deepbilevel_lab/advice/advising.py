"""Running the stages one after another, and asking the finalists about the images set aside."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch

from deepbilevel_lab.advice.candidates import BASELINE, fitting
from deepbilevel_lab.advice.evidence import Floats, Numbers, by_sample, noise_rate
from deepbilevel_lab.advice.stages import Setting, first_settings, make_stage, next_settings, trial_epochs
from deepbilevel_lab.advice.verdict import Finalist, Verdict, judge
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.specs import spec_id
from deepbilevel_lab.sweeps.sweep import Sweep
from deepbilevel_lab.sweeps.trials import Outcome
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.model_file import load_model
from deepbilevel_lab.training.own_data import space_evaluations
from deepbilevel_lab.training.prediction import Predictor
from deepbilevel_lab.training.sets import load_sets
from deepbilevel_lab.training.spec import RunSpec


class InterruptedTrialsError(Exception):
    """Trials were stopped and saved; the same call goes on with them."""


class Runner(Protocol):
    """Runs the trials of a sweep to their ends; ``keep`` says whether its record is to stay."""

    def __call__(self, stage: Sweep, *, keep: bool) -> Sequence[Outcome]:
        """Return how they ended."""
        ...


@dataclass(frozen=True)
class Advice:
    """What came of it.

    Attributes:
        verdict: what is recommended, and why.
        spec: the run that is recommended, as long as it was tried.
        final: the sweep of the finalists.
        left_out: the candidates that were not judged to the end, and why.
    """

    verdict: Verdict
    spec: RunSpec
    final: Sweep
    left_out: dict[str, str]


def advise(
    base: RunSpec,
    *,
    out: Path,
    data_dir: Path,
    budget: float,
    jobs: int,
    run: Runner,
    say: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Try the candidates within the budget and return what to train with.

    Args:
        base: see :func:`~deepbilevel_lab.advice.stages.prepared`.
        out: the folder of runs; how long an epoch took is kept there, so that the same call makes the same trials.
        data_dir: where data sets stand.
        budget: seconds for all trials together.
        jobs: runs side by side.
        run: runs trials; raises :class:`InterruptedTrialsError` if they were stopped.
        say: is told what is done next.
    """
    names, left_out = fitting(base)
    name = f"recommend-{spec_id({'base': base, 'candidates': names, 'budget': budget, 'jobs': jobs})}"
    epochs = _read_epochs(out / f"{name}.epochs")
    if epochs is None:
        say("timing one epoch")
        begin = time.monotonic()
        (outcome,) = run(_timing(base, name), keep=False)
        duration = time.monotonic() - begin
        record = outcome.record
        if record is None or record.seconds.wall is None:
            raise ValueError(f"the first epoch failed, so nothing can be tried: {outcome.error}")
        start = max(0.0, duration - record.seconds.wall)
        epochs = trial_epochs(record.seconds.wall, start, budget, jobs, len(names), base.epochs)
        write_text(out / f"{name}.epochs", f"{epochs}\n")
    settings = first_settings(base, names)
    for number in (0, 1):
        stage = make_stage(base, number, epochs, settings, name)
        say(f"{stage.about}: {len(stage.trials())} trials")
        scores = _scores(stage, settings, run(stage, keep=False))
        left_out |= _failed({each.name for each in settings} - {each.name for each in scores})
        settings = next_settings(scores, number)
    final = make_stage(base, 2, epochs, settings, name)
    say(f"{final.about}: {len(final.trials())} trials")
    run(final, keep=True)
    finalists, most_frequent = _finalists(settings, final, out, data_dir)
    left_out |= _failed({each.name for each in settings} - {each.name for each in finalists})
    verdict = judge(finalists, most_frequent=most_frequent, optimizer=base.optimizer.name)
    chosen = next(
        cell.specs[0]
        for cell, setting in zip(final.cells, settings, strict=True)
        if (setting.name, setting.lr) == (verdict.name, verdict.lr)
    )
    return Advice(verdict, space_evaluations(chosen), replace(final, about=verdict.to_text()), left_out)


def _timing(base: RunSpec, name: str) -> Sweep:
    stage = make_stage(base, 0, 1, [Setting(BASELINE, base.optimizer.lr)], f"{name}-timing")
    return replace(stage, about="one epoch")


def _read_epochs(path: Path) -> int | None:
    try:
        return max(1, int(path.read_text()))
    except (OSError, ValueError):  # not there, or damaged: it is measured again
        return None


def _scores(stage: Sweep, settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> dict[Setting, float]:
    """Return the mean result of every setting whose runs all ended well: one that fails now and then is no advice."""
    results = {outcome.trial.id: outcome.record for outcome in outcomes if outcome.record is not None}
    scores: dict[Setting, float] = {}
    for setting, cell in zip(settings, stage.cells, strict=True):
        records = [results.get(spec.id) for spec in cell.specs]
        found = [None if record is None else record.figures["selection"] for record in records]
        known = [score for score in found if score is not None]
        if len(known) == len(found):
            scores[setting] = float(np.mean(known))
    if not scores:
        raise ValueError("all trials failed, so nothing can be recommended; the messages above say why")
    return scores


def _failed(names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(sorted(names), "trials of it failed")


def _finalists(settings: Sequence[Setting], stage: Sweep, out: Path, data_dir: Path) -> tuple[list[Finalist], float]:
    """Return what the runs of the last stage predict for the images set aside, and the share of the usual label.

    Those of which a run failed are left out: on the seeds they survive they would look better than they are.
    """
    finalists: list[Finalist] = []
    most_frequent = 0.0
    for setting, cell in zip(settings, stage.cells, strict=True):
        folders = [RunFolder.of(spec, out) for spec in cell.specs]
        if not all(folder.finished() for folder in folders):
            continue
        answers = [_ask(spec, out, data_dir) for spec in cell.specs]
        numbers = [each.numbers for each in answers]
        _, once = np.unique(np.concatenate(numbers), return_index=True)
        labels = np.concatenate([each.labels for each in answers])[once]
        most_frequent = 100 * float(np.bincount(labels).max()) / len(labels)
        records = [folder.read_record() for folder in folders]
        finalists.append(
            Finalist(
                setting.name,
                setting.lr,
                by_sample([each.right for each in answers], numbers),
                tuple(float(each.right.mean()) for each in answers),
                noise_rate(
                    np.concatenate([each.probabilities for each in answers])[once],
                    labels,
                ),
                float(np.mean([record.seconds.training or 0.0 for record in records if record is not None])),
            )
        )
    return finalists, most_frequent


class _Answers(NamedTuple):
    """What a run predicts for the images it set aside; ``numbers`` tells these from other images."""

    numbers: Numbers
    probabilities: Floats
    labels: Numbers

    @property
    def right(self) -> Floats:
        """1 where the label is predicted, and 0 elsewhere."""
        return (self.probabilities.argmax(axis=1) == self.labels).astype(np.float64)


def _ask(spec: RunSpec, out: Path, data_dir: Path) -> _Answers:
    """Return the answers of a run."""
    predictor = Predictor(load_model(RunFolder.of(spec, out).model_file))
    sets = load_sets(spec.data, data_dir, noise=spec.noise, seed=spec.seed)
    assert sets.selection is not None  # all trials set images aside
    feed = predictor.feed(sets.selection)
    probabilities = torch.cat([each for _, each in predictor.probabilities(feed, crops=1)])
    numbers = sets.selection.numbers
    assert numbers is not None  # samples that were chosen among others know which
    return _Answers(numbers.numpy(), probabilities.double().numpy(), sets.selection.labels.numpy())
