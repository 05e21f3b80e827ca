"""`deepbilevel bench` from end to end, with tiny networks."""

import json

import pytest
import torch
from typer.testing import CliRunner

from deepbilevel.bench.contenders import EVERYBODY
from deepbilevel.cli.app import app


@pytest.mark.slow
def test_everything_is_measured_and_written_down(tmp_path):
    file, threads = tmp_path / "bench.json", torch.get_num_threads()
    result = CliRunner().invoke(app, ["bench", "--quick", "--json", str(file)])
    assert result.exit_code == 0, result.output
    assert torch.get_num_threads() == threads
    record = json.loads(file.read_text())
    assert record["machine"]["threads"] == 1
    assert list(record["updates"]) == ["digit_cnn 4x4", "cifarnet 2x2"]
    for rows in record["updates"].values():
        assert [row["name"] for row in rows] == [each.name for each in EVERYBODY]
        for row in rows:
            if row["failed"] is None:
                assert row["to_sgd"]["median"] > 0
                assert row["rounds"] > 0
            else:
                assert row["kind"] == "peer"
                assert "not installed" in row["failed"]
                assert f"failed: {row['name']}: {row['failed']}" in result.stdout
    assert list(record["memory"]) == ["digit_cnn 2x4", "digit_cnn 8x4", "digit_cnn 32x4"]
    (growth,) = record["growth"]
    assert [point["x"] for point in growth["points"]] == [2, 4]
    assert all(point["limit"] > 0 and "bilevel" in point["microseconds"] for point in growth["points"])
    assert record["training"]["images_per_second"] > 0
    assert record["start_up"]["import torch"]["ratio"]["median"] == 1
    assert set(record["start_up"]) >= {"import deepbilevel", "deepbilevel --help"}
    for title in ("one update", "peak memory", "a training run", "start-up"):
        assert title in result.stdout


def test_a_folder_that_is_not_there_is_refused_before_anything_is_measured(tmp_path):
    result = CliRunner().invoke(app, ["bench", "--json", str(tmp_path / "missing" / "bench.json")])
    assert result.exit_code == 2
    assert "measuring" not in result.output
