"""Planning a comparison, and the record, table and picture of what came of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from deepbilevel_lab.records import Row, RunRecord, Seconds, SweepRecord, read_file, to_json
from deepbilevel_lab.report import draw_comparison
from deepbilevel_lab.specs import SpecError, from_plain, to_plain
from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.sweep import Recorder, make_sweep_record
from deepbilevel_lab.sweeps.table import list_doubts, make_table, to_markdown
from deepbilevel_lab.sweeps.trials import Outcome
from deepbilevel_lab.training import RunSpec
from tests.cli.trained import make_spec

ROOT = Path(__file__).parents[2]


def make_plan(methods="sgd,bilevel", seeds=(0, 1), **settings):
    return plan(make_spec(noise="uniform:0.5", **settings), read_methods(methods), seeds)


def done(trial, test, *, steps=2, train_clean=70.0):
    epoch = Row(epoch=1, lr=0.1, loss=1.0, negative_share=0.0)
    record = RunRecord(
        id=trial.id,
        name=trial.spec.name,
        status="done",
        error=None,
        spec=to_plain(trial.spec),
        final=replace(epoch, test=test, train=60.0, gap=60.0 - test, train_clean=train_clean),
        best=replace(epoch, test=test + 5),
        history=(),
        steps=steps,
        seconds=Seconds(wall=3.0),
    )
    return Outcome(trial, "done", record)


def finished(comparison, *tests):
    return [done(trial, test) for trial, test in zip(comparison.trials(), tests, strict=True)]


def test_runs_differ_in_method_and_seed_and_come_seed_by_seed():
    trials = make_plan().trials()
    assert [trial.label for trial in trials] == ["sgd, seed 0", "bilevel, seed 0", "sgd, seed 1", "bilevel, seed 1"]
    assert [(trial.spec.method.kind, trial.spec.seed) for trial in trials] == [
        ("sgd", 0),
        ("bilevel", 0),
        ("sgd", 1),
        ("bilevel", 1),
    ]


def test_a_name_means_the_same_whatever_method_the_base_has():
    tuned = make_spec(noise="uniform:0.5", method='{"kind": "bilevel", "mu": 0.5}')
    assert plan(tuned, read_methods("sgd,bilevel"), (0, 1)) == make_plan()


def test_the_id_is_that_of_base_methods_and_seeds():
    same = make_plan()
    assert same.id == make_plan().id
    others = [
        make_plan("bilevel,sgd,uniform"),
        make_plan(seeds=(0, 2)),
        make_plan(epochs=2),
        make_plan("sgd,bilevel+mixup"),
    ]
    assert len({same.id, *(other.id for other in others)}) == 5


def test_the_title_names_the_users_own_data_and_what_it_consists_of():
    kept = json.loads((ROOT / "results" / "tables" / "sweep-tumours.json").read_text())
    found = plan(from_plain(RunSpec, kept["base"]), read_methods("sgd"), (0,))
    assert found.title == "Methods on tumours.csv"
    assert found.about.endswith(" rows")
    assert (make_plan().title, make_plan().about.split()[-1]) == ("Methods on digits", "images")


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("bilevel[epochs=3]", "epochs is the same for all methods of a comparison; use --set epochs="),
        ("bilevel[data.limit=99]", "data.limit is the same"),
        ("bilevel[noise=pair:0.1]", "noise is the same"),
        ("sgd[network.name=cifarnet]", "network.name is the same"),
        ("sgd[network=cifarnet]", "network is the same"),
        ("sgd[evaluate_every=5]", "evaluate_every is the same"),
        ("bilevel[group.num_batches=4]", "would make other visits"),
        ("bilevel[method.my=1]", "did you mean 'method.mu'"),
        ("exact+random", "method 'exact+random'"),
        ("mixup[group.holdout=0.1]", "would waste the images"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_it_is_run(methods, message):
    with pytest.raises(SpecError) as refused:
        make_plan(f"sgd,{methods}")
    assert message in str(refused.value)
    assert repr(methods) in str(refused.value)


def test_another_cut_of_the_same_group_is_fair():
    [spec] = make_plan("bilevel[group.num_batches=4;group.batch_size=32]", [0]).cells[0].specs
    assert spec.group.size == 128


def test_a_base_that_only_some_methods_can_have_is_refused_with_the_way_out():
    with pytest.raises(SpecError, match=r"as in bilevel\[group.holdout=0.1\]"):
        make_plan(**{"group.holdout": 0.1})


def test_the_record_has_everything_a_report_needs(tmp_path):
    comparison = make_plan()
    recorder = Recorder(comparison, tmp_path / "runs")
    outcomes = finished(comparison, 80.0, 90.0, 84.0, 91.0)
    outcomes[3] = Outcome(comparison.trials()[3], "failed", error="the loss is nan")
    recorder.changed(outcomes)
    record = json.loads(recorder.path.read_text())
    assert recorder.path.name == f"sweep-{comparison.name}.json"
    assert record == to_json(recorder.record)
    assert read_file(SweepRecord, recorder.path) == recorder.record
    assert (record["format"], record["id"], record["seeds"]) == (1, comparison.id, [0, 1])
    assert from_plain(RunSpec, record["base"]) == comparison.base
    sgd, bilevel = record["cells"]
    assert (bilevel["row"], bilevel["settings"]) == ("bilevel", {"method": "bilevel"})
    assert [run["id"] for run in sgd["runs"]] == [spec.id for spec in comparison.cells[0].specs]
    assert sgd["runs"][0]["folder"].endswith(comparison.cells[0].specs[0].id)
    assert sgd["runs"][1]["figures"] == {
        "test": 84.0,
        "best": 89.0,
        "picked": None,
        "selection": None,
        "train": 60.0,
        "train_clean": 70.0,
        "gap": -24.0,
        "seconds": 3.0,
    }
    assert sgd["runs"][0]["images_seen"] == 256
    assert sgd["summary"]["test"] == {"mean": 82.0, "spread": pytest.approx(8**0.5)}
    assert bilevel["summary"]["test"] == {"mean": 90.0, "spread": None}
    assert (bilevel["runs"][1]["status"], bilevel["runs"][1]["error"]) == ("failed", "the loss is nan")
    assert bilevel["runs"][1]["figures"] is None


def test_the_table_has_a_row_per_method_and_tells_of_failures():
    comparison = make_plan("sgd,bilevel,uniform")
    outcomes = finished(comparison, 80.0, 90.0, 0.0, 84.0, 91.0, 0.0)
    trials = comparison.trials()
    outcomes[4] = Outcome(trials[4], "failed", error="the loss is nan")
    outcomes[2], outcomes[5] = Outcome(trials[2], "interrupted"), Outcome(trials[5])
    record = make_sweep_record(comparison, outcomes)
    titles, rows = make_table(record)
    assert titles == ["method", "seeds", "last", "best", "train", "clean", "seconds"]
    assert rows == [
        ["sgd", "2", "82.0 ± 2.8", "87.0 ± 2.8", "60.0 ± 0.0", "70.0 ± 0.0", "3.0 ± 0.0"],
        ["bilevel", "1 of 2, 1 failed", "90.0", "95.0", "60.0", "70.0", "3.0"],
        ["uniform", "0 of 2, 1 interrupted, 1 missing", *["-"] * 5],
    ]
    assert list_doubts(record) == ["bilevel, seed 1 failed: the loss is nan"]
    lines = to_markdown(record).splitlines()
    assert lines[0] == "| " + " | ".join(titles) + " |"
    assert lines[1].count("---") == len(titles)
    assert lines[2].startswith("| sgd | 2 | 82.0 ± 2.8 |")
    assert lines[-1] == "Note: bilevel, seed 1 failed: the loss is nan."


def test_without_clean_labels_there_is_no_column_for_them():
    comparison = plan(make_spec(), read_methods("sgd"), [0])
    [trial] = comparison.trials()
    titles, [row] = make_table(make_sweep_record(comparison, [done(trial, 90.0, train_clean=None)]))
    assert titles == ["method", "seeds", "last", "best", "train", "gap", "seconds"]
    assert len(row) == len(titles)


def test_unequal_visits_are_told():
    comparison = make_plan(seeds=(0,))
    first, second = comparison.trials()
    record = make_sweep_record(comparison, [done(first, 80.0, steps=2), done(second, 80.0, steps=3)])
    [doubt] = list_doubts(record)
    column = record.cells[0].column
    assert doubt == f"not all methods saw the same number of images on {column}: sgd 256, bilevel 384"
    # On another network, or at another value of what is varied, they may see others.
    one, other = record.cells
    assert list_doubts(replace(record, cells=(one, replace(other, x=0.5)))) == []
    assert list_doubts(replace(record, cells=(one, replace(other, column="another")))) == []


def test_two_names_of_the_same_run_share_it():
    comparison = make_plan("bilevel,bilevel[method.mu=0.01]", [0])
    first, second = comparison.trials()
    assert first.id == second.id
    record = make_sweep_record(comparison, [done(first, 80.0)])
    assert [row[2] for row in make_table(record)[1]] == ["80.0", "80.0"]


@pytest.mark.parametrize("methods", ["sgd", "all"])
def test_the_picture_is_a_png_with_room_for_every_method(methods, tmp_path):
    comparison = make_plan(methods, seeds=(0, 1), epochs=2)
    outcomes = [done(trial, 50.0 + number) for number, trial in enumerate(comparison.trials())]
    outcomes[0] = Outcome(outcomes[0].trial, "failed", error="nan")
    draw_comparison(make_sweep_record(comparison, outcomes), tmp_path / "picture.png")
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.width == 2 * (2 * 360 + 3 * 18)
        assert picture.height > 60 * len(comparison.cells)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_a_picture_of_nothing_finished_says_so_and_does_not_fail(tmp_path):
    comparison = make_plan()
    record = make_sweep_record(comparison, [Outcome(trial) for trial in comparison.trials()])
    draw_comparison(record, tmp_path / "picture.svg")
    assert ">Nothing of it has been run yet.</text>" in (tmp_path / "picture.svg").read_text()


def test_a_picture_says_what_is_compared_and_which_seeds_are_missing(tmp_path):
    comparison = make_plan("sgd,bilevel,uniform", epochs=2)
    first, *others = comparison.trials()
    outcomes = [Outcome(first, "failed", error="nan"), *(done(trial, 50.0 + trial.spec.seed) for trial in others)]
    outcomes[2::3] = [Outcome(outcome.trial, "failed", error="nan") for outcome in outcomes[2::3]]
    draw_comparison(make_sweep_record(comparison, outcomes), tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    title = f"{comparison.title}: {comparison.cells[0].column}, 2 epochs, 2 seeds"
    words = ("sgd (1 of 2; 1 failed)", "bilevel", "uniform: failed", "standard deviation over seeds", title)
    for text in words:
        assert f">{text}</text>" in drawn
