"""``deepbilevel audit`` on data sets, folders, tables and finished runs, and on what it cannot use."""

import shutil
import signal

import numpy as np
import pytest

from deepbilevel_lab.data import load_data
from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.run import train
from tests.audit_command.found import HOSTILE, QUICK, SMALL_GROUPS, make_findings, read_table, write_flipped
from tests.cli.trained import make_spec, run_in_process, train_run, write_colours
from tests.training.test_remembering import Stopper

COLUMNS = ["index", "path", "given_label", "predicted_label", "label_score", "is_label_issue", "p_wrong"]


def audit(*arguments):
    done = run_in_process("audit", *arguments)
    assert done.exit_code == 0, done.output
    return done.output


def refusal(*arguments, code=2):
    done = run_in_process("audit", *arguments)
    assert done.exit_code == code, done.output
    return done.output


def test_flipped_digits_are_found(tmp_path):
    out = tmp_path / "audit"
    printed = audit("digits", "--noise", "uniform:0.2", "--epochs", 12, "--out", out, *QUICK)
    rows = read_table(out / "issues.csv")
    assert list(rows[0]) == COLUMNS
    assert sorted(int(row["index"]) for row in rows) == list(range(1347))
    clean = load_data("digits").labels
    wrong = [int(row["given_label"]) != clean[int(row["index"])] for row in rows]
    assert np.mean(wrong[: sum(wrong)]) > 0.5  # chance is 0.2
    assert "1,347 images, 10 classes." in printed
    assert "the 10 most suspicious labels" in printed
    probabilities = np.load(out / "pred_probs.npy", allow_pickle=False)
    assert probabilities.shape == (1347, 10)
    assert probabilities.sum(axis=1) == pytest.approx(1, abs=1e-3)


def test_a_folder_of_images_is_audited_whole_those_set_aside_included(tmp_path):
    flipped = write_flipped(tmp_path / "photos")
    out = tmp_path / "audit"
    printed = audit(tmp_path / "photos", "--epochs", 12, "--out", out, *QUICK, *SMALL_GROUPS)
    rows = read_table(out / "issues.csv")
    assert len({row["path"] for row in rows[: len(flipped)]} & flipped) > len(flipped) / 2  # chance is 0.15
    assert all(row["given_label"] == row["path"].split("/")[0] for row in rows)
    assert sorted(int(row["index"]) for row in rows) == list(range(80))
    assert not any(row["label_score"] == "nan" for row in rows)
    assert str(out / "index.html") in printed


