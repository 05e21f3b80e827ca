"""Which trials are run: within the budget, fewer with more seeds, and the baseline to the end."""

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
    trial_epochs,
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
    assert base.data.selection_by_seed
    assert kept.data.selection_by_seed


@given(
    *(st.floats(0.01, 100), st.floats(0, 30), st.floats(1, 1e5)),
    *(st.integers(1, 8), st.integers(1, 6), st.integers(1, 300)),
)
def test_the_budget_is_kept(seconds, start, budget, jobs, candidates, most):
    trials = 3 * candidates + candidates + 2 * min(FINALISTS, candidates)
    try:
        epochs = trial_epochs(seconds, start, budget, jobs, candidates, most)
    except SpecError:
        assert (start + seconds) * trials > budget * jobs * (1 - 1e-9)
        return
    assert 1 <= epochs <= most
    assert trials * (start + epochs * seconds) <= budget * jobs * (1 + 1e-9)


def test_a_budget_that_is_too_short_says_how_much_is_needed():
    message = r"--budget 10s is too short: a trial takes about 1.0s to start and 5.0s per epoch here, .* about 3m; give"
    with pytest.raises(SpecError, match=message):
        trial_epochs(5.0, 1.0, 10.0, 1, 4, 100)


def test_the_first_stage_leaves_the_best_rate_of_every_candidate():
    scores = {Setting("a", 0.1): 50.0, Setting("a", 0.3): 60.0, Setting("b", 0.1): 70.0, Setting("b", 0.3): 10.0}
    assert next_settings(scores, 0) == [Setting("b", 0.1), Setting("a", 0.3)]


def test_the_second_stage_leaves_the_best_and_the_baseline():
    scores = {Setting(name, 0.1): score for name, score in zip("abcde", (50, 60, 70, 80, 90), strict=True)}
    assert [each.name for each in next_settings(scores, 1)] == ["e", "d", "c", "b"]
    behind = {**scores, Setting(BASELINE, 0.1): 1.0}
    assert [each.name for each in next_settings(behind, 1)] == ["e", "d", "c", BASELINE]


def test_all_stages_train_as_long_and_each_has_more_seeds_than_the_one_before():
    base = prepared(make_spec(epochs=100, seed=5))
    settings = [Setting(BASELINE, 0.1), Setting("gce+weight-averaging", 0.3)]
    stages = [make_stage(base, number, 12, settings, "name") for number in range(3)]
    specs = [[spec for cell in stage.cells for spec in cell.specs] for stage in stages]
    assert {spec.epochs for stage in specs for spec in stage} == {12}
    assert [stage.seeds for stage in stages] == [(5,), (5, 6), (5, 6, 7, 8)]
    ids = [{spec.id for spec in stage} for stage in specs]
    assert ids[0] < ids[1] < ids[2]  # what was trained before is not trained again
    assert all(spec.weight_averaging == 0.99 for spec in specs[2])
    assert [cell.specs[0].optimizer.lr for cell in stages[2].cells] == [0.1, 0.3]
    assert all(spec.evaluate_every == spec.epochs for spec in specs[2])


def test_under_adam_the_cross_validated_gradient_shrinks_the_update():
    base = prepared(make_spec(optimizer={"name": "AdamW", "lr": 5e-5}))
    (stage, plain) = (
        make_stage(each, 0, 1, [Setting(name, 0.1) for name in CANDIDATES], "name")
        for each in (base, prepared(make_spec()))
    )
    methods = {cell.row: cell.specs[0].method for cell in stage.cells}
    assert methods["cross-validated-averaged+weight-averaging"].shrink == "update"
    assert {cell.row: cell.specs[0].method for cell in plain.cells}.items() >= {
        row: method for row, method in methods.items() if not row.startswith("cross-validated")
    }.items()
    assert plain.cells[3].specs[0].method.shrink == "gradient"


def test_all_candidates_fit_ordinary_data_and_those_that_do_not_say_why():
    assert fitting(prepared(make_spec())) == (list(CANDIDATES), {})
    names, refused = fitting(prepared(make_spec(**{"group.batch_size": 1, "group.num_batches": 128})))
    assert BASELINE in names
    assert all(refused.values())
