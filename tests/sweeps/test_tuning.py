"""Every method with its own value of a setting: the plan, the choice by noisy labels, and the table of both."""

import json
from dataclasses import replace

import pytest

from deepbilevel_lab.networks import named_code
from deepbilevel_lab.report import draw_comparison
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.sweep import make_sweep_record
from deepbilevel_lab.sweeps.table import describe, list_doubts, make_table
from deepbilevel_lab.sweeps.trials import Outcome
from deepbilevel_lab.sweeps.tuning import Grid, read_grid, tuned_methods
from tests.cli.trained import make_spec, run_command, run_in_process
from tests.sweeps.test_comparison import done

GRID = Grid("optimizer.lr", (0.01, 0.1))


def make_plan(methods="sgd,bilevel", seeds=(0, 1), tune=GRID, **settings):
    return plan(make_spec(noise="uniform:0.5", **settings), read_methods(methods), seeds, tune=tune)


def scored(trial, selection, test):
    """Return a finished run with that result on images set aside, and on test images."""
    outcome = done(trial, test)
    final = replace(outcome.record.final, selection=selection)
    return replace(outcome, record=replace(outcome.record, final=final, history=(final,)))


def outcomes_of(comparison, scores):
    """Return outcomes from ``(method, value, seed) -> (selection, test)``; the others are not there."""
    trials = {(each.tags["row"], each.tags["x"], each.tags["seed"]): each for each in comparison.trials()}
    return [scored(trials[key], *score) for key, score in scores.items()]


FIRST_SEED = {
    ("sgd", 0.01, 0): (60.0, 70.0),
    ("sgd", 0.1, 0): (50.0, 80.0),
    ("bilevel", 0.01, 0): (55.0, 66.0),
    ("bilevel", 0.1, 0): (56.0, 65.0),
}


def test_every_method_has_every_value_and_images_are_set_aside():
    comparison = make_plan()
    assert [(cell.row, cell.x) for cell in comparison.cells] == [
        ("sgd", 0.01),
        ("sgd", 0.1),
        ("bilevel", 0.01),
        ("bilevel", 0.1),
    ]
    assert [cell.specs[0].optimizer.lr for cell in comparison.cells] == [0.01, 0.1, 0.01, 0.1]
    assert all(spec.data.selection == 0.1 for cell in comparison.cells for spec in cell.specs)
    assert make_plan(**{"data.selection": 0.2}).base.data.selection == 0.2


def test_the_value_is_chosen_on_noisy_labels_with_the_first_seed_whatever_the_test_says():
    comparison = make_plan()
    other = {("sgd", 0.01, 1): (0.0, 71.0), ("bilevel", 0.1, 1): (99.0, 64.0)}
    record = make_sweep_record(comparison, outcomes_of(comparison, {**FIRST_SEED, **other}))
    sgd, bilevel = tuned_methods(record)
    assert (sgd.chosen.x, sgd.range) == (0.01, (70.0, 80.0))
    assert (bilevel.chosen.x, bilevel.range) == (0.1, (65.0, 66.0))
    titles, rows = make_table(record)
    assert titles[:3] == ["method", "lr", "seeds"]
    assert rows[0][:4] == ["sgd", "0.01", "2", "70.5 ± 0.7"]
    assert rows[0][-1] == "70.0 to 80.0"
    assert "optimizer.lr was chosen by the images set aside, with seed 0" in describe(record)


def test_nothing_is_chosen_before_all_values_were_tried():
    comparison = make_plan()
    scores = dict(list(FIRST_SEED.items())[:3])
    record = make_sweep_record(comparison, outcomes_of(comparison, scores))
    sgd, bilevel = tuned_methods(record)
    assert sgd.chosen is not None
    assert (bilevel.chosen, bilevel.range) == (None, None)
    assert make_table(record)[1][1][:3] == ["bilevel", "-", "not all values tried"]


def test_a_value_at_which_training_diverges_is_not_chosen():
    comparison = make_plan()
    outcomes = outcomes_of(comparison, {key: score for key, score in FIRST_SEED.items() if key != ("sgd", 0.01, 0)})
    failed = next(each for each in comparison.trials() if (each.tags["row"], each.tags["x"]) == ("sgd", 0.01))
    record = make_sweep_record(comparison, [*outcomes, Outcome(failed, "failed", error="the loss is nan")])
    assert tuned_methods(record)[0].chosen.x == 0.1


