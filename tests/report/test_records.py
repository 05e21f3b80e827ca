"""Records are read whole, or named with the reason."""

import json

import pytest

from deepbilevel_lab.report.records import read_records
from tests.report.written import not_done, write_everything, write_run, write_sweep


def cell(**changes):
    return {"row": "sgd", "column": "clean", "x": None, "published": None, "runs": [not_done(0, "missing")], **changes}


def problem(folder):
    records = read_records(folder)
    assert not records.sweeps
    (found,) = records.problems
    return found


def test_everything_that_was_written_is_read(tmp_path):
    records = read_records(write_everything(tmp_path))
    assert [sweep.name for sweep in records.sweeps] == ["compare", "noise", "table1"]
    assert not records.problems
    assert not records.loose
    table = records.sweeps[2]
    assert (table.scale, table.axis, len(table.cells)) == ("compact", None, 8)
    noisy = table.cells[6]
    assert noisy.published.test == 49.62
    assert noisy.published.note.startswith("doubtful")
    assert records.runs[noisy.runs[1].id].history[-1].test == noisy.runs[1].figures["test"]


def test_runs_of_no_sweep_are_loose_and_runs_set_aside_are_not_read(tmp_path):
    kept, aside = (write_run(tmp_path, name, 0, 90, 60, 4) for name in ("kept", "aside"))
    folder = tmp_path / "runs" / aside["id"]
    folder.rename(folder.with_name(f"{aside['id']}.old-1"))
    assert [run.id for run in read_records(tmp_path).loose] == [kept["id"]]
    tmp_path = tmp_path.rename(tmp_path.with_name("all.old-1"))
    assert len(read_records(tmp_path).runs) == 1, "what is asked for by name is read"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 1, "name": "cut sh', "Unterminated string"),
        ("[1, 2]", "a list instead of an object"),
        ('{"format": 2}', "format is 2; this version reads format 1"),
        ("[" * 100_000, "recursion"),
        ("\x00\xff", "Expecting value"),
    ],
)
def test_a_damaged_or_foreign_file_is_named_and_stops_nothing(tmp_path, text, reason):
    write_run(tmp_path, "sound", 0, 90, 60, 4)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "sweep-x.json").write_text(text)
    found = problem(tmp_path)
    assert found.path == "deep/sweep-x.json"
    assert reason in found.why
    assert len(read_records(tmp_path).runs) == 1


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "sweep-x.json").write_bytes(b"\xff\xfe\x80")
    assert "utf-8" in problem(tmp_path).why


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"title": None}, "title is None; it must be a text"),
        ({"kind": "contest"}, "kind is 'contest'; this version knows comparison, experiment"),
        ({"cells": {}}, "cells must be a list of objects"),
        ({"cells": [3]}, "cells must be a list of objects"),
        ({"axis": "noise"}, "axis is 'noise'; it must be an object or null"),
        ({"cells": [cell(x="50")]}, "x is '50'; it must be a number or null"),
        ({"cells": [cell(x=True)]}, "x is True; it must be a number or null"),
        ({"cells": [cell(runs=[not_done(0, "sleeping")])]}, "status is 'sleeping'"),
        ({"cells": [cell(runs=[not_done("0", "done")])]}, "seed is '0'; it must be a whole number"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(tmp_path, changes, reason):
    write_sweep(tmp_path, "x", **changes)
    assert reason in problem(tmp_path).why


def test_numbers_nobody_can_draw_count_as_not_measured(tmp_path):
    figures = {"test": float("nan"), "train": float("inf"), "gap": 10**400, "best": 1e300, "train_clean": 50}
    write_sweep(tmp_path, "x", cells=[cell(runs=[{**not_done(0, "done"), "figures": figures}])])
    (sweep,) = read_records(tmp_path).sweeps
    assert dict(sweep.cells[0].runs[0].figures) == {**dict.fromkeys(figures), "train_clean": 50.0}


def test_texts_arrive_without_what_no_file_can_hold(tmp_path):
    (tmp_path / "sweep-x.json").write_text(
        json.dumps({"format": 1, "kind": "experiment", "name": "x", "title": "a\x00b\x1bc\ud800d\te", "cells": []})
    )
    (sweep,) = read_records(tmp_path).sweeps
    assert sweep.title == "a\ufffdb\ufffdc\ufffdd\te"


def test_two_records_of_one_run_are_told(tmp_path):
    record = write_run(tmp_path, "twice", 0, 90, 60, 4)
    copy = tmp_path / "zz"
    copy.mkdir()
    (copy / "record.json").write_text(json.dumps(record))
    records = read_records(tmp_path)
    assert len(records.runs) == 1
    assert records.problems[0].path == "zz/record.json"
    assert record["id"] in records.problems[0].why


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder; name one that holds"):
        read_records(tmp_path / "nowhere")
