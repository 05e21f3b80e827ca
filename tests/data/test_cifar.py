"""CIFAR's archives: read without executing, checked, and with people's own labels."""

import hashlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100, read_batch
from deepbilevel_paper.made_data import make_picture
from tests.data.layouts import write


@pytest.fixture
def cifar10(tmp_path):
    return write("cifar10", tmp_path)


def test_images_are_channels_first_in_the_order_of_the_batches(cifar10):
    data = load_data("cifar10", cifar10)
    assert data.images.shape == (100, 3, 32, 32)
    for number, image, label in zip(range(100), data.images, data.labels, strict=True):
        expected = make_picture(int(label), number, width=32, height=32)
        assert torch.equal(image.movedim(0, -1), torch.from_numpy(expected))
    assert data.class_names[3] == "made class 3"


def test_the_extracted_folder_itself_can_be_named(cifar10):
    assert len(load_data("cifar10", cifar10 / "cifar-10-batches-py", "test")) == 20


class Exploit:
    """Unpickled by Python's own means, it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


HOSTILE = {
    "a command": lambda trace: Exploit(trace),
    "a command among honest data": lambda trace: {b"data": np.zeros((1, 3072), np.uint8), b"labels": [Exploit(trace)]},
    "an evaluation": lambda trace: _Calls(eval, f"__import__('os').mkdir({str(trace)!r})"),
    "a call": lambda trace: _Calls(os.mkdir, str(trace)),
}


class _Calls:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_pickle_is_refused_and_does_nothing(make, protocol, tmp_path):
    path, trace = tmp_path / "data_batch_1", tmp_path / "trace"
    path.write_bytes(pickle.dumps(make(trace), protocol=protocol))
    with pytest.raises(ValueError, match=r"data_batch_1 is not a published batch \(it asks for .*not executed"):
        read_batch(path.read_bytes(), path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())  # the attack is real: Python's own reader falls for it
    assert trace.exists()


def test_a_hostile_batch_among_made_images_is_refused_too(cifar10, tmp_path):
    path = cifar10 / CIFAR10.folder / "data_batch_2"
    path.write_bytes(pickle.dumps(Exploit(tmp_path / "trace")))
    with pytest.raises(ValueError, match=r"data_batch_2 is not a published batch .*not executed"):
        load_data("cifar10", cifar10)
    assert not (tmp_path / "trace").exists()


def rewrite(path, change):
    content = pickle.loads(path.read_bytes())
    change(content)
    path.write_bytes(pickle.dumps(content, protocol=4))


def test_other_images_pass_neither_for_made_nor_for_published_ones(cifar10):
    folder = cifar10 / CIFAR10.folder
    rewrite(folder / "data_batch_2", lambda batch: batch[b"data"].__setitem__((3, 5), batch[b"data"][3, 5] ^ 1))
    with pytest.raises(
        ValueError, match="data_batch_2 does not hold the synthetic images that the names of its classes"
    ):
        load_data("cifar10", cifar10)
    # A list of checksums beside the files changes nothing: a stranger could have written it.
    sums = (f"{hashlib.md5(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(folder.iterdir()))
    (folder / "made-images.md5").write_text("".join(sums))
    with pytest.raises(ValueError, match="data_batch_2 does not hold the synthetic images"):
        load_data("cifar10", cifar10)
    rewrite(folder / "batches.meta", lambda meta: meta[b"label_names"].__setitem__(0, b"made airplane"))
    with pytest.raises(ValueError, match=r"batches.meta has the MD5 .*, published is .*damaged or not the original"):
        load_data("cifar10", cifar10)


def test_labels_that_are_none_are_refused(cifar10):
    path = cifar10 / CIFAR10.folder / "data_batch_1"
    rewrite(path, lambda batch: batch[b"labels"].__setitem__(0, 10**30))
    with pytest.raises(ValueError, match="data_batch_1 has labels other than 0 to 9; download"):
        load_data("cifar10", cifar10)
    rewrite(path, lambda batch: batch[b"labels"].__delitem__(0))
    with pytest.raises(ValueError, match="data_batch_1 has 20 images but 19 labels; download"):
        load_data("cifar10", cifar10)


def test_a_truncated_batch_is_refused(cifar10):
    path = cifar10 / CIFAR10.folder / "data_batch_3"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"data_batch_3 is not a published batch .*download"):
        load_data("cifar10", cifar10)
    with pytest.raises(ValueError, match=r"data_batch_3 is not a published batch .*download"):
        read_batch(path.read_bytes(), path)


def test_a_missing_batch_is_named(cifar10):
    (cifar10 / CIFAR10.folder / "data_batch_4").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_4 is missing; unpack or download"):
        load_data("cifar10", cifar10)


@pytest.mark.parametrize("content", [[1, 2], "text", 5])
def test_a_pickle_of_something_else_is_refused(content, tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match="expected a dictionary"):
        read_batch(path.read_bytes(), path)


def human_arrays(num_images=100):
    clean = np.arange(num_images) % 20 % 10
    return {"clean_label": clean, "worse_label": (clean + 1) % 10, "aggre_label": clean, "random_label1": 9 - clean}


def write_npz(path, arrays):
    np.savez(path, **{name.replace("_label", "").replace("worse", "worst"): a for name, a in arrays.items()})


@pytest.mark.parametrize(
    ("file", "save"),
    [
        ("cifar-10n/labels.npz", write_npz),
        ("CIFAR-10_human.pt", lambda path, arrays: torch.save(arrays, path)),
        ("CIFAR-10_human.pt", lambda path, arrays: torch.save(arrays, path, _use_new_zipfile_serialization=False)),
    ],
)
def test_human_labels_become_the_labels_and_the_published_ones_the_clean(cifar10, file, save):
    path = cifar10 / file
    path.parent.mkdir(exist_ok=True)
    save(path, human_arrays())
    data = load_data("cifar10", cifar10, labels="worst")
    assert torch.equal(data.clean_labels, load_data("cifar10", cifar10).labels)
    assert torch.equal(data.labels, (data.clean_labels + 1) % 10)
    assert load_data("cifar10", cifar10, labels="random1").labels[0] == 9


def test_human_labels_of_cifar100(tmp_path):
    root = write("cifar100", tmp_path)
    clean = np.arange(100)
    torch.save({"clean_label": clean, "noisy_label": (clean + 5) % 100}, root / "CIFAR-100_human.pt")
    assert load_data("cifar100", root, labels="noisy_fine").labels[0] == 5
    assert CIFAR100.label_key == b"fine_labels"


def test_human_labels_that_do_not_fit_are_refused(cifar10):
    with pytest.raises(FileNotFoundError, match="human labels of cifar10 are not in"):
        load_data("cifar10", cifar10, labels="worst")
    arrays = human_arrays()
    path = cifar10 / "CIFAR-10_human.pt"
    torch.save(arrays | {"clean_label": arrays["clean_label"][::-1].copy()}, path)
    with pytest.raises(ValueError, match="in another order"):
        load_data("cifar10", cifar10, labels="worst")
    torch.save({"clean_label": arrays["clean_label"]}, path)
    with pytest.raises(ValueError, match="no labels named worst or worse_label, only clean_label"):
        load_data("cifar10", cifar10, labels="worst")
    path.write_bytes(b"not a zip file")
    with pytest.raises(ValueError, match=r"CIFAR-10_human\.pt cannot be read as human labels"):
        load_data("cifar10", cifar10, labels="worst")
    with pytest.raises(ValueError, match="of the training images, not of split 'test'"):
        load_data("cifar10", cifar10, "test", labels="worst")


def test_hostile_human_labels_are_refused_and_do_nothing(cifar10, tmp_path):
    trace = tmp_path / "trace"
    torch.save({"clean_label": Exploit(trace)}, cifar10 / "CIFAR-10_human.pt")
    with pytest.raises(ValueError, match="cannot be read as human labels"):
        load_data("cifar10", cifar10, labels="worst")
    assert not trace.exists()


def test_loading_needs_neither_pillow_nor_scikit_learn(cifar10):
    code = f"""
import sys
sys.modules["PIL"] = sys.modules["sklearn"] = None
from deepbilevel_lab.data.catalog import load_data
assert len(load_data("cifar10", {str(cifar10)!r})) == 100
"""
    subprocess.run([sys.executable, "-c", code], check=True)
