"""An audit of a table: rows instead of pictures, on the page in a real browser and in the tables."""

import numpy as np
import pytest
import torch

from deepbilevel_lab.audit import write_findings
from deepbilevel_lab.data.table import ColumnsSpec, load_table
from tests.audit_command.found import HOSTILE, QUICK, make_findings, read_table
from tests.audit_command.test_page import NUM_NODES, open_page  # noqa: F401
from tests.cli.trained import run_in_process
from tests.data.tables import write_notes, write_patients, write_table


def flip(path, column, values, every=12):
    """Give every twelfth row the other label, and return the numbers of these rows."""
    rows = read_table(path)
    flipped = list(range(0, len(rows), every))
    for number in flipped:
        rows[number][column] = values[1 - values.index(rows[number][column])]
    write_table(path, [list(row.values()) for row in rows], list(rows[0]))
    return flipped


def test_flipped_labels_are_found_and_decisions_are_trained_on(tmp_path):
    table = write_notes(tmp_path / "notes.csv", num_rows=240)
    flipped = flip(table, "kind", ("sport", "food"))
    about = (table, "--text", "note", "--target", "kind")
    result = run_in_process("audit", *about, "--out", tmp_path / "audit", "--epochs", "8", *QUICK)
    assert result.exit_code == 0, result.output
    assert "240 rows, 2 classes" in result.stdout
    issues = read_table(tmp_path / "audit" / "issues.csv")
    assert len(issues) == 240
    worst = {int(row["index"]) for row in issues[: len(flipped)]}
    assert len(worst & set(flipped)) > len(flipped) / 2  # by chance it would be a twelfth
    assert not list((tmp_path / "audit").glob("pictures-*"))
    decisions = [[number, "accept", ("food", "sport")[number % 2 == 0]] for number in flipped]
    corrected = write_table(tmp_path / "corrected.csv", decisions, ["index", "decision", "new_label"])
    arguments = ("--data", *about, "--labels", corrected, "--epochs", "1", *QUICK, "--out", tmp_path / "runs")
    result = run_in_process("train", *arguments)
    assert result.exit_code == 0, result.output


def table_findings(tmp_path, num_rows=200, *, text=None, **cells):
    """Return an audit of a table of which every tenth label is wrong."""
    findings = make_findings(num_rows)
    names = [findings.class_names[label] for label in findings.data.labels.tolist()]
    columns = {"note": [f"row {number}\n{'long words ' * 30}" for number in range(num_rows)], "x": range(num_rows)}
    columns |= {name: [value] * num_rows for name, value in cells.items()}
    rows = list(zip(*columns.values(), names, strict=True))
    path = write_table(tmp_path / "table.csv", rows, [*columns, "y"])
    table = load_table(path, ColumnsSpec("y", text=text))
    assert torch.equal(table.labels, torch.tensor([sorted(findings.class_names).index(name) for name in names]))
    from dataclasses import replace

    return replace(findings, data=table, files=[""] * num_rows)


@pytest.fixture
def page_of(tmp_path):
    def write(**settings):
        return write_findings(table_findings(tmp_path, **settings), tmp_path / "audit").page

    return write


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("text", [None, "note"])
def test_rows_are_read_and_decided_on(open_page, page_of, width, text):  # noqa: F811
    page = open_page(page_of(text=text), width=width)
    shown = page.locator(".tile.selected")
    index = page.locator("#about").text_content().rpartition(" ")[2]
    assert f"row {index}" in shown.text_content()
    assert f"x: {index}" in page.locator("#whole").text_content()
    assert "drops the row" in page.locator(".hint").text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("a")
    page.keyboard.press("d")
    assert page.locator("#status").text_content() == "2 decided"
    with page.expect_download() as download:
        page.locator("#save").click()
    rows = read_table(download.value.path())
    assert {row["decision"] for row in rows} == {"accept", "drop"}
    assert index in {row["index"] for row in rows}


def test_cells_of_strangers_are_text(open_page, page_of):  # noqa: F811
    page = open_page(page_of(**{HOSTILE: HOSTILE}))
    assert HOSTILE in page.locator("#whole").text_content()
    assert page.locator("img").count() == 0
    assert page.title() == "Labels of photos"


def test_many_rows_open_with_a_few_of_them_drawn(open_page, page_of):  # noqa: F811
    page = open_page(page_of(num_rows=50_000))
    page.locator("#view").select_option("all")
    assert page.evaluate(NUM_NODES) < 1500
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_function("document.querySelector('#tile-49999') !== null")


def test_long_cells_and_many_columns_are_cut(page_of, tmp_path):
    long = "z" * 5000
    content = page_of(num_rows=30, **{f"c{number}": long for number in range(40)}).read_text()
    assert long not in content
    assert long[:2000] in content
    assert '"c27"' in content
    assert '"c28"' not in content


def test_a_table_that_has_changed_is_not_shown_beside_old_findings(tmp_path):
    table = write_patients(tmp_path / "patients.csv", num_rows=60)
    arguments = ("audit", table, "--target", "state", "--out", tmp_path / "audit", "--epochs", "1", *QUICK)
    assert run_in_process(*arguments).exit_code == 0
    (run,) = (tmp_path / "audit" / "runs").iterdir()
    flip(table, "state", ("ill", "well"))
    result = run_in_process("audit", run, "--out", tmp_path / "again")
    assert "the rows or labels in" in result.stderr
    assert "drop the options of training" in run_in_process("audit", run, "--target", "state").stderr


def test_probabilities_are_in_the_order_of_the_rows(tmp_path):
    table = write_patients(tmp_path / "patients.csv", num_rows=60)
    arguments = ("audit", table, "--target", "state", "--out", tmp_path / "audit", "--epochs", "1", *QUICK)
    assert run_in_process(*arguments).exit_code == 0
    assert np.load(tmp_path / "audit" / "pred_probs.npy").shape == (60, 2)
