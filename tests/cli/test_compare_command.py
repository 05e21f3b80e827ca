"""``deepbilevel compare``: a comparison that is killed, interrupted and gone on with, and what it prints."""

import json
import os
import select
import signal
import subprocess
import sys

import pytest
from PIL import Image

from deepbilevel_lab.training import find_runs
from tests.cli.trained import run_in_process

BASE = [
    *("--data", "digits", "--noise", "uniform:0.5", "--epochs", "2", "--limit", "128", "--threads", "1"),
    *("--set", "data.test_limit=50", "--set", "group.num_batches=4", "--set", "group.batch_size=4"),
]
DIVERGING = "sgd[optimizer.lr=1e30]"
METHODS = ["sgd", "bilevel+mixup", DIVERGING]
# One at a time: after the first is done enough is left to be interrupted, however fast the machine is.
COMMAND = [*BASE, "--methods", ",".join(METHODS), "--seeds", "0-1", "--jobs", "1"]
SOUND = [*BASE, "--methods", ",".join(METHODS[:2]), "--seeds", "0-1"]

needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for others' processes needs Linux")


def compare(*arguments):
    return run_in_process("compare", *arguments)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "deepbilevel", "compare", *map(str, arguments), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite started in the background ignores Ctrl-C, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for(process, *kinds):
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] in kinds:
            return event
    raise AssertionError(process.stderr.read())


def read_comparison(out):
    [path] = out.glob("sweep-compare-*.json")
    return json.loads(path.read_text())


def statuses(record):
    return {method["row"]: [run["status"] for run in method["runs"]] for method in record["cells"]}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Return the folder and what was seen of a comparison: killed, interrupted, and brought to its end."""
    out = tmp_path_factory.mktemp("runs")
    seen = {"out": out}
    with start(*COMMAND, "--out", out) as process:
        seen["first"] = wait_for(process, "started")
        running = [record.process for record in (run.read_record() for run in find_runs(out))]
        handles = [os.pidfd_open(pid) for pid in running]
        process.kill()
        seen["gone"] = [bool(select.select([handle], [], [], 120)[0]) for handle in handles]
        for handle in handles:
            os.close(handle)
    seen["killed"] = read_comparison(out)
    with start(*COMMAND, "--out", out) as process:
        wait_for(process, "done")
        os.killpg(process.pid, signal.SIGINT)
        _, seen["interrupted errors"] = process.communicate()
        seen["interrupted code"] = process.returncode
    seen["interrupted"] = read_comparison(out)
    seen["last"] = compare(*COMMAND, "--out", out)
    seen["record"] = read_comparison(out)
    return seen


@needs_pidfd
def test_a_killed_command_leaves_no_process_and_a_record_of_where_it_stood(history):
    assert history["gone"]
    assert all(history["gone"])
    assert history["first"]["row"] in METHODS
    assert "running" in statuses(history["killed"])[history["first"]["row"]]


@needs_pidfd
def test_an_interrupted_command_ends_with_130_and_says_that_it_goes_on(history):
    assert history["interrupted code"] in (130, 1)  # 1: the diverging one was there first
    assert "Traceback" not in history["interrupted errors"]
    assert "rerun the same command" in history["interrupted errors"]
    flat = [status for each in statuses(history["interrupted"]).values() for status in each]
    assert "done" in flat
    assert {"missing", "interrupted"} & set(flat)
    assert "running" not in flat


@needs_pidfd
def test_the_same_command_brings_it_to_its_end_and_tells_what_failed(history):
    assert history["last"].exit_code == 1, history["last"].output
    assert statuses(history["record"]) == {
        "sgd": ["done"] * 2,
        "bilevel+mixup": ["done"] * 2,
        DIVERGING: ["failed"] * 2,
    }
    assert "0 of 2, 2 failed" in history["last"].stdout
    assert f"note: {DIVERGING}, seed 0 failed: " in history["last"].stdout
    assert f"error: 2 of 6 runs failed: {DIVERGING}, seed 0; {DIVERGING}, seed 1" in history["last"].stderr
    assert "optimizer.lr" in history["record"]["cells"][2]["runs"][1]["error"]


@needs_pidfd
def test_every_run_saw_as_many_images_and_the_figures_are_those_of_its_record(history):
    for method in history["record"]["cells"][:2]:
        for run in method["runs"]:
            record = json.loads((history["out"] / run["folder"] / "record.json").read_text())
            assert run["images_seen"] == 2 * 128
            assert (run["figures"]["test"], run["figures"]["best"]) == (record["final"]["test"], record["best"]["test"])
            assert run["figures"]["train_clean"] == record["final"]["train_clean"]
            assert record["spec"]["seed"] == run["seed"]


@needs_pidfd
def test_what_other_comparisons_have_run_is_not_run_again(history):
    before = {run.record_file: run.record_file.stat().st_mtime_ns for run in find_runs(history["out"])}
    done = compare(*SOUND, "--out", history["out"])
    assert done.exit_code == 0, done.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for word in ("sgd", "bilevel+mixup", "last", "best", "train", "clean", "±"):
        assert word in done.stdout
    pictures = sorted(history["out"].glob("sweep-compare-*.png"))
    assert len(pictures) == 2
    for picture in pictures:
        with Image.open(picture) as image:
            assert (image.width, image.height > 200) == (1548, True)


@needs_pidfd
def test_the_whole_table_fits_a_terminal_of_80_columns(history):
    printed = run_in_process("compare", *SOUND, "--out", history["out"], "--quiet", COLUMNS="80").stdout
    assert "bilevel+mixup" in printed
    assert "seconds" in printed
    assert max(map(len, printed.partition("record: ")[0].splitlines())) <= 80


@needs_pidfd
def test_quiet_markdown_and_json_print_nothing_else(history):
    quiet = compare(*SOUND, "--out", history["out"], "--quiet").stdout
    assert quiet.split()[:2] == ["method", "seeds"]
    lines = compare(*SOUND, "--out", history["out"], "--markdown").stdout.splitlines()
    assert lines[0].startswith("| method | seeds | last |")
    assert lines[2].startswith("| sgd | 2 | ")
    events = [json.loads(line) for line in compare(*SOUND, "--out", history["out"], "--json").stdout.splitlines()]
    assert [event["event"] for event in events] == ["done"] * 4 + ["compared"]
    assert [(event["row"], event["seed"]) for event in events[:2]] == [("sgd", 0), ("bilevel+mixup", 0)]
    summary = history["record"]["cells"][0]["summary"]
    assert events[-1]["cells"][0]["summary"] == summary


def test_a_dry_run_lists_the_runs_and_writes_nothing(tmp_path):
    done = compare(*COMMAND, "--out", tmp_path / "runs", "--dry-run")
    assert done.exit_code == 0, done.output
    assert [line.rpartition(":")[0] for line in done.stdout.splitlines()] == [
        f"{name}, seed {seed}" for seed in (0, 1) for name in METHODS
    ]
    specs = [json.loads(line) for line in compare(*COMMAND, "--dry-run", "--json").stdout.splitlines()]
    assert [(each["row"], each["seed"]) for each in specs][:2] == [("sgd", 0), ("bilevel+mixup", 0)]
    assert all(each["spec"]["epochs"] == 2 for each in specs)
    assert not (tmp_path / "runs").exists()


def test_the_list_has_every_name_and_needs_no_torch():
    code = """
