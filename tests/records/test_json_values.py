"""Records as types: what is written is read by the same definitions, and so is what others have written."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from deepbilevel_lab.records import (
    FIGURES,
    Axis,
    Cell,
    CellRun,
    Environment,
    FormatError,
    Images,
    MeanFigure,
    Published,
    Row,
    RunRecord,
    Seconds,
    SweepRecord,
    from_json,
    read_file,
    to_json,
    to_text,
)

RESULTS = Path(__file__).parents[2] / "results"
EPOCH = Row(epoch=1, lr=0.1, loss=2.0, negative_share=0.25, zeroed_steps=1, skipped_batches=2)
EVALUATED = replace(EPOCH, epoch=2, shared=0.5, train=90.0, train_clean=80.0, test=70.0, gap=20.0)
ENVIRONMENT = Environment("3.11", {"torch": "2.4"}, "abc+", "Linux", "a processor", 2, ("a GPU",))
RUN = RunRecord(
    id="0123456789",
    name="mine",
    status="done",
    error=None,
    process=7,
    processes=2,
    updated="2026-11-16T04:13:31+00:00",
    spec={"seed": 3, "epochs": 2, "method": {"kind": "sgd"}},
    metric="mAP",
    final=EVALUATED,
    best=EVALUATED,
    history=(EPOCH, EVALUATED),
    images=Images(10, 5),
    parameters=100,
    steps=4,
    seconds=Seconds(3.0, 2.0, 1.0),
    samples_per_second=12.5,
    data_dir="/data",
    environment=ENVIRONMENT,
)
SWEEP = SweepRecord(
    kind="experiment",
    id="abc",
    name="mine",
    title="Mine",
    about="of mine",
    scale="compact",
    reduced="less",
    axis=Axis("noise", "%"),
    updated="2026-11-16T04:13:31+00:00",
    base={"epochs": 2},
    seeds=(0, 1),
    metric="accuracy",
    cells=(
        Cell(
            "SGD",
            "CIFAR-10",
            0.5,
            Published(99.0, 60.0, None, "doubtful"),
            (CellRun(3, "0123456789", "done", None, RUN.figures, "mine-0123456789", 512),),
            {"method": "sgd"},
            {"test": MeanFigure(70.0, None), "best": None},
        ),
    ),
    environment=ENVIRONMENT,
)


@pytest.mark.parametrize("record", [RUN, SWEEP], ids=["run", "sweep"])
def test_what_is_written_is_read(record, tmp_path):
    file = tmp_path / "record.json"
    file.write_text(to_text(record))
    assert read_file(type(record), file) == record


def test_keys_of_format_1_are_those_there_were():
    run, sweep = to_json(RUN), to_json(SWEEP)
    assert run["format"] == sweep["format"] == 1
    assert list(run) == [
        *("format", "id", "name", "status", "error", "process", "processes", "updated", "spec", "metric", "final"),
        *("best", "history", "images", "parameters", "steps", "seconds", "samples_per_second", "data_dir"),
        "environment",
    ]
    assert list(sweep) == [
        *("format", "kind", "id", "name", "title", "about", "scale", "reduced", "axis", "updated", "base", "seeds"),
        *("metric", "cells", "environment"),
    ]
    (cell,) = sweep["cells"]
    assert set(cell) == {"row", "column", "x", "settings", "published", "runs", "summary"}
    (own,) = cell["runs"]
    assert set(own) == {"seed", "id", "folder", "status", "error", "figures", "images_seen"}
    assert list(own["figures"]) == list(FIGURES)
    # What an epoch did not measure is no key; what a run has not reached is null.
    assert list(to_json(EPOCH)) == ["epoch", "lr", "loss", "negative_share", "zeroed_steps", "skipped_batches"]
    begun = to_json(replace(RUN, final=None, best=None, history=()))
    assert (begun["final"], begun["best"], begun["error"]) == (None, None, None)


@pytest.mark.parametrize(("pattern", "kind"), [("record.json", RunRecord), ("sweep-*.json", SweepRecord)])
def test_every_committed_record_is_read_and_loses_nothing(pattern, kind):
    files = sorted(RESULTS.rglob(pattern))
    assert files
    for file in files:
        written = json.loads(file.read_text())
        later = {"processes": 1} if kind is RunRecord else {}  # what the first of them did not tell
        assert to_json(read_file(kind, file)) == {**later, **written}, file


def test_a_record_with_the_least_and_with_more_than_we_know_is_read():
    least = {"id": "x", "name": "y", "status": "running", "spec": {"seed": 0, "epochs": 1}, "history": []}
    record = from_json(RunRecord, {**least, "invented later": {"a": 1}})
    assert (record.final, record.best, record.error) == (None, None, None)
    assert (record.metric, record.processes) == ("accuracy", 1)
    assert record.figures == dict.fromkeys(FIGURES)
    assert record.images == Images(None, None)
    with pytest.raises(ValueError, match=r"^history must be a list of objects$"):
        from_json(RunRecord, {**least, "history": None})
    with pytest.raises(ValueError, match=r"^spec\.seed is True; it must be a whole number$"):
        from_json(RunRecord, {**least, "spec": {"seed": True, "epochs": 1}})


@dataclass(frozen=True)
class Inner:
    word: Literal["a", "b"]
    number: float
    maybe: float | None


@dataclass(frozen=True)
class Outer:
    inner: tuple[Inner, ...]
    words: tuple[str, ...] = ()
    named: Mapping[str, Inner | None] = field(default_factory=dict)
    other: Mapping[str, Any] | None = None


GOOD = {"word": "a", "number": 1}


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"inner": [{**GOOD, "word": "c"}]}, "inner.0.word is 'c'; this version knows a, b"),
        ({"inner": [GOOD, {"word": "a"}]}, "inner.1.number is None; it must be a number"),
        ({"inner": [{**GOOD, "number": float("nan")}]}, "inner.0.number is nan; it must be a number"),
        ({"inner": [{**GOOD, "maybe": "1"}]}, "inner.0.maybe is '1'; it must be a number or null"),
        ({"inner": [], "words": "ab"}, "words must be a list"),
        ({"inner": [], "words": [1]}, "words.0 is 1; it must be a text"),
        ({"inner": [], "named": {"k": 3}}, "named.k is 3; it must be an object or null"),
        ({"inner": [], "other": [3]}, "other is [3]; it must be an object or null"),
        ({"inner": [], "words": [["long"] * 10**5]}, "words.0 is " + repr(["long"] * 99)[:200] + "; it must be a text"),
    ],
)
def test_an_error_says_where_it_is_and_not_more_than_a_line(plain, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 the whole message follows
        from_json(Outer, plain)
    assert str(refused.value) == message


def test_what_cannot_be_measured_is_none_and_texts_are_clean_under_every_name():
    found = from_json(Outer, {"inner": [{**GOOD, "maybe": 1e300}], "named": {"a\x00b": None}, "words": ["\x1b[2J"]})
    assert found == Outer((Inner("a", 1.0, None),), ("\ufffd[2J",), {"a\ufffdb": None})


def test_what_nobody_can_walk_is_refused(tmp_path):
    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match=r"^other\.k is nested too deeply"):
        from_json(Outer, {"inner": [], "other": {"k": deep}})
    (tmp_path / "x.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="it is nested too deeply"):
        read_file(Outer, tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"format": 2}')
    with pytest.raises(FormatError, match="format is 2; this version reads format 1"):
        read_file(Outer, tmp_path / "x.json")


def test_records_are_read_without_torch():
    code = "import sys, deepbilevel_lab.records; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
