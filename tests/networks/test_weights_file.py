"""Weights from files: what fits is loaded, what does not is named, and nothing in a file is ever run."""

import os
import pickle
import random
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from deepbilevel_lab.networks.weights_file import fill_network, read_weights


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3))


def save_torch(weights, path):
    torch.save(weights, path)


def save_legacy(weights, path):
    torch.save(weights, path, _use_new_zipfile_serialization=False)


FORMATS = {
    "safetensors": ("weights.safetensors", save_file),
    "pt": ("weights.pt", save_torch),
    "pth": ("weights.pth", save_torch),
    "upper case": ("WEIGHTS.PTH", save_torch),
    "pth of old": ("weights.pth", save_legacy),
}
every_format = pytest.mark.parametrize(("file_name", "save"), FORMATS.values(), ids=FORMATS)


class Malicious:
    """Unpickling it makes a directory; it stands for any code."""

    def __init__(self, target):
        self.target = str(target)

    def __reduce__(self):
        return os.mkdir, (self.target,)


@every_format
def test_what_was_saved_is_read(tmp_path, file_name, save):
    weights = small_network().state_dict()
    save(weights, tmp_path / file_name)
    for path in (tmp_path / file_name, str(tmp_path / file_name)):
        read = read_weights(path)
        assert set(read) == set(weights)
        assert all(torch.equal(read[name], weights[name]) for name in weights)


def save_pickle(content, path):
    path.write_bytes(pickle.dumps(content, protocol=2))


def load_torch(path):
    return torch.load(path, weights_only=False)


def load_pickle(path):
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("save", "careless"), [(save_torch, load_torch), (save_legacy, load_torch), (save_pickle, load_pickle)]
)
def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path, save, careless):
    target, path = tmp_path / "owned", tmp_path / "weights.pth"
    save({"0.weight": Malicious(target)}, path)
    with pytest.raises(ValueError, match=r"weights\.pth' was refused: .*could run any code"):
        read_weights(path)
    assert not target.exists()
    careless(path)
    assert target.exists(), "the trap is none, and the test proves nothing"


@every_format
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_called_damaged(tmp_path, file_name, save, kept):
    path = tmp_path / file_name
    save(small_network().state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(ValueError, match=rf"{path.name}' .*damaged"):
        read_weights(path)


@pytest.mark.parametrize("file_name", ["weights.safetensors", "weights.pth"])
@pytest.mark.parametrize("content", [b"<html>404 Not Found</html>", b"\0" * 100, random.Random(0).randbytes(1000)])
def test_a_file_of_something_else_is_called_damaged(tmp_path, file_name, content):
    path = tmp_path / file_name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file_name}' .*damaged"):
        read_weights(path)


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in \.safetensors, \.pt, \.pth, got '.*weights\.pkl'"):
        read_weights(tmp_path / "weights.pkl")


@pytest.mark.parametrize("name", ["nothing.pth", "nothing.safetensors", "folder.pth"])
def test_a_path_without_a_file_is_named(tmp_path, name):
    (tmp_path / "folder.pth").mkdir()
    with pytest.raises(FileNotFoundError, match=name):
        read_weights(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([torch.zeros(1)], "holds a list, expected names with their tensors"),
        (torch.zeros(1), "holds a Tensor, expected names with their tensors"),
        ({"state_dict": {"a": torch.zeros(1)}, "epoch": 3}, "holds a dict under 'state_dict', .*save that part"),
        ({3: torch.zeros(1)}, "under 3, expected tensors"),
    ],
)
def test_a_file_that_holds_more_or_less_than_weights_is_refused(tmp_path, content, complaint):
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match=complaint):
        read_weights(tmp_path / "checkpoint.pt")


def test_torch_versions_whose_reader_is_not_safe_are_not_used(tmp_path, monkeypatch):
    torch.save({}, tmp_path / "weights.pt")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(RuntimeError, match=r"not safe with torch 2\.5\.1\+cpu; install torch 2\.6 or newer"):
        read_weights(tmp_path / "weights.pt")


def test_a_missing_package_is_reported_with_the_line_that_installs_it(tmp_path, monkeypatch):
    save_file(small_network().state_dict(), tmp_path / "weights.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'deepbilevel\[cli\]'"):
        read_weights(tmp_path / "weights.safetensors")


def test_weights_that_fit_are_copied():
    network, other = small_network(), small_network()
    fill_network(network, other.state_dict(), source="a test")
    for name, value in network.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    # Copied, not shared: training one must not change the other.
    nn.init.zeros_(network[0].weight)
    assert other[0].weight.any()


def test_counters_of_batch_norm_may_be_missing():
    network, other = small_network(), small_network()
    weights = {name: value for name, value in other.state_dict().items() if "num_batches_tracked" not in name}
    fill_network(network, weights, source="a test")
    assert torch.equal(network[0].weight, other[0].weight)


def test_half_precision_is_welcome():
    network, other = small_network(), small_network().half()
    fill_network(network, other.state_dict(), source="a test")
    assert network[0].weight.dtype == torch.float32
    assert torch.equal(network[0].weight, other[0].weight.float())


def changed(**changes):
    weights = small_network().state_dict()
    for name, value in changes.items():
        weights.pop(name.replace("__", "."), None)
        if value is not None:
            weights[name.replace("__", ".")] = value
    return weights


WRONG = {
    "missing": ({"0__weight": None}, r"1 missing: 0\.weight$"),
    "unexpected": ({"head__bias": torch.zeros(3)}, r"1 unexpected: head\.bias$"),
    "shape": ({"3__bias": torch.zeros(5)}, r"1 of another shape: 3\.bias is \[5\] instead of \[3\]$"),
    "type": ({"3__bias": torch.zeros(3, dtype=torch.int8)}, r"of another type: 3\.bias is torch\.int8 instead of"),
    "several": (
        {"1__bias": None, "3__weight": torch.zeros(3, 4), "extra": torch.zeros(1)},
        r"1 missing: 1\.bias; 1 unexpected: extra; 1 of another shape: 3\.weight is \[3, 4\] instead of \[3, 2\]$",
    ),
}


@pytest.mark.parametrize(("changes", "complaint"), WRONG.values(), ids=WRONG)
def test_weights_that_do_not_fit_are_named_and_change_nothing(changes, complaint):
    network = small_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(ValueError, match=f"the weights of a test do not fit Sequential: .*{complaint}"):
        fill_network(network, changed(**changes), source="a test")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_long_list_is_cut():
    with pytest.raises(ValueError, match=r"7 missing: (\S+, ){4}\S+ and 2 more"):
        fill_network(nn.Sequential(*(nn.PReLU() for _ in range(7))), {}, source="a test")