import sys
from typer.testing import CliRunner
from deepbilevel_lab.cli.app import app
result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", "--list"])
from deepbilevel_lab.sweeps.named_methods import METHODS
assert result.exit_code == 0, result.output
assert all(name in result.stdout and each.description in result.stdout for name, each in METHODS.items())
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    known = json.loads(compare("--list", "--json").stdout)
    assert known["methods"]["bilevel"]["group"] in known["groups"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data is missing"),
        (["--data", "digits", "--methods", "bilevle"], "did you mean 'bilevel'"),
        (["--data", "digits", "--methods", "sgd+bilevel"], "do not go together"),
        (["--data", "digits", "--methods", "sgd,exact+random"], "method 'exact+random'"),
        (["--data", "digits", "--methods", "bilevel[epochs=1]"], "--set epochs="),
        (["--data", "digits", "--set", "method.mu=1"], "bilevel[method.mu=0.1]"),
        (["--data", "digits", "--set", "seed=1"], "--seeds"),
        (["--data", "digits", "--seeds", "x"], "0-4"),
        (["--data", "digits", "--json", "--markdown"], "choose one"),
        (["--data", "digits", "--set", "nonsense"], "key=value"),
        (["--data", "digits", "--on", "slurm"], "--on must be local, ray or ray:HOST:PORT"),
        (["--data", "digits", "--on", "ray:"], "as in ray:10.0.0.1:6379"),
    ],
)
def test_wrong_usage_ends_with_2_says_why_and_leaves_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = compare(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_runs_whose_exported_records_are_there_are_not_run_again(history, tmp_path):
    exported = run_in_process("runs", "export", tmp_path, "--out", history["out"])
    assert exported.exit_code == 0
    done = compare(*SOUND, "--out", tmp_path, "--json")
    assert done.exit_code == 0
    assert {json.loads(line)["event"] for line in done.stdout.splitlines()} == {"done", "compared"}
    assert not list(tmp_path.rglob("*.safetensors"))
