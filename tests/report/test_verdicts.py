"""The sentence that a comparison begins with: who is highest, by how much, and how sure that is."""

from dataclasses import replace

from deepbilevel_lab.records import Cell, CellRun, RunRecord, SweepRecord
from deepbilevel_lab.records.runs import Row
from deepbilevel_lab.records.sweeps import Axis
from deepbilevel_lab.report.verdicts import verdict_of, verdict_of_runs


def cell(row, *tests, column=""):
    return Cell(
        row, column, runs=tuple(CellRun(seed, None, "done", None, {"test": test}) for seed, test in enumerate(tests))
    )


def sweep(*cells, axis=None):
    return SweepRecord(kind="comparison", name="x", title="x", cells=cells, axis=axis)


def test_a_clear_lead_is_told_against_plain_training():
    found = verdict_of(sweep(cell("sgd", 70.0, 71.0), cell("elr", 95.0, 96.0), cell("mixup", 90.0, 91.0)))
    assert found == "elr ends with the highest test accuracy, 95.5 ± 0.7 %, 25.0 points above sgd."


def test_a_lead_that_seeds_explain_is_called_so_and_ties_are_named():
    found = verdict_of(sweep(cell("sgd", 70.0, 72.0), cell("elr", 71.0, 72.0)))
    assert "0.5 points (no more than the standard deviation over seeds) above sgd." in found
    tied = verdict_of(
        sweep(cell("sgd", 10.0, 12.0), cell("a", 71.0, 75.0), cell("b", 70.0, 74.0), cell("c", 72.0, 73.5))
    )
    assert tied == (
        "a ends with the highest test accuracy, 73.0 ± 2.8 %, 62.0 points above sgd. "
        "c and b are within a standard deviation of it."
    )


def test_one_seed_is_said_and_the_second_best_stands_in_for_a_baseline():
    found = verdict_of(sweep(cell("a", 50.0), cell("sgd", 60.0)))
    assert found == (
        "sgd ends with the highest test accuracy, 60.0 %, 10.0 points above a. "
        "This is one seed: differences of a few points mean nothing."
    )


def test_every_column_has_its_own_and_where_there_is_nothing_to_compare_nothing_is_said():
    cells = [
        cell(row, test, test, column=column)
        for column, row, test in (("x", "sgd", 1.0), ("x", "a", 2.0), ("y", "a", 3.0))
    ]
    assert verdict_of(sweep(*cells)).startswith("a ends with the highest")
    both = verdict_of(sweep(*cells, cell("sgd", 9.0, 9.0, column="y")))
    assert both.startswith("x: a ends with the highest")
    assert " y: sgd ends with the highest" in both
    assert verdict_of(sweep(cells[0])) == ""
    assert verdict_of(sweep(cell("sgd", 1.0), cell("a", 2.0), axis=Axis("mu"))) == ""


def test_along_an_axis_it_is_told_how_often_each_is_highest():
    cells = [
        replace(cell(row, test), x=x)
        for x, results in enumerate(({"sgd": 3.0, "a": 2.0}, {"sgd": 1.0, "a": 2.0}, {"sgd": 0.0, "a": 1.0}))
        for row, test in results.items()
    ]
    alone = replace(cell("sgd", 9.0), x=9.0)  # of one method alone nothing is the highest
    assert verdict_of(sweep(*cells, alone, axis=Axis("mu"))) == (
        "Highest at the end: sgd at 1 and a at 2 of 3 values of mu. "
        "This is one seed: differences of a few points mean nothing."
    )


def test_advice_is_its_own_verdict_but_a_stage_on_the_way_is_none():
    found = replace(sweep(cell("sgd", 1.0, 1.0), cell("a", 2.0, 2.0)), name="recommend-0", about="Use sgd.")
    assert verdict_of(found) == "Use sgd."
    assert verdict_of(replace(found, about="stage 3 of 3, 4 epochs")).startswith("a ends with the highest")


def test_made_up_images_allow_no_verdict_about_methods():
    made_up = replace(sweep(cell("sgd", 1.0), cell("a", 2.0)), reduced="1 of 200 epochs, on synthetic images")
    assert verdict_of(made_up).startswith("The images are synthetic")
    assert verdict_of(replace(made_up, cells=())) == ""


def test_runs_that_were_not_compared_are_told_from_the_lowest_to_the_highest():
    def run(test, status="done"):
        spec, last = {"seed": 0, "epochs": 1}, Row(epoch=1, lr=None, loss=None, negative_share=None, test=test)
        return RunRecord(id="0", name="", status=status, error=None, spec=spec, final=last, best=last, history=())

    several = [("a", run(10.0)), ("a", run(20.0)), ("b", run(30.0)), ("c", run(99.0, "running"))]
    assert verdict_of_runs(several) == "On the test images runs end between 15.0 % (a) and 30.0 % (b)."
    assert verdict_of_runs(several[:2]) == "a ends at 15.0 % on the test images."
    assert verdict_of_runs(several[3:]) == ""
