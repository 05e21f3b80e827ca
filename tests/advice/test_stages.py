"""Which trials are run: within the budget, fewer and longer, and the baseline to the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.advice.candidates import BASELINE, CANDIDATES, fitting
from deepbilevel_lab.advice.stages import (
    FINALISTS,
    Setting,
    first_settings,
    make_stage,
    next_settings,
    prepared,
    unit_epochs,
)
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.schedules import Cosine, Exponential
from tests.cli.trained import make_spec


def test_every_candidate_is_tried_at_three_rates():
    base = prepared(make_spec())
    settings = first_settings(base, ["a", "b"])
    assert [(each.name, each.lr) for each in settings] == [
        *(("a", 0.03), ("a", 0.1), ("a", 0.3)),
        *(("b", 0.03), ("b", 0.1), ("b", 0.3)),
    ]


def test_images_are_set_aside_and_a_constant_rate_becomes_one_that_falls():
    base = prepared(make_spec())
    assert (base.data.selection, base.schedule, base.method.kind) == (0.2, Cosine(), "sgd")
    kept = prepared(make_spec(schedule="exponential", **{"data.selection": 0.3}))
    assert (kept.data.selection, kept.schedule) == (0.3, Exponential())


@given(st.floats(0.01, 100), st.floats(1, 1e5), st.integers(1, 8), st.integers(1, 6), st.integers(1, 300))
def test_the_budget_is_kept(seconds, budget, jobs, candidates, most):
    stages = 3 * candidates + 2 * candidates + 4 * 2 * min(FINALISTS, candidates)
    try:
        units = unit_epochs(seconds, budget, jobs, candidates, most)
    except SpecError:
        assert seconds * stages > budget * jobs
        return
    assert units >= 1
    assert units * stages * seconds <= budget * jobs * (1 + 1e-9)
    assert 4 * units <= most or units == 1


def test_a_budget_that_is_too_short_says_how_much_is_needed():
    with pytest.raises(SpecError, match=r"--budget 10s is too short: an epoch takes about 5s here, .* about 4m; give"):
        unit_epochs(5.0, 10.0, 1, 4, 100)


def test_the_first_stage_leaves_the_best_rate_of_every_candidate():
    scores = {Setting("a", 0.1): 50.0, Setting("a", 0.3): 60.0, Setting("b", 0.1): 70.0, Setting("b", 0.3): 10.0}
    assert next_settings(scores, 0) == [Setting("b", 0.1), Setting("a", 0.3)]


def test_the_second_stage_leaves_the_best_and_the_baseline():
    scores = {Setting(name, 0.1): score for name, score in zip("abcd", (50, 60, 70, 80), strict=True)}
    assert next_settings(scores, 1) == [Setting("d", 0.1), Setting("c", 0.1), Setting("b", 0.1)]
    behind = {**scores, Setting(BASELINE, 0.1): 1.0}
    assert next_settings(behind, 1) == [Setting("d", 0.1), Setting("c", 0.1), Setting(BASELINE, 0.1)]


def test_stages_grow_and_the_last_has_two_seeds():
    base = prepared(make_spec(epochs=100))
    settings = [Setting(BASELINE, 0.1), Setting("gce+weight-averaging", 0.3)]
    stages = [make_stage(base, number, 3, settings, "name") for number in range(3)]
    assert [stage.cells[0].specs[0].epochs for stage in stages] == [3, 6, 12]
    assert [len(stage.trials()) for stage in stages] == [2, 2, 4]
    assert all(spec.weight_averaging == 0.99 for cell in stages[2].cells for spec in cell.specs)
    assert [cell.specs[0].optimizer.lr for cell in stages[2].cells] == [0.1, 0.3]
    assert all(spec.evaluate_every == spec.epochs for cell in stages[2].cells for spec in cell.specs)


def test_all_candidates_fit_ordinary_data_and_those_that_do_not_say_why():
    assert fitting(prepared(make_spec())) == (list(CANDIDATES), {})
    names, refused = fitting(prepared(make_spec(**{"group.batch_size": 1, "group.num_batches": 128})))
    assert BASELINE in names
    assert all(refused.values())