def test_a_table_of_images(tmp_path):
    write_colours(tmp_path / "photos")
    lines = [
        f"photos/{colour}/{number}.jpg,{label}"
        for colour, other in (("blue", "red"), ("red", "blue"))
        for number in range(24)
        for label in [other if number < 3 else colour]
    ]
    (tmp_path / "table.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    audit(tmp_path / "table.csv", "--epochs", 8, "--out", tmp_path / "audit", *QUICK, *SMALL_GROUPS)
    rows = read_table(tmp_path / "audit" / "issues.csv")
    assert {row["path"] for row in rows} == {line.split(",")[0] for line in lines}
    assert all(line == f"{row['path']},{row['given_label']}" for row in rows for line in [lines[int(row["index"])]])


def test_a_finished_run_is_audited_without_training(tmp_path):
    run = train_run(tmp_path / "runs", make_spec(audit=True, noise="uniform:0.2"))
    before = sorted(path.name for path in run.iterdir())
    audit(run, "--out", tmp_path / "audit")
    assert len(read_table(tmp_path / "audit" / "issues.csv")) == 256
    assert not (tmp_path / "audit" / "runs").exists()
    assert sorted(path.name for path in run.iterdir()) == before


def test_the_same_command_goes_on_where_it_was_stopped_and_gives_the_same_files(tmp_path):
    options = ("digits", "--noise", "uniform:0.2", "--epochs", 2, "--limit", 256, *QUICK)
    audit(*options, "--out", tmp_path / "unbroken")
    spec = make_spec(
        method="sgd", noise="uniform:0.2", epochs=2, audit=True, **{"group.on_rare": "repeat", "data.test_limit": None}
    )
    with pytest.raises(Interrupted):
        train(spec, out=tmp_path / "stopped" / "runs", data_dir=tmp_path, listener=Stopper(1))
    audit(*options, "--out", tmp_path / "stopped")
    (run,) = (tmp_path / "stopped" / "runs").iterdir()
    assert run.name.endswith(spec.id)
    for name in ("issues.csv", "pred_probs.npy", "index.html"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "unbroken" / name).read_bytes()


def test_a_second_audit_replaces_the_first_and_nothing_else(tmp_path):
    run = train_run(tmp_path / "runs", make_spec(audit=True))
    out = tmp_path / "audit"
    (out / "pictures-of-mine").mkdir(parents=True)
    audit(run, "--out", out, "--show", 100)
    audit(run, "--out", out, "--show", 50)
    names = {path.name for path in out.iterdir()} - {"issues.parquet"}  # where pyarrow is installed
    assert names == {"index.html", "issues.csv", "pred_probs.npy", "pictures-of-mine"}


def test_places_that_are_nothing_are_named(tmp_path):
    assert "nowhere is no folder, no table (.csv, .parquet) and no data set" in refusal("nowhere", "--out", tmp_path)
    assert "folder needs the place of your images" in refusal("folder", "--out", tmp_path)
    assert "audit=false leaves nothing to report" in refusal("digits", "--set", "audit=false", "--out", tmp_path)
    assert "mixing mixup blends them" in refusal("digits", "--set", "mixing=mixup", "--out", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_not_there(tmp_path):
    said = refusal(tmp_path / "table.csv", "--out", tmp_path / "audit", code=1)
    assert "table.csv is not a file" in said
    assert not (tmp_path / "audit" / "index.html").exists()


def test_runs_that_cannot_be_audited_say_why(tmp_path):
    plain = train_run(tmp_path / "runs", make_spec())
    assert "kept no observations of its labels; train it with --set audit=true" in refusal(
        plain, "--out", tmp_path / "audit", code=1
    )
    assert "is a run, which is not trained again" in refusal(plain, "--epochs", 3, "--out", tmp_path / "audit")
    (plain / "model.safetensors").unlink()
    assert "is not a finished run" in refusal(plain, "--out", tmp_path / "audit", code=1)
    assert not (tmp_path / "audit").exists()


def test_images_that_have_changed_since_are_refused(tmp_path):
    photos = write_colours(tmp_path / "photos")
    settings = {"data.limit": None, "data.test_limit": None, "method": "sgd", "mixing": None, "audit": True}
    groups = {"group.num_batches": 2, "group.batch_size": 8}
    run = train_run(tmp_path / "runs", make_spec("folder", path=str(photos), **settings, **groups))
    shutil.move(photos / "blue" / "0.jpg", photos / "red" / "new.jpg")
    said = refusal(run, "--out", tmp_path / "audit", code=1)
    assert f"the images or labels in {photos} are not those that run" in said
    assert not (tmp_path / "audit").exists()


def test_a_page_of_strangers_names_holds_no_markup_of_theirs(tmp_path):
    from deepbilevel_lab.audit import write_findings

    files = [f"{number}{HOSTILE}\udce9" for number in range(200)]
    written = write_findings(make_findings(class_names=(HOSTILE, "=cmd", "-x"), files=files), tmp_path)
    page = written.page.read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2 + 2  # rows and script, and then curves and pictures
    for row in read_table(written.table):
        assert not row["given_label"].startswith(("=", "-"))


def test_nothing_known_is_said_in_words(tmp_path):
    from deepbilevel_lab.audit.writing import describe

    facts = describe(make_findings(told_apart=False))
    assert any("cannot be told" in fact for fact in facts)


def test_interrupting_by_a_signal_leaves_no_half_written_report(tmp_path, monkeypatch):
    run = train_run(tmp_path / "runs", make_spec(audit=True))

    def stop(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("deepbilevel_lab.audit.writing.make_sheets", stop)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may ignore it
    try:
        done = run_in_process("audit", run, "--out", tmp_path / "audit")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.exit_code != 0
    names = {path.name for path in (tmp_path / "audit").iterdir()} - {"issues.parquet"}  # where pyarrow is installed
    assert names == {"issues.csv", "pred_probs.npy"}
