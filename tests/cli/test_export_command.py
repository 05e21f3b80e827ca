"""``deepbilevel runs export``: records to share."""

import json
from dataclasses import replace

from deepbilevel_lab.report import make_report
from deepbilevel_lab.training import RunFolder, train
from tests.cli.trained import make_spec, run_in_process


def make_runs(out):
    spec = make_spec(**{"method": "sgd", "data.limit": 64, "data.test_limit": 20, "group.batch_size": 2, "epochs": 1})
    train(spec, out=out, data_dir=out)
    (out / "sweep-mine.json").write_text('{"format": 1}\n')
    finished = RunFolder.of(spec, out).read_record()
    unfinished = RunFolder(out / "other-0123456789")
    unfinished.path.mkdir()
    unfinished.write_record(replace(finished, id="0123456789", status="running"))
    return spec


def test_records_of_finished_runs_are_copied_without_what_is_only_true_here(tmp_path):
    out, to = tmp_path / "runs", tmp_path / "shared"
    spec = make_runs(out)
    result = run_in_process("runs", "export", to, "--out", out)
    assert result.exit_code == 0
    assert "2 records" in result.output
    files = sorted(path.relative_to(to) for path in to.rglob("*") if path.is_file())
    assert [str(path) for path in files] == [f"{spec.name}-{spec.id}/record.json", "sweep-mine.json"]
    text = (to / files[0]).read_text()
    assert str(tmp_path) not in text
    kept, whole = json.loads(text), json.loads((out / files[0]).read_text())
    assert whole.keys() - kept.keys() == {"data_dir", "process"}
    assert all(kept[name] == whole[name] for name in kept)
    assert make_report(to).num_tables > 0  # a report needs nothing else


def test_runs_that_have_not_ended_are_exported_where_asked(tmp_path):
    out, to = tmp_path / "runs", tmp_path / "shared"
    make_runs(out)
    result = run_in_process("runs", "export", to, "--out", out, "--unfinished")
    assert result.exit_code == 0
    assert "3 records" in result.output
    kept = json.loads((to / "other-0123456789" / "record.json").read_text())
    assert kept["status"] == "running"
    assert "process" not in kept


def test_an_export_can_be_listed_shown_and_compared(tmp_path):
    out, to = tmp_path / "runs", tmp_path / "shared"
    spec = make_runs(out)
    assert run_in_process("runs", "export", to, "--out", out).exit_code == 0
    shown = run_in_process("runs", "show", spec.id, "--out", to)
    assert shown.exit_code == 0, shown.output
    assert "status done, epoch 1 of 1" in shown.output
    assert "its network is not here: exports hold records alone" in shown.output
    assert json.loads(run_in_process("runs", "show", spec.id, "--out", to, "--json").output)["id"] == spec.id
    for command in ("list", "compare"):
        result = run_in_process("runs", command, "--out", to)
        assert result.exit_code == 0, result.output
        assert spec.id in result.output


def test_a_folder_without_records_and_the_folder_itself_are_refused(tmp_path):
    result = run_in_process("runs", "export", tmp_path / "to", "--out", tmp_path)
    assert result.exit_code == 2
    assert "holds no finished run" in result.output
    make_runs(tmp_path)
    result = run_in_process("runs", "export", tmp_path, "--out", tmp_path)
    assert result.exit_code == 2
    assert "is the folder of runs itself" in result.output
    assert not (tmp_path / "to").exists()
