"""From the predictions of the finalists to one page: what to use, by how much, how sure, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from deepbilevel_lab.advice.candidates import BASELINE, CANDIDATES
from deepbilevel_lab.advice.evidence import Floats, Interval, paired_difference

_MOST_NOISE = 80  # percent; a network that disagrees with more labels has learned too little to be asked
SURE = 0.8
"""How probable a lead must be before it is followed. Plain training costs nothing to try, so a weak lead is left alone;
a lead that is probable, if not certain, is worth following, since the other choice is more often the wrong one."""


@dataclass(frozen=True)
class Finalist:
    """A candidate that was trained most often.

    Attributes:
        right: for each sample set aside, how often the runs that did not train on it predict its label; the same
            samples for all finalists.
        accuracies: of each run on the samples that it set aside, as shares; the same seeds for all finalists.
        noise: the share of labels that look wrong, given its predictions.
        seconds: of training, the mean of its runs.
    """

    name: str
    lr: float
    right: Floats
    accuracies: tuple[float, ...]
    noise: Interval | None
    seconds: float


@dataclass(frozen=True)
class Line:
    """A finalist in the table: accuracies and differences in percent, cost relative to the baseline."""

    name: str
    lr: float
    accuracy: float
    difference: Interval | None
    cost: float | None


@dataclass(frozen=True)
class Verdict:
    """What is recommended.

    Attributes:
        name: a name of ``CANDIDATES``.
        lines: the finalists, best first.
        noise: the share of labels that look wrong.
        num_images: how many were set aside.
        gain: the difference to the baseline on labels as given; None if it is the baseline itself.
        tied: the finalists that cannot be told from it.
        most_frequent: how many of the samples set aside have the most frequent label, in percent.
        optimizer: the name of the optimizer of all trials.
    """

    name: str
    lr: float
    lines: tuple[Line, ...]
    noise: Interval | None
    num_images: int
    gain: Interval | None
    tied: tuple[str, ...] = ()
    most_frequent: float = 0.0
    optimizer: str = "SGD"

    def to_text(self) -> str:
        """Return the advice in a few sentences."""
        what, base = (CANDIDATES[name].words.format(optimizer=self.optimizer) for name in (self.name, BASELINE))
        if self.gain is None and self.name != BASELINE:
            text = f"Use {what}, learning rate {self.lr:g}; {base} failed, so there is nothing to compare it with."
        elif self.gain is None:
            text = f"{self._why_the_baseline()}: use {base}, learning rate {self.lr:g}."
        else:
            gain, chance = self.gain, 100 * self.gain.chance_above_zero
            how_sure = f"{chance:.0f} %" if chance <= 99 else "more than 99 %"
            text = (
                f"Use {what}, learning rate {self.lr:g}: {gain.value:.1f} points better than {base} on labels as given;"
                f" 95 % interval {gain.low:.1f} to {gain.high:.1f}, better with a probability of {how_sure}."
            )
            if self.tied:
                names = " and ".join(
                    CANDIDATES[name].words.removesuffix(" with weight averaging") for name in self.tied
                )
                text += f" These samples cannot tell it from {names}; it did better in our measurements."
        if self.lines[0].accuracy <= self.most_frequent:
            text = (
                "The trials were too short to learn anything: always giving the most frequent label would do as well. "
                f"Give more --budget before you rely on this. {text}"
            )
        elif self.noise is not None and self.noise.value < _MOST_NOISE:
            noise = self.noise
            text += (
                f" To the network about {noise.value:.0f} % of the labels look wrong ({noise.low:.0f} to "
                f"{noise.high:.0f} %): too many if it has learned little, too few if mistakes follow a pattern."
            )
        return text

    def _why_the_baseline(self) -> str:
        differences = [line.difference for line in self.lines if line.difference is not None]
        if not differences:
            return "No other method finished"
        if all(each.chance_above_zero <= 1 - SURE for each in differences):
            return f"The others agree less often with the {self.num_images} samples set aside"
        return f"No lead that {self.num_images} samples set aside can show"


def judge(finalists: Sequence[Finalist], *, most_frequent: float = 0.0, optimizer: str = "SGD") -> Verdict:
    """Return what agrees best with labels as given, or the baseline if chance explains the lead.

    Of several that cannot be told apart, the first of ``CANDIDATES`` is taken: it is the better one elsewhere.

    Args:
        finalists: as many as finished all their runs.
        most_frequent: how many of the samples set aside have the most frequent label, in percent.
        optimizer: the name of the optimizer of all trials.
    """
    if not finalists:
        raise ValueError("all trials failed, so nothing can be recommended; the messages above say why")
    ranked = sorted(finalists, key=lambda each: -float(each.right.mean()))
    baseline = next((each for each in finalists if each.name == BASELINE), None)
    differences = {
        each.name: _difference(each, baseline) for each in finalists if baseline is not None and each is not baseline
    }
    good = [each for each in ranked if each is not baseline]
    if baseline is not None:
        good = [each for each in good if differences[each.name].chance_above_zero >= SURE]
    near = [each for each in good if _difference(good[0], each).chance_above_zero < SURE]
    order = list(CANDIDATES)
    best = min(near, key=lambda each: order.index(each.name), default=baseline or ranked[0])
    lines = tuple(
        Line(
            each.name,
            each.lr,
            100 * float(each.right.mean()),
            differences.get(each.name),
            None if baseline is None or not baseline.seconds else each.seconds / baseline.seconds,
        )
        for each in ranked
    )
    tied = tuple(each.name for each in near if each is not best)
    gain = differences.get(best.name)
    return Verdict(best.name, best.lr, lines, best.noise, len(best.right), gain, tied, most_frequent, optimizer)


def _difference(one: Finalist, other: Finalist) -> Interval:
    by_run = [ours - theirs for ours, theirs in zip(one.accuracies, other.accuracies, strict=True)]
    return paired_difference(one.right, other.right, by_run)
