"""`deepbilevel runs` as its user runs it."""

import json
import shlex
import shutil
from statistics import mean, stdev

import pytest

from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.run import Listener, train
from tests.cli.trained import make_spec, run_command, run_in_process, train_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three runs: two seeds of one setting, and another setting."""
    out = tmp_path_factory.mktemp("trained")
    settings = {"epochs": 2, "noise": "uniform:0.3", "data.limit": 128, "group.batch_size": 4, "method": "sgd"}
    specs = [
        make_spec(**settings, seed=0),
        make_spec(**settings, seed=1),
        make_spec(**{**settings, "epochs": 3, "optimizer.lr": 0.02}),
    ]
    return [train_run(out, spec) for spec in specs]


@pytest.fixture
def out(trained, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(trained[0].parent, tmp_path / "runs")
    return tmp_path / "runs"


def record_of(run):
    return json.loads((run / "record.json").read_text())


def change_record(run, **values):
    (run / "record.json").write_text(json.dumps({**record_of(run), **values}))


def runs(*arguments):
    result = run_in_process("runs", *arguments)
    assert result.exit_code == 0, result.output
    return result


def listed(out):
    return {entry["id"]: entry for entry in json.loads(runs("list", "--out", out, "--json").stdout)}


def test_list_shows_every_run(trained):
    result = run_command("runs", "list", "--out", trained[0].parent)
    assert result.returncode == 0, result.stderr
    for run in trained:
        record = record_of(run)
        (line,) = [line for line in result.stdout.splitlines() if record["id"] in line]
        assert record["name"] in line
        assert "done" in line
        assert f"{record['spec']['epochs']}/{record['spec']['epochs']}" in line
        assert f"{record['final']['test']:.2f}" in line
        assert f"{record['best']['test']:.2f}" in line


def test_a_run_whose_process_is_gone_is_stopped(trained, out):
    run = out / trained[0].name
    change_record(run, status="running", history=record_of(run)["history"][:1])
    entry = listed(out)[record_of(run)["id"]]
    assert (entry["status"], entry["epoch"], entry["epochs"]) == ("stopped", 1, 2)
    with RunFolder(run).locked():
        assert listed(out)[record_of(run)["id"]]["status"] == "running"


@pytest.mark.parametrize(
    "content",
    [
        b'{"format": 1, "status": "do',
        b"\xff\xfe",
        b"[]",
        b'{"format": 1}',
        b'{"format": 9}',
        b"",
        b'{"format":1,"spec":3}',
    ],
)
def test_a_damaged_record_does_not_hide_the_others(trained, out, content):
    (out / trained[1].name / "record.json").write_bytes(content)
    result = runs("list", "--out", out)
    (line,) = [line for line in result.stdout.splitlines() if "damaged" in line]
    assert trained[1].name.rpartition("-")[2] in line
    assert result.stdout.count("done") == 2
    assert "record.json" in result.stderr
    entries = listed(out)
    assert len(entries) == 3
    compared = runs("compare", "--out", out, "--json")
    assert len(json.loads(compared.stdout)["runs"]) == 2
    assert "left out" in compared.stderr
    shown = run_in_process("runs", "show", out / trained[1].name)
    assert shown.exit_code == 1
    assert "record.json" in shown.stderr


def test_nothing_to_list(tmp_path):
    assert "no runs" in runs("list", "--out", tmp_path).stdout
    assert json.loads(runs("list", "--out", tmp_path, "--json").stdout) == []
    assert run_in_process("runs", "list", "--out", tmp_path / "missing").exit_code == 1


def test_show_tells_everything(trained):
    record = record_of(trained[2])
    shown = runs("show", record["id"][:6], "--out", trained[0].parent).stdout
    assert "optimizer.lr" in shown
    assert "0.02" in shown
    assert f"{record['final']['train_clean']:.2f} on clean labels" in shown
    assert record["environment"]["packages"]["torch"] in shown
    rows = [line.split("│")[1].strip() for line in shown.splitlines() if line.count("│") == 7]
    assert rows == ["1", "2", "3"]
    as_json = json.loads(runs("show", trained[2], "--json").stdout)
    assert as_json["history"] == record["history"]
    assert as_json["folder"] == str(trained[2])


def test_a_long_history_is_thinned_and_keeps_its_end(trained, out):
    run = out / trained[0].name
    row = record_of(run)["history"][-1]
    change_record(run, history=[{**row, "epoch": epoch} for epoch in range(1, 101)])
    shown = runs("show", run).stdout
    epochs = [int(line.split("│")[1]) for line in shown.splitlines() if line.count("│") == 7]
    assert len(epochs) == 25
    assert epochs[-1] == 100
    assert "every 4 epochs of 100" in shown


def test_what_show_says_goes_on_with_an_interrupted_run(tmp_path):
    spec = make_spec(epochs=2, **{"data.limit": 64, "group.batch_size": 4, "method": "sgd"})

    class StopAfterOne(Listener):
        def epoch(self, row):
            raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train(spec, out=tmp_path / "my runs", data_dir=tmp_path, listener=StopAfterOne())
    folder = RunFolder.of(spec, tmp_path / "my runs").path
    shown = runs("show", folder).stdout
    assert "epoch 1 of 2" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("to resume")]
    command = shlex.split(line.partition(": ")[2])
    assert command[:2] == ["deepbilevel", "train"]
    assert run_in_process(*command[1:]).exit_code == 0
    assert record_of(folder)["status"] == "done"
    assert "deepbilevel predict" in runs("show", folder).stdout


def test_compare_shows_what_differs_and_the_spread_over_seeds(trained):
    records = [record_of(run) for run in trained]
    content = json.loads(runs("compare", "--out", trained[0].parent, "--json").stdout)
    assert content["differing"] == ["optimizer.lr", "epochs", "seed"]
    by_id = {row["id"]: row for row in content["runs"]}
    for record in records:
        row = by_id[record["id"]]
        assert row["settings"] == {
            "optimizer.lr": record["spec"]["optimizer"]["lr"],
            "epochs": record["spec"]["epochs"],
            "seed": record["spec"]["seed"],
        }
        assert (row["train"], row["test"], row["gap"]) == tuple(
            record["final"][key] for key in ("train", "test", "gap")
        )
        assert (row["best"], row["seconds"]) == (record["best"]["test"], record["seconds"]["wall"])
    two, one = sorted(content["over_seeds"], key=lambda each: -len(each["seeds"]))
    tested = [record["final"]["test"] for record in records[:2]]
    assert two["seeds"] == [0, 1]
    assert two["figures"]["test"] == {"mean": pytest.approx(mean(tested)), "spread": pytest.approx(stdev(tested))}
    assert (one["seeds"], one["figures"]["test"]["spread"]) == ([0], None)
    assert one["settings"] == {"optimizer.lr": 0.02, "epochs": 3}
    text = runs("compare", "--out", trained[0].parent).stdout
    assert f"{mean(tested):.2f} ± {stdev(tested):.2f}" in text
    (line,) = [line for line in text.splitlines() if "one seed" in line]
    assert "±" not in line


def test_a_comparison_under_noise_fits_a_terminal_and_shows_no_gap(trained):
    for command in ("compare", "list"):
        done = run_in_process("runs", command, "--out", trained[0].parent, COLUMNS="80")
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "gap" not in done.stdout
        for run in trained:
            assert record_of(run)["id"] in done.stdout  # whole, on a line of its own
            assert f"{record_of(run)['best']['test']:.2f}" in done.stdout


def test_compare_takes_folders_and_starts_of_ids(trained):
    ids = [record_of(run)["id"] for run in trained]
    content = json.loads(runs("compare", trained[0], ids[1][:7], "--out", trained[0].parent, "--json").stdout)
    assert [row["id"] for row in content["runs"]] == ids[:2]
    assert content["differing"] == ["seed"]


def test_a_run_counts_once_and_only_if_it_is_done(trained, out):
    change_record(out / trained[1].name, status="failed", error="it diverged")
    copy = out.parent / "copy"
    shutil.copytree(trained[0], copy)
    result = runs("compare", out / trained[0].name, copy, out / trained[1].name, "--json")
    (summary,) = json.loads(result.stdout)["over_seeds"]
    assert (summary["seeds"], summary["figures"]["test"]["spread"]) == ([0], None)
    assert "failed" in runs("compare", out / trained[0].name, out / trained[1].name).stdout


def test_runs_moved_aside_are_listed_but_not_compared(trained, out):
    (out / trained[0].name).rename(out / f"{trained[0].name}.old-1")
    assert "(old-1)" in runs("list", "--out", out).stdout
    assert len(json.loads(runs("compare", "--out", out, "--json").stdout)["runs"]) == 2


def test_methods_with_other_settings_are_compared(trained, tmp_path):
    spec = with_value(make_spec(**{"data.limit": 128, "group.batch_size": 4}), "method.mu", 0.5)
    other = train_run(tmp_path, spec)
    content = json.loads(runs("compare", trained[0], other, "--json").stdout)
    assert {"method.kind", "noise"} <= set(content["differing"])
    assert "method.mu" not in content["differing"]  # only one of the kinds has it
    assert [row["settings"]["method.kind"] for row in content["runs"]] == ["sgd", "bilevel"]


def test_a_run_that_is_not_clear_is_refused(trained, out):
    change_record(out / trained[0].name, id="aa11")
    change_record(out / trained[1].name, id="aa22")
    for name, message in (("aa", "may be aa11 or aa22"), ("aa23", "did you mean 'aa22'")):
        result = run_in_process("runs", "compare", name, "--out", out)
        assert result.exit_code == 1
        assert message in result.stderr
    assert json.loads(runs("show", "aa2", "--out", out, "--json").stdout)["id"] == "aa22"


def test_runs_of_version_0_1_are_compared_with_those_of_today_by_the_same_names(trained, out):
    plain = {key: value for key, value in record_of(trained[0])["spec"].items() if key != "shared_dropout"}
    then = {"mu": 0.01, "lam": 1.0, "normalize": True, "per_layer": False, "weighting": "agreement"}
    then |= {"kind": "bilevel", "validation_momentum": 0.9, "shared_dropout": False}
    today = {"kind": "k-fold", "mu": 0.01, "lam": 1.0, "normalize": True, "per_layer": False, "weighting": "agreement"}
    specs = [
        {**plain, "shared_dropout": False, "seed": 1, "method": today},
        {**plain, "method": {**then, "solver": "diagonal", "validation": "k-fold"}},
        {**plain, "method": {"kind": "sgd"}},
    ]
    for run, spec in zip(trained, specs, strict=True):
        change_record(out / run.name, spec=spec)
    compared = json.loads(runs("compare", "--out", out, "--json").stdout)
    assert set(compared["differing"]) == {"method.kind", "seed"}
    assert [each["seeds"] for each in compared["over_seeds"] if each["settings"]["method.kind"] == "k-fold"] == [[0, 1]]
    # What is gone is still shown, as it was written.
    change_record(
        out / trained[1].name, spec={**plain, "method": {**then, "solver": "exact", "validation": "momentum"}}
    )
    shown = json.loads(runs("show", out / trained[1].name, "--json").stdout)
    assert shown["spec"]["method"]["solver"] == "exact"
