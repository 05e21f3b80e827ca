"""Specs, networks, tables and records that a stranger wrote: one line that names the file, never a traceback."""

import json
import random

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from deepbilevel_lab.training.model_file import load_model
from deepbilevel_lab.training.spec_files import load_spec, save_spec
from tests.cli.trained import SMALL_GROUPS, make_spec, run_in_process, train_run
from tests.hostile.mutations import mutate

DEEP = "[" * 100_000
SPECS = {
    "deep.json": DEEP,
    "deep.toml": f"a = {DEEP}",
    "list.json": "[1]",
    "null.json": "null",
    "number.json": "1" * 5_000,
    "half.json": '{"data": ',
    "text.toml": "data",
    "levels.json": '{"optimizer": ' * 900 + "1" + "}" * 900,
}
TABLES = {
    "field.csv": f'path,label\n"{"x" * 200_000}",a\n',
    "bytes.csv": b"path,label\n\xff\xfe,a\n",
    "zeros.csv": "path,label\na\0b.jpg,a\nb.jpg,b\n" * 20,
    "header.csv": "label\n",
    "empty.csv": "",
}


def one_line(result, name, code):
    assert result.exit_code == code, result.output
    (line,) = [each for each in result.output.splitlines() if each.startswith("error: ")]
    assert name in line
    assert len(line) < 5_000
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


@pytest.mark.parametrize("name", SPECS)
def test_specs(name, tmp_path):
    (tmp_path / name).write_text(SPECS[name])
    one_line(run_in_process("train", "--spec", tmp_path / name, "--out", tmp_path), name, 2)


def test_a_deep_setting(tmp_path):
    result = run_in_process("train", "--data", "digits", "--set", f"optimizer.options={DEEP}", "--out", tmp_path)
    one_line(result, "optimizer.options", 2)


@pytest.mark.parametrize("name", TABLES)
def test_tables(name, tmp_path, run):
    content = TABLES[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run_in_process("train", "--data", tmp_path / name, "--out", tmp_path / "runs")
    one_line(result, name, result.exit_code)
    assert result.exit_code in (1, 2)
    one_line(run_in_process("predict", run, tmp_path / name), name, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {**SMALL_GROUPS, "data.limit": 64, "data.test_limit": 20}
    return train_run(tmp_path_factory.mktemp("runs"), make_spec(**settings))


def with_about(run, path, change):
    with safe_open(run / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["deepbilevel"])
    save_file(load_file(run / "model.safetensors"), path, metadata={"deepbilevel": change(about)})


ABOUTS = {
    "nested": lambda about: DEEP,
    "no JSON": lambda about: "{",
    "a list": lambda about: "[]",
    "a number": lambda about: "1",
    "nothing": lambda about: "{}",
    "no names": lambda about: json.dumps({"spec": about["spec"]}),
    "a number of names": lambda about: json.dumps({**about, "class_names": 10}),
    "numbers as names": lambda about: json.dumps({**about, "class_names": list(range(10))}),
    "no name": lambda about: json.dumps({**about, "class_names": []}),
    "no spec": lambda about: json.dumps({**about, "spec": None}),
}


@pytest.mark.parametrize("change", ABOUTS.values(), ids=ABOUTS)
def test_networks(change, run, tmp_path):
    path = tmp_path / "model.safetensors"
    with_about(run, path, change)
    with pytest.raises(ValueError, match=r"model.safetensors does not say which network .*; fetch a copy, or train"):
        load_model(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_networks_whose_weights_are_not_finite_predict_nothing(value, run, tmp_path):
    path = tmp_path / "model.safetensors"
    with safe_open(run / "model.safetensors", "pt") as file:
        about = file.metadata()
    weights = load_file(run / "model.safetensors")
    name, each = next((name, each) for name, each in weights.items() if each.is_floating_point())
    save_file({**weights, name: torch.where(torch.arange(each.numel()).view_as(each) == 0, value, each)}, path, about)
    photo = tmp_path / "photo.ppm"
    photo.write_bytes(b"P6 8 8 255\n" + bytes(192))
    one_line(run_in_process("predict", path, photo), f"holds weights that are not finite, in {name}", 1)


def test_networks_whose_answers_are_no_numbers_predict_nothing(run, tmp_path):
    path = tmp_path / "model.safetensors"
    with safe_open(run / "model.safetensors", "pt") as file:
        about = file.metadata()
    weights = load_file(run / "model.safetensors")
    largest = {name: torch.full_like(each, 3e38) for name, each in weights.items() if each.is_floating_point()}
    save_file({**weights, **largest}, path, about)
    photo = tmp_path / "photo.ppm"
    photo.write_bytes(b"P6 8 8 255\n" + bytes(range(192)))
    one_line(run_in_process("predict", path, photo), "fetch a copy, or train it again", 1)


def refusal(read, path):
    """Return what a reader says about a file, or None if it reads it; only a ValueError is a refusal."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return None


COUNTS = [pytest.param(range(400), id="quick"), pytest.param(range(1_000, 5_000), marks=pytest.mark.slow, id="long")]


@pytest.mark.parametrize("seeds", COUNTS)
@pytest.mark.parametrize("name", ["spec.json", "spec.toml"])
def test_damaged_specs(name, seeds, tmp_path):
    path = tmp_path / name
    save_spec(make_spec(), path)
    content = path.read_bytes()
    for seed in seeds:
        path.write_bytes(mutate(content, random.Random(seed)))
        said = refusal(load_spec, path)
        assert said is None or name in said, (seed, said)


@pytest.mark.parametrize("seeds", COUNTS)
def test_damaged_networks(seeds, run, tmp_path):
    content = (run / "model.safetensors").read_bytes()
    # Of a file that is mostly weights, the beginning is damaged: that is what is interpreted.
    cut = 8 + int.from_bytes(content[:8], "little")
    path = tmp_path / "model.safetensors"
    for seed in seeds:
        path.write_bytes(mutate(content[:cut], random.Random(seed)) + content[cut:])
        said = refusal(load_model, path)
        assert said is None or path.name in said, (seed, said)
