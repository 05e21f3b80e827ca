"""The sentence that a comparison begins with: who is highest, by how much, and how sure that is."""

from deepbilevel_lab.records import Cell, CellRun, SweepRecord
from deepbilevel_lab.records.sweeps import Axis
from deepbilevel_lab.report.verdicts import verdict_of


def cell(row, *tests, column=""):
    return Cell(
        row, column, runs=tuple(CellRun(seed, None, "done", None, {"test": test}) for seed, test in enumerate(tests))
    )


def sweep(*cells, axis=None):
    return SweepRecord(kind="comparison", name="x", title="x", cells=cells, axis=axis)


def test_a_clear_lead_is_told_against_plain_training():
    found = verdict_of(sweep(cell("sgd", 70.0, 71.0), cell("elr", 95.0, 96.0), cell("mixup", 90.0, 91.0)))
    assert found == "elr ends highest, at 95.5 ± 0.7 %, 25.0 points above sgd."


def test_a_lead_that_seeds_explain_is_called_so_and_ties_are_named():
    found = verdict_of(sweep(cell("sgd", 70.0, 72.0), cell("elr", 71.0, 72.0)))
    assert "0.5 points (no more than the standard deviation over seeds) above sgd." in found
    tied = verdict_of(
        sweep(cell("sgd", 10.0, 12.0), cell("a", 71.0, 75.0), cell("b", 70.0, 74.0), cell("c", 72.0, 73.5))
    )
    assert (
        tied
        == "a ends highest, at 73.0 ± 2.8 %, 62.0 points above sgd. c and b end within the standard deviation of it."
    )


def test_one_seed_is_said_and_the_second_best_stands_in_for_a_baseline():
    found = verdict_of(sweep(cell("a", 50.0), cell("sgd", 60.0)))
    assert found == (
        "sgd ends highest, at 60.0 %, 10.0 points above a. This is one seed: differences of a few points mean nothing."
    )


def test_every_column_has_its_own_and_where_there_is_nothing_to_compare_nothing_is_said():
    cells = [
        cell(row, test, test, column=column)
        for column, row, test in (("x", "sgd", 1.0), ("x", "a", 2.0), ("y", "a", 3.0))
    ]
    assert verdict_of(sweep(*cells)).startswith("a ends highest")
    both = verdict_of(sweep(*cells, cell("sgd", 9.0, 9.0, column="y")))
    assert both.startswith("x: a ends highest")
    assert " y: sgd ends highest" in both
    assert verdict_of(sweep(cells[0])) == ""
    assert verdict_of(sweep(cell("sgd", 1.0), cell("a", 2.0), axis=Axis("mu"))) == ""
