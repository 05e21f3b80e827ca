"""Other data under the same name is another run: nobody is told the results of images that were never trained on."""

import json
import shutil
import subprocess
import sys

import pytest

from deepbilevel_lab.data.fingerprint import take_fingerprint
from deepbilevel_lab.training import find_runs
from tests.cli.trained import run_command, run_in_process, write_colours, write_picture

SMALL = [
    *("--network", "cifarnet", "--epochs", "1", "--threads", "1"),
    *("--set", "group.num_batches=2", "--set", "group.batch_size=2", "--set", "group.on_rare=repeat"),
]


def write_table(path, pictures, swapped=0):
    """Write a table of the pictures of which the first have the other colour as their label."""
    files = sorted(pictures.rglob("*.jpg"))
    rows = [
        f"{file},{({'red': 'blue', 'blue': 'red'} if number < swapped else {}).get(file.parent.name, file.parent.name)}"
        for number, file in enumerate(files)
    ]
    path.write_text("\n".join(["path,label", *rows]) + "\n")
    return path


def train(place, out, *more):
    done = run_in_process("train", "--data", place, *SMALL, *more, "--out", out)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def pictures(tmp_path):
    return write_colours(tmp_path / "photos", per_class=12)


def add_a_picture(place):
    write_picture(place / "blue" / "new.jpg", "blue", seed=99)


def replace_a_picture(place):
    write_picture(place / "blue" / "0.jpg", "red", size=(61, 43), seed=99)


def move_a_picture(place):
    (place / "blue" / "0.jpg").rename(place / "red" / "from-blue.jpg")


@pytest.mark.parametrize("change", [add_a_picture, replace_a_picture, move_a_picture])
def test_a_changed_folder_is_another_run_and_is_said(change, pictures, tmp_path):
    train(pictures, tmp_path / "runs")
    assert "is finished; nothing to do" in train(pictures, tmp_path / "runs")
    [before] = find_runs(tmp_path / "runs")
    change(pictures)
    output = train(pictures, tmp_path / "runs")
    assert f"the data has changed since {before.path}; this is another run, in a folder of its own" in output
    assert len(find_runs(tmp_path / "runs")) == 2
    output = train(pictures, tmp_path / "runs")
    assert "is finished; nothing to do" in output
    assert "has changed" not in output


def test_two_folders_of_the_same_name_are_two_runs(pictures, tmp_path, monkeypatch):
    write_colours(tmp_path / "elsewhere" / "photos", per_class=13)
    for place in (tmp_path, tmp_path / "elsewhere"):
        monkeypatch.chdir(place)
        train("photos", tmp_path / "runs")
    assert len(find_runs(tmp_path / "runs")) == 2


def test_a_copy_elsewhere_has_the_same_fingerprint(pictures, tmp_path):
    shutil.copytree(pictures, tmp_path / "copy")
    assert take_fingerprint(pictures) == take_fingerprint(tmp_path / "copy")
    (tmp_path / "copy" / "blue" / "._0.jpg").write_bytes(b"left by a system")
    assert take_fingerprint(pictures) == take_fingerprint(tmp_path / "copy")


def test_an_edited_table_is_another_run(pictures, tmp_path):
    table = write_table(tmp_path / "table.csv", pictures)
    train(table, tmp_path / "runs")
    write_table(table, pictures, swapped=3)
    assert "the data has changed since" in train(table, tmp_path / "runs")
    replace_a_picture(pictures)
    assert "the data has changed since" in train(table, tmp_path / "runs")
    assert len(find_runs(tmp_path / "runs")) == 3


def test_edited_decisions_are_another_run(pictures, tmp_path):
    decisions = tmp_path / "corrected.csv"
    for new_label in ("red", "blue"):
        decisions.write_text(f"index,decision,new_label\n0,relabel,{new_label}\n")
        train(pictures, tmp_path / "runs", "--labels", decisions)
    assert len(find_runs(tmp_path / "runs")) == 2


def test_a_spec_of_other_data_is_said_and_a_sent_one_refused(pictures, tmp_path):
    train(pictures, tmp_path / "runs")
    [run] = find_runs(tmp_path / "runs")
    add_a_picture(pictures)
    done = run_in_process("train", "--spec", run.spec_file, "--out", tmp_path / "runs")
    assert done.exit_code == 0, done.output
    assert f"note: {pictures} has changed since this spec was written" in done.stderr
    assert len(find_runs(tmp_path / "runs")) == 2
    # A node of a cluster, say, whose copy of the data is another.
    with run.spec_file.open() as spec:
        sent = json.dumps(json.load(spec))
    done = run_tied(sent, tmp_path / "node")
    assert done.returncode == 1
    assert f"{pictures} has changed: data.content is " in done.stderr
    assert not (tmp_path / "node").exists()


def run_tied(spec, out):
    command = [sys.executable, "-m", "deepbilevel_lab", "train", "--spec", "-", "--tied", "--json", "--out", str(out)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write(spec + "\n")
        process.stdin.flush()
        errors = process.stderr.read()
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, "", errors)


def test_compare_takes_no_result_of_other_data(pictures, tmp_path):
    command = ["compare", "--data", pictures, *SMALL, "--methods", "sgd", "--seeds", "0", "--out", tmp_path / "runs"]
    assert run_command(*command).returncode == 0
    replace_a_picture(pictures)
    done = run_command(*command)
    assert done.returncode == 0, done.stderr
    assert "the data has changed since" in done.stdout
    assert len(find_runs(tmp_path / "runs")) == 2
    assert len(list((tmp_path / "runs").glob("sweep-*.json"))) == 2


def test_an_audit_of_a_changed_folder_is_another_one(pictures, tmp_path):
    command = ["audit", pictures, *SMALL, "--out", tmp_path / "audit"]
    first = run_in_process(*command)
    assert first.exit_code == 0, first.output
    [run] = find_runs(tmp_path / "audit" / "runs")
    replace_a_picture(pictures)
    refused = run_in_process("audit", run.path, "--out", tmp_path / "again")
    assert refused.exit_code == 1
    assert "are not those that run" in refused.stderr
    again = run_in_process(*command)
    assert again.exit_code == 0, again.output
    assert len(find_runs(tmp_path / "audit" / "runs")) == 2


def test_published_data_sets_have_no_fingerprint(tmp_path):
    done = run_in_process("train", "--data", "digits", "--dry-run", "--json")
    assert json.loads(done.stdout)["data"]["content"] is None


def test_data_that_cannot_be_read_has_none_either(tmp_path):
    assert take_fingerprint(tmp_path / "missing") is None
