"""``deepbilevel reproduce``: experiments by name, at a size, with real processes on synthetic images."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.cli.trained import run_in_process

SMOKE = ["clothing1m", "--scale", "smoke", "--row", "sgd", "--jobs", "2"]


def run(*arguments, cwd, code=0, **environment):
    result = subprocess.run(
        [sys.executable, "-m", "deepbilevel", "reproduce", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment},
        timeout=600,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Return the command without a process of its own, in an empty folder: to start one takes seconds."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments, code=0):
        result = run_in_process("reproduce", *arguments)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture(scope="module")
def smoked(tmp_path_factory):
    """Runs of which the second needs the network of the first."""
    folder = tmp_path_factory.mktemp("smoke")
    return folder, run(*SMOKE, cwd=folder)


def test_an_experiment_runs_to_its_end_and_is_recorded_beside_what_is_printed(smoked):
    folder, result = smoked
    record = json.loads((folder / "runs/smoke/sweep-clothing1m-smoke.json").read_text())
    status = {(cell["row"], cell["column"]): [run["status"] for run in cell["runs"]] for cell in record["cells"]}
    assert status["SGD", "noisy labels"] == status["SGD", "then clean labels"] == ["done"]
    assert status["Bilevel", "noisy labels"] == ["missing"]  # not asked for
    assert status["Patrini et al.", "noisy labels"] == []
    assert (record["scale"], record["kind"]) == ("smoke", "experiment")
    assert "synthetic images" in record["reduced"]
    assert "69.8" in result.stdout  # printed by the paper
    assert "Bilevel" not in result.stdout.split("record:")[0].split("Patrini")[0]


def test_what_is_finished_is_not_run_again_and_stays_in_the_record(smoked):
    folder, _ = smoked
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    assert len(files) == 2
    run("clothing1m", "--scale", "smoke", "--row", "bilevel", "--column", "noisy", "-q", cwd=folder)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    record = json.loads((folder / "runs/smoke/sweep-clothing1m-smoke.json").read_text())
    done = [
        (cell["row"], cell["column"]) for cell in record["cells"] if any(r["status"] == "done" for r in cell["runs"])
    ]
    assert done == [("SGD", "noisy labels"), ("SGD", "then clean labels"), ("Bilevel", "noisy labels")]


def test_other_settings_take_nothing_out_of_a_record(smoked, monkeypatch):
    folder, _ = smoked
    monkeypatch.chdir(folder)
    file = folder / "runs/smoke/sweep-clothing1m-smoke.json"
    written = file.read_text()
    refused = run_in_process("reproduce", *SMOKE, "--threads", "2")
    assert refused.exit_code == 2, refused.output
    assert re.search(r"has \d finished run\(s\) with other settings, such as clothing1m-", refused.stderr)
    assert "--threads" in refused.stderr
    assert file.read_text() == written


@pytest.mark.slow
def test_records_that_were_exported_count_where_their_runs_are_not_wanted(smoked, tmp_path):
    folder, _ = smoked
    command = [sys.executable, "-m", "deepbilevel", "runs", "export", tmp_path / "elsewhere", "--out", "runs/smoke"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    assert not list(tmp_path.rglob("model.safetensors"))
    arguments = ["--scale", "smoke", "--row", "bilevel", "--column", "noisy", "--out", "elsewhere"]
    run("clothing1m", *arguments, "--seeds", "0-1", "-q", cwd=tmp_path)
    record = json.loads((tmp_path / "elsewhere/sweep-clothing1m-smoke.json").read_text())
    status = {(cell["row"], cell["column"]): [run["status"] for run in cell["runs"]] for cell in record["cells"]}
    assert status["SGD", "noisy labels"] == status["SGD", "then clean labels"] == ["done", "missing"]
    assert status["Bilevel", "noisy labels"] == ["done", "done"]


@pytest.mark.slow
def test_fewer_seeds_or_other_settings_take_nothing_out_of_a_record(tmp_path):
    figure = ["noise-curves-cifarnet", "--scale", "smoke", "--column", "CIFAR-10", "--row", "SGD", "--at", "0", "-q"]
    file = tmp_path / "runs/smoke/sweep-noise-curves-cifarnet-smoke.json"

    def seeds():
        record = json.loads(file.read_text())
        [cell] = [cell for cell in record["cells"] if any(run["status"] == "done" for run in cell["runs"])]
        return record["seeds"], [(run["seed"], run["status"]) for run in cell["runs"]]

    run(*figure, "--seeds", "0-1", cwd=tmp_path)
    run(*figure, "--seeds", "0", cwd=tmp_path)
    assert seeds() == ([0, 1], [(0, "done"), (1, "done")])
    run(*figure, "--seeds", "3", cwd=tmp_path)
    assert seeds() == ([0, 1, 3], [(0, "done"), (1, "done"), (3, "done")])
    written = file.read_text()
    refused = run(*figure, "--threads", "2", cwd=tmp_path, code=2)
    assert "has 3 finished run(s) with other settings, such as cifar10-cifarnet-sgd-" in refused.stderr
    assert "--threads" in refused.stderr
    assert file.read_text() == written
    # A damaged one is made anew of what runs say of themselves.
    file.write_text(written[: len(written) // 2])
    run(*figure, "--seeds", "0-1", cwd=tmp_path)
    assert seeds() == ([0, 1], [(0, "done"), (1, "done")])


def test_all_runs_what_has_its_data_and_records_everything(tmp_path, ask):
    from deepbilevel_paper import EXPERIMENTS

    listed = ask("all", "--scale", "smoke", "--dry-run").stdout.splitlines()
    assert len(listed) > 200
    # No data at all: everything is left out with the way to get it, and recorded as missing.
    result = ask("all", "--scale", "compact", "--data-dir", "nowhere", code=1)
    for name in EXPERIMENTS:
        assert f"left out: {name} needs data that is not in nowhere" in result.stderr
        record = json.loads((tmp_path / f"runs/compact/sweep-{name}-compact.json").read_text())
        assert {each["status"] for cell in record["cells"] for each in cell["runs"]} == {"missing"}
    assert "deepbilevel data fetch cifar10" in result.stderr


@pytest.mark.slow
def test_all_goes_from_one_experiment_to_the_next(tmp_path, monkeypatch):
    """In this process, with two small experiments for all there are."""
    from typer.testing import CliRunner

    import deepbilevel_paper
    from deepbilevel_lab.cli.app import app

    kept = {name: deepbilevel_paper.EXPERIMENTS[name] for name in ("pixel-permutation", "clothing1m")}
    monkeypatch.setattr(deepbilevel_paper, "EXPERIMENTS", kept)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "all", "--scale", "smoke", "-q"])
    assert result.exit_code == 0, result.output
    for name in kept:
        record = json.loads((tmp_path / f"runs/smoke/sweep-{name}-smoke.json").read_text())
        assert {each["status"] for cell in record["cells"] for each in cell["runs"]} == {"done"}
        assert f"sweep-{name}-smoke.json" in result.output


def test_the_list_names_every_experiment_and_what_is_missing_for_it(ask):
    from deepbilevel_paper import EXPERIMENTS

    listed = ask("list", "--no-probe", "--data-dir", "nowhere").stdout
    for name, experiment in EXPERIMENTS.items():
        [line] = [line for line in listed.splitlines() if line.split()[:1] == [name]]
        assert experiment.title in line
    assert "cifar10, cifar100" in listed
    lines = ask("list", "--no-probe", "--data-dir", "nowhere", "--json").stdout.splitlines()
    read = {each["name"]: each for each in map(json.loads, lines)}
    assert list(read) == list(EXPERIMENTS)
    assert read["pixel-permutation"]["missing_data"] == ["cifar10"]
    assert (read["table1"]["runs"], read["table1"]["hours"]) == (24, None)


def test_whoever_stops_reading_the_list_is_told_of_no_error(tmp_path):
    command = [sys.executable, "-m", "deepbilevel", "reproduce", "list", "--no-probe"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.slow  # the parts of it: tests/paper/test_estimate.py
def test_the_list_measures_hours_once_and_anew_when_told(tmp_path):
    def hours(*arguments):
        listed = run("list", "--scale", "smoke", *arguments, cwd=tmp_path, COLUMNS="250", XDG_CACHE_HOME=str(tmp_path))
        return [line.split()[-2] for line in listed.stdout.splitlines() if line.startswith(" noise-curves")]

    file = tmp_path / "deepbilevel" / "speeds.json"
    assert all(re.fullmatch(r"\d+\.\d", number) for number in hours())
    # Speeds that are known are believed, until somebody asks for new ones.
    file.write_text(json.dumps(dict.fromkeys(json.loads(file.read_text()), 3600.0)))
    assert all(float(number.replace(",", "")) > 1_000 for number in hours())
    assert all(float(number.replace(",", "")) < 1_000 for number in hours("--probe"))
    assert max(json.loads(file.read_text()).values()) < 3600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["table1", "--scale", "smok"], "did you mean 'smoke'"),
        (["table1", "--row", "nothing"], "no row of table1-compact has --row 'nothing'; there are SGD, Baseline, a)"),
        (["table1", "--column", "vgg"], "there are CifarNet, clean, CifarNet, 50 % noise"),
        (["list", "--row", "sgd"], "list is of whole experiments; --row, --column and --at choose parts of one"),
        (["all", "--at", "0.5"], "all is of whole experiments"),
        (["list", "--dry-run"], "list runs nothing"),
        (["table1", "--at", "0.5"], "a table, which varies no number"),
        (["figure-mu", "--at", "0.5"], "no such value; there are 0.0001, 0.001, 0.01, 0.1, 1"),
        (["figure-mu", "--at", "much"], "--at must be numbers such as 0.0001"),
        (["table1", "--seeds", "x"], "--seeds must be written as"),
        (["table1", "--data-dir", "nowhere"], "deepbilevel data fetch cifar10"),
    ],
)
def test_wrong_usage_is_told_and_leaves_nothing_behind(arguments, message, ask, tmp_path):
    result = ask(*arguments, code=2)
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_the_runs_and_trains_none(ask, tmp_path):
    lines = ask("imagenet", "--dry-run", "--row", "sgd").stdout.splitlines()
    assert len(lines) == 3  # clean, and the noisy one after the run whose predictions are its labels
    assert lines[0].split("-")[-1] == lines[1].split("-")[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_figure_is_chosen_by_its_values_and_by_whole_names(ask):
    chosen = ("noise-curves-cifarnet", "--column", "cifar-10", "--at", "0,0.5")  # and not cifar-100
    lines = ask(*chosen, "--dry-run").stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"{row}, {rate}, seed 0" for row in ("SGD", "Bilevel") for rate in ("0", "0.5")
    ]
    # What is left out needs no data.
    missing = ask(*chosen, "--data-dir", "nowhere", code=2).stderr
    assert "fetch cifar10 " in missing
    assert "cifar100" not in missing
