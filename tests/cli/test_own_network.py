"""Networks of the user: code, weights, frozen layers, and that nothing of it runs unless the user names it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from deepbilevel_lab.networks import named_code
from deepbilevel_lab.specs import from_plain
from deepbilevel_lab.training import RunSpec
from tests.cli.trained import run_command, run_in_process, write_colours, write_picture

CODE = """
from pathlib import Path

from torch import nn

Path(__file__).with_suffix(".ran").touch()


def make(num_classes, width=4):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 4), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(width, num_classes),
    )


def make_nothing(num_classes):
    return None
"""
QUICK = ("--epochs", 1, "--threads", 1)


@pytest.fixture
def photos(tmp_path):
    return write_colours(tmp_path / "photos", per_class=8)


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.setattr(named_code, "_named", {})  # what other tests have named
    path = tmp_path / "own" / "net.py"
    path.parent.mkdir()
    path.write_text(CODE)
    return path


def has_run(code):
    return code.with_suffix(".ran").exists()


def train(tmp_path, photos, *arguments):
    result = run_in_process("train", "--data", photos, *QUICK, *arguments, "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    return result


def only_run(tmp_path):
    [run] = (tmp_path / "runs").iterdir()
    return run


def refusal(*arguments):
    result = run_command(*arguments)  # a process of its own, in which nothing was named
    assert result.returncode in (1, 2), result.stdout
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


def test_it_trains_predicts_and_goes_on_where_it_is_named(photos, code, tmp_path):
    network = f"{code}:make"
    train(tmp_path, photos, "--network", network, "--set", "network.arguments.width=6")
    run = only_run(tmp_path)
    record = json.loads((run / "record.json").read_text())
    assert record["spec"]["network"]["arguments"] == {"width": 6}
    assert record["parameters"] == 6 * 27 + 6 + 12 + 2 * 7
    picture = write_picture(tmp_path / "new.jpg", "red")
    for command in (("evaluate", run), ("predict", run, picture)):
        assert run_in_process(*command, "--network", network).exit_code == 0
    again = run_in_process("train", "--spec", run / "spec.json", "--network", network, "--out", tmp_path / "runs")
    assert "nothing to do" in again.output


def test_nothing_of_it_runs_unless_it_is_named(photos, code, tmp_path):
    train(tmp_path, photos, "--network", f"{code}:make")
    run = only_run(tmp_path)
    code.with_suffix(".ran").unlink(missing_ok=True)
    remedy = f"add --network {code}:make"
    assert remedy in refusal("predict", run, photos)
    assert remedy in refusal("evaluate", run)
    assert remedy in refusal("train", "--spec", run / "spec.json", "--out", tmp_path / "other")
    assert remedy in refusal("compare", "--spec", run / "spec.json", "--out", tmp_path / "other")
    assert not has_run(code)
    assert not (tmp_path / "other").exists()


def test_changed_code_is_another_run_and_another_network(photos, code, tmp_path):
    train(tmp_path, photos, "--network", f"{code}:make")
    run = only_run(tmp_path)
    kept = shutil.copy(code, tmp_path / "kept.py")
    code.write_text(CODE.replace("width=4", "width=5"))
    code.with_suffix(".ran").unlink(missing_ok=True)
    assert "is not what network" in refusal("evaluate", run, "--network", f"{code}:make")
    assert "is not what network" in refusal("train", "--spec", run / "spec.json", "--network", f"{code}:make")
    assert not has_run(code)
    # The same content elsewhere is the same network.
    assert run_in_process("evaluate", run, "--network", f"{kept}:make").exit_code == 0
    train(tmp_path, photos, "--network", f"{code}:make")
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.slow
def test_runs_side_by_side_may_use_it_too(photos, code, tmp_path):
    result = run_in_process(
        *("compare", "--data", photos, "--network", f"{code}:make", *QUICK, "--methods", "sgd", "--seeds", "0-1"),
        *("--out", tmp_path / "runs"),
    )
    assert result.exit_code == 0, result.output
    assert len(list((tmp_path / "runs").glob("*/record.json"))) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{code}:make_nothing", "must return a torch.nn.Module, got NoneType"),
        ("{code}:missing", "has no function called 'missing'"),
        ("{code}:", "must end in the name of a function"),
        ("nowhere.py:make", "nowhere.py is no file"),
        ("nowhere.module:make", "importable from here (PYTHONPATH)"),
        ("transformers:nowhere", "give a folder with a config.json"),
    ],
)
def test_mistakes_are_named(photos, code, tmp_path, name, message):
    network = name.format(code=code)
    result = run_in_process("train", "--data", photos, *QUICK, "--network", network, "--out", tmp_path / "runs")
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_wrong_argument_says_what_it_is_called_with(photos, code, tmp_path):
    result = run_in_process(
        *("train", "--data", photos, *QUICK, "--network", f"{code}:make", "--set", "network.arguments.depth=3"),
        *("--out", tmp_path / "runs"),
    )
    assert result.exit_code == 1
    assert "unexpected keyword argument 'depth'" in result.stderr
    assert "network.arguments" in result.stderr


def test_weights_of_other_classes_get_a_new_last_layer_and_may_be_frozen(photos, code, tmp_path):
    content = named_code.name_code(f"{code}:make")
    torch.manual_seed(1)
    thousand = named_code.make_own(f"{code}:make", content, 1000, {})
    file = tmp_path / "weights.safetensors"
    save_file(thousand.state_dict(), file)
    options = ("--network", f"{code}:make", "--weights", file, "--freeze", "--set", "weight_averaging=null")
    result = train(tmp_path, photos, *options)
    assert f"{file} has 1,000 classes, this run 2: its last layer, 5, starts from scratch" in result.stdout
    from deepbilevel_lab.training import load_model

    trained = load_model(only_run(tmp_path)).network.state_dict()
    for name, value in thousand.state_dict().items():
        if name.startswith("5."):
            assert trained[name].shape[0] == 2
        else:  # statistics of BatchNorm too
            assert torch.equal(trained[name], value), name


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"name": "small_resnet", "freeze": True}, "add weights or pretrained"),
        ({"name": "small_resnet", "pretrained": True}, "not published"),
        ({"name": "small_resnet", "arguments": {"a": 1}}, "takes none"),
        ({"name": "small_resnet", "side": 8}, "side must lie in 32"),
        ({"name": "cifarnet", "side": 64}, "cannot be chosen"),
        ({"name": "x.py:make", "pretrained": True}, "may load weights itself"),
        ({"name": "timm:resnet18", "pretrained": True, "weights": "w.pt"}, "drop one"),
        ({"name": "timm:resnet18"}, "network.side is missing"),
        ({"name": "timm:resnet18", "side": 0}, "side must lie in 1"),
    ],
)
def test_what_does_not_go_together_is_refused(network, message):
    data = {"name": "folder", "path": "photos", "view": "random-area", "recipe": "imagenet"}
    with pytest.raises(ValueError, match=message):
        from_plain(RunSpec, {"data": data, "network": network})
