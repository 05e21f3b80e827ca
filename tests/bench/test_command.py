"""`python -m benchmarks.cost` from end to end, with tiny networks."""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.cost.__main__ import app
from benchmarks.cost.contenders import CLOSER, EVERYBODY


@pytest.mark.slow
def test_everything_is_measured_and_written_down(tmp_path):
    file, threads = tmp_path / "bench.json", torch.get_num_threads()
    result = CliRunner().invoke(app, ["--quick", "--json", str(file)])
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
    result = CliRunner().invoke(app, ["--json", str(tmp_path / "missing" / "bench.json")])
    assert result.exit_code == 2
    assert "measuring" not in result.output


def test_a_closer_look_measures_claims_alone(tmp_path):
    file = tmp_path / "closer.json"
    command = [
        "--setting",
        "digit_cnn:3x2",
        "--setting",
        "digit_cnn:2x4",
        "--rounds",
        "4",
        "--json",
        str(file),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    record = json.loads(file.read_text())
    assert list(record["updates"]) == ["digit_cnn 3x2", "digit_cnn 2x4"]
    for rows in record["updates"].values():
        assert [row["name"] for row in rows] == [each.name for each in EVERYBODY if each.name in CLOSER]
        assert {row["rounds"] for row in rows if row["failed"] is None} == {4}
    assert record["memory"] == {}
    assert "peak memory" not in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--setting", "cifarnet 8x8"], "a setting is written as in cifarnet:8x16, got 'cifarnet 8x8'"),
        (["--setting", "cifarnet:8"], "a setting is written as in cifarnet:8x16, got 'cifarnet:8'"),
        (["--setting", "cifarnot:8x8"], "cifarnot"),
        (["--setting", "cifarnet:1x8"], "at least 2 mini-batches of at least 1 image"),
        (["--setting", "cifarnet:8x8", "--rounds", "0"], "--rounds"),
        (["--setting", "cifarnet:8x8", "--quick"], "--quick"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(options, said):
    result = CliRunner().invoke(app, options)
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert "measuring" not in result.output
