"""Forged and damaged pickles: the reader returns plain values or says no. It calls nothing and never crashes.

Fuzzers run in a process of their own, with little memory: a crash is then a failure with a seed, not the end of pytest.
"""

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

from deepbilevel_lab.data.plain_pickle import read_pickle

# As Python 2 wrote the published batches: an array of two rows, labels, names.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\x09eU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05"
    b"cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x02K\x04\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87R"
    b"q\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x08abcdefghtbU\x05names]q\x0a(U\x03cat"
    b"U\x03doge" + b"u."
)
VALUES = {b"labels": [6, 9], b"data": np.frombuffer(b"abcdefgh", np.uint8).reshape(2, 4), b"names": [b"cat", b"dog"]}


def read(content):
    return read_pickle(io.BytesIO(content))


@pytest.mark.parametrize(
    "content", [PYTHON_2, *(pickle.dumps(VALUES, protocol=protocol) for protocol in range(5))], ids=lambda _: ""
)
def test_honest_values_are_read_as_python_reads_them(content):
    expected, found = pickle.loads(content, encoding="bytes"), read(content)
    assert list(found) == list(expected) == list(VALUES)
    assert found[b"labels"] == expected[b"labels"]
    assert found[b"names"] == expected[b"names"]
    np.testing.assert_array_equal(found[b"data"], expected[b"data"])
    assert found[b"data"].dtype == expected[b"data"].dtype


@pytest.mark.parametrize("kind", ["i1", "u1", "<i2", ">i4", "<u4", "<i8", ">u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_all_integers_and_orders_are_read(kind, order):
    array = np.asarray(np.arange(24).reshape(2, 3, 4), dtype=kind, order=order)
    twice = read(pickle.dumps([array, array, array.dtype], protocol=2))
    for found in twice[:2]:
        np.testing.assert_array_equal(found, array)


class Forged:
    """A type of numbers with a state that no honest writer gives it."""

    def __init__(self, letters, state):
        self.letters, self.state = letters, state

    def __reduce__(self):
        return np.dtype, (self.letters, False, True), self.state


class ForgedArray:
    def __init__(self, dtype, shape=(1,), content=b"A" * 8):
        self.state = (1, shape, dtype, False, content)

    def __reduce__(self):
        return np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), self.state


# An object in the place of eight bytes, without the flag that says so.
POINTERS = Forged("V8", (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))
FORGED = {
    "bytes that become pointers": ForgedArray(POINTERS),
    "objects": ForgedArray(np.dtype("O")),
    "flags of objects": ForgedArray(Forged("i8", (3, "<", None, None, None, -1, -1, 63))),
    "a size of its own": ForgedArray(Forged("i8", (3, "<", None, None, None, 1 << 40, -1, 0))),
    "more than there is": ForgedArray(np.dtype("i8"), shape=(1 << 60,)),
    "a product that overflows": ForgedArray(np.dtype("i8"), shape=(1 << 32, 1 << 32), content=b""),
    "negative sides": ForgedArray(np.dtype("i8"), shape=(-1,)),
    "sides that are texts": ForgedArray(np.dtype("u1"), shape=("8",)),
    "floating point": np.zeros(3),
    "an instance": pytest.approx(1),
}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_arrays_are_refused(forged, protocol):
    with pytest.raises((ValueError, TypeError), match=r"^it"):
        read(pickle.dumps({b"data": forged}, protocol=protocol))


def test_the_forged_type_is_a_real_attack():
    """Python's own reader, given the four names that an array needs and no others, lets the file choose an address."""
    code = f"import pickle; print(pickle.loads({pickle.dumps(ForgedArray(POINTERS), protocol=2)!r})['a'][0])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize(
    "content",
    [b"", b".", b"N", b"(.", b"0.", b"t.", b"a.", b"]a.", b"R.", b"h\x00.", b"NNb.", b"}]Ns.", b"\x95", b"NN."],
)
def test_fragments_are_refused(content):
    with pytest.raises((ValueError, TypeError, IndexError, KeyError)):
        read(content)


def test_a_list_within_itself_is_harmless():
    found = read(b"]q\x00h\x00a.")
    assert found[0] is found


FUZZER = """
import io, pickle, random, resource, sys, zipfile
from pathlib import Path
import numpy as np, torch
from deepbilevel_lab.data.cifar import load_human_labels, read_batch
from tests.hostile.mutations import mutate
from tests.hostile.test_pickles import PYTHON_2, VALUES

resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
first, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
whole = [PYTHON_2, *(pickle.dumps(VALUES, protocol=each) for each in range(5))]
arrays = {"clean_label": np.arange(5), "worse_label": np.arange(5)}
legacy, zipped, numpys = io.BytesIO(), io.BytesIO(), io.BytesIO()
torch.save(arrays, legacy, _use_new_zipfile_serialization=False)
torch.save(arrays, zipped)
np.savez(numpys, clean=np.arange(5), worst=np.arange(5))

def assert_plain(value, depth=0):
    assert type(value).__module__ in ("builtins", "numpy", "deepbilevel_lab.data.plain_pickle"), type(value)
    if isinstance(value, np.ndarray):
        assert value.dtype.kind in "iu"
        value.sum()
    elif isinstance(value, (list, tuple, dict)) and depth < 5:
        for each in value.items() if isinstance(value, dict) else value:
            assert_plain(each, depth + 1)

def members(content, chance):
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            new.writestr(name, mutate(old.read(name), chance) if name.endswith((".pkl", ".npy")) else old.read(name))
    return made.getvalue()

refused = 0
for seed in range(first, first + count):
    chance = random.Random(seed)
    print(seed, file=sys.stderr)
    try:
        if seed % 2:
            assert_plain(read_batch(mutate(chance.choice(whole), chance), Path("batch")))
            continue
        kind = chance.randrange(5)
        source = (legacy, zipped, zipped, numpys, numpys)[kind].getvalue()
        damaged = members(source, chance) if kind in (1, 3) else mutate(source, chance)
        (folder / "CIFAR-10_human.pt").write_bytes(damaged)
        load_human_labels("cifar10", folder, "worst", torch.arange(5))
    except ValueError as error:
        assert "batch" in str(error) or "human.pt" in str(error), error
        refused += 1
print(refused)
"""


@pytest.mark.parametrize(
    ("first", "count"), [(0, 3_000), pytest.param(100_000, 20_000, marks=pytest.mark.slow)], ids=["quick", "long"]
)
def test_damaged_pickles_never_crash(first, count, tmp_path):
    arguments = [sys.executable, "-c", FUZZER, str(first), str(count), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"
    assert count // 3 < int(done.stdout) < count  # most are refused, and some damage leaves a file whole
