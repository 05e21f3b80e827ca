"""``deepbilevel train``: what its options make, what it prints, and how it ends."""

import json
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from deepbilevel_lab.cli.app import app
from deepbilevel_lab.losses import HardBootstrap, Mixup
from deepbilevel_lab.specs import from_plain
from deepbilevel_lab.training import RunSpec, load_spec

SHORT = ["--data", "digits", "--epochs", "1", "--limit", "256", "--set", "data.test_limit=50", "--threads", "1"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)], env={"COLUMNS": "200", "DEEPBILEVEL_DATA": None})


def resolve(*arguments):
    result = invoke(*arguments, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return from_plain(RunSpec, json.loads(result.stdout))


def test_naming_the_data_is_enough():
    spec = resolve("--data", "digits", "--noise", "uniform:0.5")
    assert (spec.network.name, spec.method.kind, str(spec.noise)) == ("digit_cnn", "bilevel", "uniform:0.5")


def test_every_option_reaches_its_field():
    spec = resolve(
        *("--data", "cifar10", "--network", "inception", "--method", "sgd", "--noise", "pair:0.2", "--epochs", 7),
        *("--loss", "bootstrap-hard", "--set", "loss.label_share=0.7", "--mixing", "mixup", "--set", "mixing.alpha=2"),
        *("--limit", 500, "--seed", 3, "--threads", 2, "--set", "optimizer.lr=0.5", "--set", "schedule=linear"),
    )
    assert (spec.data.name, spec.data.limit, spec.data.recipe) == ("cifar10", 500, "inception")
    assert (spec.network.name, spec.method.kind, str(spec.noise)) == ("inception", "sgd", "pair:0.2")
    assert (spec.loss, spec.mixing) == (HardBootstrap(label_share=0.7), Mixup(alpha=2.0))
    assert (spec.epochs, spec.seed, spec.threads) == (7, 3, 2)
    assert (spec.optimizer.lr, spec.schedule.kind) == (0.5, "linear")


def test_a_folder_and_a_table_may_be_named_directly(tmp_path):
    (tmp_path / "photos").mkdir()
    spec = resolve("--data", tmp_path / "photos")
    assert (spec.data.name, spec.data.path, spec.network.name) == ("folder", str(tmp_path / "photos"), "small_resnet")
    assert resolve("--data", "folder", "--data-dir", tmp_path / "photos") == spec
    assert resolve("--data", tmp_path / "table.csv").data.name == "csv"


def test_a_dry_run_prints_a_file_that_makes_the_same_run_and_writes_nothing(tmp_path):
    printed = invoke(*SHORT, "--noise", "pair:0.3", "--dry-run", "--out", tmp_path / "runs")
    (tmp_path / "run.toml").write_text(printed.stdout)
    assert load_spec(tmp_path / "run.toml") == resolve(*SHORT, "--noise", "pair:0.3")
    assert resolve("--spec", tmp_path / "run.toml", "--epochs", 9).epochs == 9
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data is missing"),
        (["--data", "digitz"], "did you mean 'digits'"),
        (["--data", "digits", "--network", "cifarnit"], "did you mean 'cifarnet'"),
        (["--data", "digits", "--network", "cifarnet"], "digit_cnn"),
        (["--data", "digits", "--method", "bilevle"], "did you mean 'bilevel'"),
        (["--data", "digits", "--loss", "bootstrap"], "did you mean 'bootstrap-"),
        (["--data", "digits", "--mixing", "mixap"], "did you mean 'mixup'"),
        (["--data", "digits", "--noise", "unifrom:0.5"], "did you mean 'uniform'"),
        (["--data", "digits", "--noise", "uniform:1.5"], "1.5"),
        (["--data", "digits", "--set", "optimiser.lr=1"], "did you mean 'optimizer'"),
        (["--data", "digits", "--set", "optimizer.lr"], "needs key=value"),
        (["--data", "digits", "--set", "epochs=many"], "epochs must be a whole number, got 'many'"),
        (["--data", "digits", "--epochs", "0"], "--epochs"),
        (["--data", "digits", "--seeds", "4-0"], "--seeds must be written"),
        (["--data", "digits", "--seeds", "0-1", "--seed", "1"], "cannot be given together"),
        (["--spec", "nowhere.toml"], "nowhere.toml does not exist"),
        (["--spec", "run.yaml"], "run.yaml"),
        (["--data", "folder", "--spec", "run.toml"], "--spec already says"),
    ],
)
def test_wrong_usage_ends_with_2_says_why_and_leaves_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_data_ends_with_1_and_leaves_nothing(tmp_path):
    result = invoke("--data", "cifar10", "--data-dir", tmp_path / "none", "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert "deepbilevel data fetch cifar10" in result.stderr
    assert list(tmp_path.rglob("*.json")) == []


def test_a_run_says_what_it_does_and_a_finished_one_says_so(tmp_path):
    first = invoke(*SHORT, "--out", tmp_path)
    assert first.exit_code == 0, first.output
    assert "epoch 1/1  loss" in first.stdout
    assert "test accuracy" in first.stdout
    [folder] = tmp_path.iterdir()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
    again = invoke(*SHORT, "--out", tmp_path)
    assert again.exit_code == 0
    assert "is finished; nothing to do" in again.stdout
    assert {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    } == before


def test_quiet_prints_the_result_alone_and_json_one_object_per_line(tmp_path):
    quiet = invoke(*SHORT, "--out", tmp_path / "quiet", "--quiet")
    assert len(quiet.stdout.splitlines()) == 3
    assert quiet.stdout.startswith("test accuracy")
    events = [json.loads(line) for line in invoke(*SHORT, "--out", tmp_path / "json", "--json").stdout.splitlines()]
    assert [event["event"] for event in events] == ["started", "epoch", "done"]
    assert events[-1]["final"] == {name: value for name, value in events[1].items() if name != "event"}


def test_several_seeds_run_as_processes_and_are_summed_up(tmp_path):
    done = invoke(*SHORT, "--out", tmp_path, "--seeds", "0,2", "--jobs", "2")
    assert done.exit_code == 0, done.output
    seeds = {json.loads(path.read_text())["spec"]["seed"] for path in tmp_path.glob("*/record.json")}
    assert seeds == {0, 2}
    assert "test over 2 seed(s)" in done.stdout
    alone = invoke(*SHORT, "--seed", 2, "--out", tmp_path / "alone")
    assert alone.exit_code == 0
    [one] = (tmp_path / "alone").glob("*/model.safetensors")
    assert (tmp_path / one.parent.name / "model.safetensors").read_bytes() == one.read_bytes()


@pytest.mark.slow
def test_a_failing_seed_ends_with_1_and_the_others_are_finished(tmp_path):
    probe = resolve(*SHORT, "--seed", 1)
    (tmp_path / f"{probe.name}-{probe.id}").write_text("a file where the folder of seed 1 should be")
    command = [sys.executable, "-m", "deepbilevel", "train", *SHORT, "--out", str(tmp_path), "--seeds", "0-1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: 1 of 2 runs failed: seed 1; see above" in done.stderr
    assert len(list(tmp_path.glob("*/model.safetensors"))) == 1


def test_on_a_terminal_there_is_a_bar_with_loss_accuracy_and_time_left(tmp_path):
    command = [sys.executable, "-m", "deepbilevel", "train", *SHORT, "--epochs", "40", "--out", str(tmp_path)]
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": "150", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=child, stderr=child, env=environment)
    os.close(child)
    screen = b""
    while True:
        try:
            read = os.read(parent, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not read:
            break
        screen += read
    os.close(parent)
    assert process.wait() == 0
    text = screen.decode()
    assert "of 40" in text
    assert "━" in text
    for word in ("loss", "negative", "test", "best"):
        assert word in text
    assert "0:00:0" in text
