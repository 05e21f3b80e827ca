"""What a run observed of its labels, forged: the audit says that the file is damaged, in one line."""

import shutil

import pytest
import torch

from deepbilevel_lab.training.packing import ENTRY, from_bytes, to_bytes
from tests.cli.trained import SMALL_GROUPS, make_spec, run_in_process, train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {**SMALL_GROUPS, "data.limit": 64, "data.test_limit": 20, "audit": True}
    return train_run(tmp_path_factory.mktemp("runs"), make_spec(**settings))


FORGERIES = {
    "numbers that are none": lambda numbers: numbers.double(),
    "too few": lambda numbers: numbers[:3].clone(),
    "none": lambda numbers: numbers[:0].clone(),
    "negative": lambda numbers: -1 - numbers,
    "in a table": lambda numbers: numbers[None].clone(),
    "beyond the data": lambda numbers: numbers + 2**40,
}


@pytest.mark.parametrize("change", FORGERIES.values(), ids=FORGERIES)
def test_numbers_of_images(change, run, tmp_path):
    place = tmp_path / run.name
    shutil.copytree(run, place)
    [kept] = place.glob("*audit*.safetensors")
    entries, tensors = from_bytes(kept.read_bytes())
    kept.write_bytes(to_bytes({**tensors, "numbers": change(tensors["numbers"])}, entries[ENTRY]))
    result = run_in_process("audit", place, "--out", tmp_path / "audit")
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_file_is_there_and_whole(run, tmp_path):
    [kept] = run.glob("*audit*.safetensors")
    _, tensors = from_bytes(kept.read_bytes())
    assert tensors["numbers"].dtype == torch.int64
    assert run_in_process("audit", run, "--out", tmp_path / "audit").exit_code == 0
