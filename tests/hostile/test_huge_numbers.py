"""Numbers that no machine can hold or finish: refused in a line, before anything is made of them."""

import pytest
from typer.testing import CliRunner

from benchmarks.cost.__main__ import app as benchmark
from deepbilevel_lab.cli.resolving import parse_seeds
from tests.cli.trained import run_in_process
from tests.hostile.test_strangers_files import one_line

MANY_DIGITS = "9" * 400


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--threads", "100000"], "threads must be at most 1,024"),
        (["--set", f"epochs={MANY_DIGITS}"], "epochs must be at most 1,000,000,000"),
        (["--set", f"evaluate_every={MANY_DIGITS}"], "evaluate_every must be at most"),
        (["--set", f"zeroed_steps={MANY_DIGITS}"], "zeroed_steps must be at most"),
        (["--set", f"group.batch_size={MANY_DIGITS}"], "batch_size must be at most"),
        (["--set", f"group.num_batches={MANY_DIGITS}"], "num_batches must be at most"),
        (["--set", f"seed={MANY_DIGITS}"], "seed must lie in 0 .. 2**32 - 1"),
        (["--set", f"optimizer.lr={MANY_DIGITS}"], "lr must be"),
    ],
)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_counts_of_a_run(options, named, command, tmp_path):
    if command == "compare" and options[1].startswith("seed="):
        named = "--set seed has no effect here"
    result = run_in_process(command, "--data", "digits", "--out", tmp_path / "runs", *options)
    one_line(result, named, 2)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("seeds", ["0-100000", f"0-{MANY_DIGITS}", "0-999,2000", ",".join(map(str, range(1_001)))])
@pytest.mark.parametrize("command", [["compare", "--data", "digits"], ["reproduce", "table1"]])
def test_seeds(seeds, command, tmp_path):
    one_line(run_in_process(*command, "--out", tmp_path, "--seeds", seeds), "--seeds may name 1,000 seeds", 2)


def test_a_thousand_seeds_are_read_each_once():
    assert parse_seeds("0-999,5-10") == list(range(1_000))


@pytest.mark.parametrize(
    "setting", [f"cifarnet:{MANY_DIGITS}x{MANY_DIGITS}", "cifarnet:100000x2", "cifarnet:8", "x:8x2"]
)
def test_settings_of_the_benchmark(setting):
    result = CliRunner().invoke(benchmark, ["--setting", setting])
    assert result.exit_code in (1, 2)
    assert result.output.count("error: ") == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("place", ["x" * 5_000, "/dev/null", "a\nb", "[bold]"])
def test_places_of_data_that_cannot_be(place):
    result = run_in_process("doctor", "--data-dir", place)
    assert result.exit_code == 1
    assert "problem: the data folder" in result.output
    assert isinstance(result.exception, SystemExit)
