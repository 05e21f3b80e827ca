"""Names that strangers chose, where they are shown: terminals, spreadsheets, Markdown and HTML obey nothing in them."""

import csv
import html
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from deepbilevel_lab.csv_text import to_csv, without_formula
from deepbilevel_lab.records import RunRecord, read_file
from tests.cli.trained import SMALL_GROUPS, make_spec, run_in_process, train_run

ESCAPE = "\x1b]0;owned\x07\x9b31m"
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1"]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_texts(text):
    assert without_formula(text) == "'" + text


@pytest.mark.parametrize("text", ["-0.5", "+3", "1e-5", "cat", "a=b", ""])
def test_numbers_and_texts_stay(text):
    assert without_formula(text) == text


@pytest.mark.parametrize("text", ["a\r=1+1", "a\n=1+1", "a\r\n=1+1", 'a"\r=1', "a,=1"])
def test_a_field_stays_one_field(text):
    written = to_csv([["first", text], ["second", "b"]])
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["first", text], ["second", "b"]]
    # Outside of quotes, a carriage return would begin another line in a spreadsheet.
    assert "\r" not in "".join(written.split('"')[::2])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a person's own images, whose classes have the names a stranger gave to folders."""
    root = tmp_path_factory.mktemp("hostile")
    for number, name in enumerate(NAMES):
        (root / "photos" / name).mkdir(parents=True)
        for each in range(20):
            Image.new("RGB", (32, 32), (80 * number, each, 100)).save(root / "photos" / name / f"{each}.png")
    settings = {**SMALL_GROUPS, "data.limit": None, "data.test_limit": None}
    return train_run(root / "runs", make_spec("folder", path=str(root / "photos"), **settings))


NAMES = ("<img src=x onerror=alert(1)>", "=HYPERLINK(1)", f"[link](javascript:1) | {ESCAPE}\n# title [bold]x")


def test_the_card_shows_names_and_obeys_none(run):
    (line,) = [each for each in (run / "README.md").read_text().splitlines() if "3 classes" in each]
    assert "<img" not in line
    assert "[link](" not in line
    assert "\\[link\\]\\(javascript:1\\) \\|" in line
    assert html.escape("<img src=x onerror=alert") in line
    assert not set(ESCAPE[0] + ESCAPE[-4]) & set(line)


def test_a_table_of_predictions_holds_no_formula(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("=1+1.png", "a\r=1+1.png", "-2+3.png"):
        Image.new("RGB", (32, 32), (80, 5, 100)).save(name)
    result = run_in_process("predict", run, "=1+1.png", "a\r=1+1.png", "./-2+3.png", "--out", "out.csv")
    assert result.exit_code == 0, result.output
    header, *rows = csv.reader(io.StringIO(Path("out.csv").read_bytes().decode(), newline=""))
    assert all(len(row) == len(header) for row in rows)
    assert not any(each.lstrip().startswith("=") for row in (header, *rows) for each in row)
    assert all(Path(row[0]).is_file() for row in rows)  # a path is still that of its file


def test_commands_print_no_escapes_and_obey_no_markup(run):
    for arguments in (
        ("runs", "list", "--out", run.parent),
        ("runs", "show", run),
        ("evaluate", run),
        ("data", "check", "folder", "--dir", run.parent.parent / "photos", "--out", run.parent),
    ):
        result = run_in_process(*arguments)
        assert result.exit_code == 0, result.output
        assert not {"\x1b", "\x07", "\x9b"} & set(result.output), arguments
        assert arguments[0] == "runs" or "[bold]x" in result.output


def test_records_of_strangers_print_no_escapes(run, tmp_path):
    plain = json.loads((run / "record.json").read_text())
    plain["name"] = plain["error"] = f"{ESCAPE}[/nothing]"
    plain["status"] = "failed"
    plain["spec"]["data"] |= {"path": ESCAPE, f"{ESCAPE}[/key]": 1}
    folder = tmp_path / f"run{ESCAPE}[bold]"
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps(plain))
    (tmp_path / f"damaged{ESCAPE}").mkdir()
    (tmp_path / f"damaged{ESCAPE}" / "record.json").write_text("{")
    for arguments in (("list",), ("show", folder), ("show", tmp_path / f"damaged{ESCAPE}"), ("compare",)):
        result = run_in_process("runs", *arguments, "--out", tmp_path)
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert not {"\x1b", "\x07", "\x9b"} & set(result.output), arguments
    assert not {"\x1b", "\x9b"} & set(str(read_file(RunRecord, folder / "record.json").spec))
