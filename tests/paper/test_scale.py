"""Scales: what they change, that they change nothing else, and that they say so."""

from dataclasses import replace

import pytest

from deepbilevel_lab.losses import ObjectiveSpec
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.specs import to_plain
from deepbilevel_lab.training.schedules import Exponential
from deepbilevel_paper import EXPERIMENTS, SCALES, find_experiment, find_scale
from deepbilevel_paper.estimate import sample_visits
from deepbilevel_paper.scale import COMPACT, PAPER, SMOKE

REDUCED = {"data.limit", "data.test_limit", "epochs", "evaluate_every"}
# The fields of a run that may differ from the paper's; ids of runs that are needed differ with them.
CHANGES = {
    "paper": set(),
    "compact": REDUCED | {"network.name", "schedule.factor_per_epoch"},
    "smoke": REDUCED
    | {"group.batch_size", "group.on_rare", "network.name", "network.weights", "data.recipe", "data.view"}
    | {"data.test_crops", "optimizer.lr", "optimizer.arguments"},
}


def flat(plain, key=""):
    """Return the fields of a spec by their dotted names."""
    if isinstance(plain, dict) and key != "optimizer.arguments":
        return {
            name: value
            for each, inner in plain.items()
            for name, value in flat(inner, f"{key}.{each}".strip(".")).items()
        }
    return {key: plain}


def differences(one, other):
    """Return the names of the fields in which two runs differ, but for the ids of the runs they need."""
    one, other = flat(to_plain(one)), flat(to_plain(other))
    return {
        name
        for name in {*one, *other}
        if one.get(name) != other.get(name)
        and not (referred_run(str(one.get(name))) and referred_run(str(other.get(name))))
    }


def pairs(experiment, scale):
    for paper, own in zip(experiment.cells(), experiment.cells(scale), strict=True):
        yield from zip((*paper.before, paper.spec), (*own.before, own.spec), strict=True)


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_scale_changes_what_it_may_and_nothing_else(experiment, scale):
    for paper, own in pairs(experiment, scale):
        assert differences(paper, own) <= CHANGES[scale.name]


@pytest.mark.parametrize("scale", [COMPACT, SMOKE], ids=["compact", "smoke"])
def test_what_a_scale_may_change_it_changes_somewhere(scale):
    changed = {
        name for experiment in EXPERIMENTS.values() for pair in pairs(experiment, scale) for name in differences(*pair)
    }
    assert changed == CHANGES[scale.name]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_places_stay_and_runs_stay_different(experiment, scale):
    cells = experiment.cells(scale)
    assert len({cell.spec.id for cell in cells}) == len(cells)
    assert [(c.row, c.column, c.x, c.published) for c in cells] == [
        (c.row, c.column, c.x, c.published) for c in experiment.cells()
    ]


def test_compact_cifarnet_has_the_same_learning_rate_after_as_many_images():
    cifarnet = [pair for pair in pairs(find_experiment("table1"), COMPACT) if pair[0].network.name == "cifarnet"]
    assert len(cifarnet) == 12
    for paper, own in cifarnet:
        assert (own.data.limit, own.data.test_limit, own.epochs) == (5_000, 2_000, 40)
        assert isinstance(own.schedule, Exponential)
        seen = own.data.limit / 50_000  # of the paper's epochs, after one of ours
        assert own.schedule.factor_per_epoch == pytest.approx(paper.schedule.factor_per_epoch**seen)


def test_compact_inception_is_narrow_and_follows_the_papers_schedule():
    inception = [pair for pair in pairs(find_experiment("table1"), COMPACT) if pair[0].network.name == "inception"]
    assert len(inception) == 12
    for paper, own in inception:
        assert (own.data.limit, own.data.test_limit, own.epochs) == (2_500, 2_000, 100)
        assert own.network.name == "inception_half"
        assert own.schedule == paper.schedule
        assert own.optimizer == paper.optimizer
    # Half of fewer epochs would end before the learning rate has fallen.
    curves = [own for _, own in pairs(find_experiment("noise-curves-inception"), COMPACT)]
    assert {(own.epochs, own.data.limit) for own in curves} == {(100, 1_600)}
    assert 1_600 // 100 % curves[-1].group.num_batches == 0  # no image of a class of CIFAR-100 is left over


def test_the_compact_comparison_is_narrow_and_keeps_the_papers_recipe():
    for paper, own in pairs(find_experiment("comparison-40"), COMPACT):
        assert (own.data.limit, own.data.test_limit, own.epochs) == (5_000, 5_000, 40)
        assert own.network == replace(paper.network, name="preact_resnet8")
        assert (own.optimizer, own.schedule, own.group) == (paper.optimizer, paper.schedule, paper.group)


def test_compact_fractions_of_voc_stay_fractions():
    limits = {cell.x: cell.spec.data.limit for cell in find_experiment("voc2007").cells("compact")}
    assert limits == {0.1: 100, 0.25: 250, 0.5: 500, 0.75: 750, 1.0: 1000}


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_compact_is_a_fraction_of_the_work_and_every_group_can_be_filled(experiment):
    for paper, own in pairs(experiment, COMPACT):
        assert 0 < sample_visits(own) <= min(500_000, sample_visits(paper) / 20)
    for _, own in pairs(experiment, SMOKE):
        assert own.group.size <= sample_visits(own) <= 250 * own.epochs
        assert own.epochs == (2 if isinstance(own.loss, ObjectiveSpec) else 1)  # a warm-up, and what comes after it


def test_a_scale_says_in_a_sentence_what_it_reduced():
    cifarnet = find_experiment("table1").cells()[0].spec
    assert PAPER.describe(cifarnet) == "as in the paper"
    assert COMPACT.describe(cifarnet) == (
        "5,000 of 50,000 training images, 2,000 of 10,000 test images, 40 of 200 epochs, the learning rate falling per "
        "image seen as in the paper, so that it ends higher, evaluated every 4 epochs"
    )
    inception = find_experiment("table1").cells()[2].spec
    assert COMPACT.describe(inception) == (
        "2,500 of 50,000 training images, 2,000 of 10,000 test images, 100 of 200 epochs, evaluated every 10 epochs, "
        "inception_half instead of inception"
    )
    alexnet = find_experiment("imagenet").cells()[0].spec
    assert SMOKE.describe(alexnet) == (
        "96 of 1,281,167 training images, 24 of 50,000 test images, 1 of 90 epochs, mini-batches of 5 instead of 16, "
        "cifarnet instead of alexnet, on synthetic images"
    )


def test_only_smoke_is_on_made_images():
    assert [scale.name for scale in SCALES.values() if scale.made_data] == ["smoke"]
    with pytest.raises(ValueError, match="unknown scale 'smok'; did you mean 'smoke'"):
        find_scale("smok")
