"""Tables put the paper's numbers beside ours, and hide nothing that is missing."""

import csv
import io
from statistics import mean, stdev

import pytest

from deepbilevel_lab.report.records import read_records
from deepbilevel_lab.report.summaries import parts_not_run
from deepbilevel_lab.report.tables import (
    NOT_PRINTED,
    Entry,
    planned_table,
    results_csv,
    results_table,
    runs_table,
    table_csv,
)
from tests.report.written import not_done, write_everything, write_sweep, write_whole_table


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    records = read_records(write_everything(tmp_path_factory.mktemp("records")))
    return {sweep.name: sweep for sweep in records.sweeps}


def lines(table):
    """Each line of a table by its part and head, its fields by their headings."""
    names = [f"{column.group} {column.name}".strip() for column in table.columns]
    return {(part, row.head): dict(zip(names, row.entries, strict=True)) for part, rows in table.parts for row in rows}


def parse(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_ours_stands_beside_the_papers_number_without_a_difference_where_the_scale_is_reduced(sweeps):
    line = lines(results_table(sweeps["table1"]))["CifarNet, clean", "bilevel"]
    ours = [run.figures["test"] for run in sweeps["table1"].cells[3].runs]
    assert line["Test, last epoch paper"].text == "75.70"
    assert line["Test, last epoch ours"].text == f"{mean(ours):.2f} ± {stdev(ours):.2f}"
    assert sweeps["table1"].reduced
    assert "Test, last epoch difference" not in line
    assert line["seeds finished"].text == "3 of 3"


def test_missing_and_failed_runs_are_shown_as_such(sweeps):
    table = lines(results_table(sweeps["table1"]))
    failed = table["CifarNet, 50 % noise", "SGD"]
    assert failed["Test, last epoch ours"].text == failed["Train, clean labels, ours"].text == "failed"
    assert failed["Test, last epoch paper"].text == "40.20"
    assert failed["seeds finished"].text == "0 of 3; 3 failed"
    partly = table["CifarNet, clean", "bilevel, no L1 constraint"]
    assert "±" in partly["Test, last epoch ours"].text
    assert partly["seeds finished"].text == "2 of 3; 1 missing"


def test_what_nobody_ran_stands_in_a_table_of_its_own_with_what_the_paper_prints(tmp_path, sweeps):
    assert not [e for row in lines(results_table(sweeps["noise"])).values() for e in row.values() if e.look == "absent"]
    assert lines(planned_table(sweeps["noise"])) == {
        ("CifarNet", "SGD"): {"label noise (%)": Entry("80"), "seeds planned": Entry("2")}
    }
    write_whole_table(tmp_path)
    planned = lines(planned_table(read_records(tmp_path).sweeps[0]))
    assert {part for part, _ in planned} == {"Inception, clean", "Inception, 50 % noise"}
    assert planned["Inception, clean", "SGD"]["Test, last epoch, paper"].text == "75.68"
    assert planned["Inception, 50 % noise", "b) weights per layer"]["Test, last epoch, paper"].note == 1
    every = runs_table(sweeps["noise"])
    looks = {entry.look for _, rows in every.parts for row in rows for entry in row.entries}
    assert looks == {""}, "what nobody ran is no fault"


def test_what_only_the_paper_has_stands_beside_what_was_run(tmp_path):
    printed = {"train": None, "test": 80.0, "gap": None, "note": None}
    done = {**not_done(0, "done"), "figures": {"test": 50.0}}
    cells = [
        {"row": row, "column": column, "x": None, "published": printed, "runs": runs}
        for column, ours in (("run", [done]), ("planned", [not_done(0, "missing")]))
        for row, runs in (("ours", ours), ("others", []))
    ]
    write_sweep(tmp_path, "x", cells=cells)
    (sweep,) = read_records(tmp_path).sweeps
    table, planned = lines(results_table(sweep)), lines(planned_table(sweep))
    assert list(table) == [("run", "ours"), ("run", "others")]
    assert [entry.text for entry in table["run", "others"].values()] == ["80.00", *[NOT_PRINTED] * 3]
    assert list(planned) == [("planned", "ours"), ("planned", "others")]


def test_where_labels_are_clean_nothing_is_called_unmeasured(tmp_path):
    write_whole_table(tmp_path)
    (sweep,) = read_records(tmp_path).sweeps
    table = lines(results_table(sweep))
    name = "Train, clean labels, ours"
    assert table["CifarNet, clean", "SGD"][name] == Entry(NOT_PRINTED)
    assert "±" in table["CifarNet, 50 % noise", "SGD"][name].text
    assert ("Inception, clean", "SGD") not in table  # nothing of that column was run, or asked for
    assert "Inception, clean" in dict(parts_not_run(sweep))
    assert parse(results_csv(sweep))[0]["train_clean_ours"] == ""
    clean = next(line for line in parse(table_csv(runs_table(sweep))) if line["column"] == "CifarNet, clean")
    assert clean["Train, clean labels"] == NOT_PRINTED
    figures = {"test": 50.0, "train": None, "train_clean": None}
    unmeasured = [{**not_done(0, "done"), "figures": figures}, {**not_done(1, "done"), "figures": {"train_clean": 1.0}}]
    cells = [{"row": str(i), "column": "", "x": None, "published": None, "runs": [r]} for i, r in enumerate(unmeasured)]
    write_sweep(tmp_path / "other", "x", cells=cells)
    (other,) = read_records(tmp_path / "other").sweeps
    assert lines(results_table(other))["", "0"]["Train, clean labels"].text == "not measured"


def test_no_field_is_blank(sweeps):
    for sweep in sweeps.values():
        for table in (results_table(sweep), runs_table(sweep)):
            assert all(entry.text.strip() for _, rows in table.parts for row in rows for entry in row.entries)


def test_a_doubtful_number_is_marked_and_explained(sweeps):
    table = results_table(sweeps["table1"])
    marked = {
        key: entry for key, line in lines(table).items() for name, entry in line.items() if entry.note is not None
    }
    assert list(marked) == [("CifarNet, 50 % noise", "bilevel, weights per layer")]
    assert all(entry.look == "doubtful" and entry.note == 1 for entry in marked.values())
    assert table.notes == ("doubtful: repeats the numbers of another network",)


def test_the_papers_columns_are_there_only_where_it_prints_something(sweeps):
    compared = [column.name for column in results_table(sweeps["compare"]).columns]
    assert not {"paper", "difference"} & set(compared)
    groups = {column.group for column in results_table(sweeps["noise"]).columns if column.name == "paper"}
    assert groups == {"Test, last epoch"}


def test_a_figure_of_one_seed_has_no_spread_and_zero_is_a_number(tmp_path):
    run = {**not_done(0, "done"), "figures": {"test": 0.0, "gap": -3.0}}
    published = {"train": None, "test": 0.0, "gap": None, "note": None}
    cells = [{"row": "sgd", "column": "", "x": None, "published": published, "runs": [run]}]
    write_sweep(tmp_path, "x", cells=cells)
    line = lines(results_table(read_records(tmp_path).sweeps[0]))["", "sgd"]
    assert [line[f"Test, last epoch {name}"].text for name in ("paper", "ours", "difference")] == [
        "0.00",
        "0.00",
        "+0.00",
    ]
    assert line["Gap, train less test, ours"].text == "\N{MINUS SIGN}3.00"


def test_csv_holds_the_same_numbers_unrounded(sweeps):
    table = parse(results_csv(sweeps["table1"]))
    ours = [run.figures["train"] for run in sweeps["table1"].cells[3].runs]
    assert (table[3]["column"], table[3]["row"]) == ("CifarNet, clean", "bilevel")
    assert float(table[3]["train_ours"]) == pytest.approx(mean(ours))
    assert float(table[3]["train_deviation"]) == pytest.approx(stdev(ours))
    assert table[3]["train_difference"] == "", "at a reduced scale it says nothing about the method"
    noise = parse(results_csv(sweeps["noise"]))[1]
    assert float(noise["test_difference"]) == pytest.approx(float(noise["test_ours"]) - float(noise["test_paper"]))
    assert table[4]["test_ours"] == "failed"
    assert table[4]["test_paper"] == "40.2"
    assert table[6]["note"].startswith("doubtful")
    assert [line["label noise"] for line in parse(results_csv(sweeps["noise"]))][::2] == [
        "0",
        "20",
        "40",
        "50",
        "60",
        "80",
    ]


def test_every_run_has_its_line_with_what_went_wrong(sweeps):
    table = parse(table_csv(runs_table(sweeps["table1"])))
    assert len(table) == 24
    assert sum(line["status"] == "failed: the loss of mini-batch 3 is nan" for line in table) == 3
    assert sum(line["status"] == "missing" for line in table) == 1


def test_a_run_that_goes_on_is_no_fault_and_one_that_stopped_is(tmp_path):
    runs = [not_done(seed, status) for seed, status in enumerate(("running", "missing", "interrupted", "failed"))]
    write_sweep(tmp_path, "x", cells=[{"row": "a", "column": "", "x": None, "published": None, "runs": runs}])
    ((_, rows),) = runs_table(read_records(tmp_path).sweeps[0]).parts
    assert [row.entries[3].look for row in rows] == ["", "", "absent", "absent"]


def test_a_long_name_of_an_axis_gets_room(tmp_path):
    kinds = []
    for name in ("mu", "the share of the training images that only ever validates"):
        cells = [{"row": "a", "column": "", "x": 1, "published": None, "runs": [not_done(0, "failed")]}]
        write_sweep(tmp_path / name, "x", axis={"name": name}, cells=cells)
        kinds.append(results_table(read_records(tmp_path / name).sweeps[0]).columns[0].kind)
    assert kinds == ["number", "words"]


def test_a_spreadsheet_finds_no_formula_in_a_name(tmp_path):
    cells = [{"row": "=HYPERLINK(1)", "column": "-1+1", "x": -5, "published": None, "runs": []}]
    write_sweep(tmp_path, "x", axis={"name": "mu"}, cells=cells)
    (line,) = parse(results_csv(read_records(tmp_path).sweeps[0]))
    assert (line["row"], line["column"], line["mu"]) == ("'=HYPERLINK(1)", "'-1+1", "-5")
    assert line["test_ours"] == "missing"