def test_nothing_is_chosen_while_a_value_lacks_its_run_because_that_was_killed():
    comparison = make_plan(methods="sgd")
    done_one, *_ = outcomes_of(comparison, {("sgd", 0.1, 0): (50.0, 80.0)})
    killed = next(each for each in comparison.trials() if (each.tags["x"], each.tags["seed"]) == (0.01, 0))
    outcome = Outcome(killed, status="failed", error="its process ended with code -9", killed=True)
    record = make_sweep_record(comparison, [done_one, outcome])
    assert [each.chosen for each in tuned_methods(record)] == [None]
    assert list_doubts(record) == ["sgd, seed 0 interrupted: its process ended with code -9"]


def test_of_equals_the_smaller_value_is_chosen():
    comparison = make_plan("sgd")
    record = make_sweep_record(
        comparison, outcomes_of(comparison, {("sgd", 0.01, 0): (50.0, 1.0), ("sgd", 0.1, 0): (50.0, 2.0)})
    )
    assert tuned_methods(record)[0].chosen.x == 0.01


@pytest.mark.parametrize("text", ["optimizer.lr", "optimizer.lr=", "optimizer.lr=0.1", "=1,2", "optimizer.lr=a,b", ""])
def test_a_grid_that_is_none_is_refused_with_an_example(text):
    with pytest.raises(SpecError, match=r"--tune needs a key and at least two numbers, as in optimizer.lr=0.01,0.03"):
        read_grid(text)


@pytest.mark.parametrize(("key", "remedy"), [("epochs", "--set epochs="), ("seed", "--seeds, as in --seeds 0-4")])
def test_a_setting_that_is_the_same_for_all_cannot_be_tuned(key, remedy):
    with pytest.raises(SpecError, match=f"{key} is the same for all methods of a comparison; use {remedy}"):
        make_plan(tune=Grid(key, (1, 2)))


def test_whole_numbers_stay_whole_where_the_setting_is_one():
    comparison = make_plan("sgd", tune=read_grid("zeroed_steps=16,8"))
    assert [cell.specs[0].zeroed_steps for cell in comparison.cells] == [8, 16]
    assert [type(cell.x) for cell in comparison.cells] == [float, float]  # as axes have them


def test_a_network_of_ones_own_gets_whole_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(named_code, "_named", {})  # what other tests have named
    code = tmp_path / "net.py"
    code.write_text("from torch import nn\n\ndef make(num_classes, width=8):\n    return nn.Linear(64, num_classes)\n")
    words = "compare --data digits --methods sgd --seeds 0 --dry-run --json --tune network.arguments.width=8,16"
    shown = run_in_process(*words.split(), "--network", f"{code}:make")
    assert shown.exit_code == 0, shown.output
    arguments = [json.loads(line)["spec"]["network"]["arguments"] for line in shown.stdout.splitlines()]
    assert json.dumps(arguments) == '[{"width": 8}, {"width": 16}]'


def test_how_a_number_is_written_changes_no_name_where_the_setting_is_a_number():
    written, as_before = (
        make_plan(tune=grid) for grid in (read_grid("optimizer.lr=1,0.1"), Grid(GRID.key, (0.1, 1.0)))
    )
    assert (written.id, written.name) == (as_before.id, as_before.name)
    assert [trial.id for trial in written.trials()] == [trial.id for trial in as_before.trials()]
    assert [trial.label for trial in written.trials()] == [trial.label for trial in as_before.trials()]


def test_it_is_drawn_even_before_it_is_complete(tmp_path):
    comparison = make_plan()
    for scores in ({}, FIRST_SEED):
        draw_comparison(make_sweep_record(comparison, outcomes_of(comparison, scores)), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_command_tries_all_values_with_one_seed_and_the_chosen_one_with_the_others(tmp_path):
    words = "compare --data digits --limit 256 --epochs 1 --methods sgd,gce --tune optimizer.lr=0.01,0.1 --seeds 0,1"
    command = [*words.split(), "--threads", "1", "--out", str(tmp_path), "--name", "tuned", "--noise", "uniform:0.4"]
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 6  # two methods: two values, one more seed
    again = run_command(*command, "--json")
    assert again.returncode == 0
    assert '"status": "missing"' in again.stdout  # the values that were not chosen have one seed
