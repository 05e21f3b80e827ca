"""State goes into JSON, tensors and bytes and comes back as it was, type for type and bit for bit."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from copy import deepcopy
from http import HTTPStatus

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from deepbilevel import MatchedGroups
from deepbilevel_lab.training.packing import from_bytes, pack, to_bytes, unpack

DTYPES = [
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.uint16, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn),
]
# Our own marks, names that run together, and names that files keep to themselves.
AWKWARD = ["$tensor", "$dict", "$tuple", "$float", "$unknown", "$", "", ".", "a", "a.b", "b", "0", "~", "__metadata__"]


def same(one, other):
    """Tell whether two states agree in every type, order, number and bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        bits = [t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (one, other)]
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*bits)
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return math.isnan(one) == math.isnan(other) and (math.isnan(one) or repr(one) == repr(other))
    return one == other


def travel(tree):
    """Return what comes back by way of bytes, as from a file."""
    plain, tensors = pack(tree)
    for tensor in tensors.values():
        assert tensor.is_contiguous()
        assert (tensor.requires_grad, tensor.is_conj(), tensor.is_neg()) == (False, False, False)
    assert "__metadata__" not in tensors
    entries, tensors = from_bytes(to_bytes(tensors, json.dumps(plain, allow_nan=False)))
    return unpack(json.loads(entries["deepbilevel"]), tensors)


@st.composite
def some_tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape)
    dtype = draw(st.sampled_from(DTYPES))
    content = torch.tensor(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)), dtype=torch.uint8)
    tensor = content.to(dtype).reshape(shape)
    return tensor.transpose(0, -1) if draw(st.booleans()) and shape else tensor


KEYS = st.sampled_from(AWKWARD) | st.text(max_size=3) | st.integers()
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | some_tensors()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(OrderedDict)
        | st.dictionaries(KEYS, inner, max_size=4).map(Counter)
    ),
    max_leaves=15,
)


@given(TREES)
@settings(max_examples=300)
def test_any_state_comes_back(tree):
    assert same(travel(tree), tree)


@given(TREES)
@settings(max_examples=30)
def test_the_same_state_is_packed_the_same_way(tree):
    (plain, tensors), (again, others) = pack(tree), pack(tree)
    assert json.dumps(plain) == json.dumps(again)
    assert list(tensors) == list(others)


@pytest.mark.parametrize(
    "tree",
    [
        {"$tensor": "a", "a": torch.ones(1)},
        {"$dict": [[0, 1]]},
        {"a": 1, "$tuple": []},
        {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}},
        {0: torch.zeros(1), "0": torch.ones(1)},
        {"a": torch.zeros(1), "a~": torch.ones(1), "": {"a": 3}},
        {"__metadata__": torch.ones(1)},
        {"b": 1, "a": 2},
        [(), [], {}, ((),)],
        [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1, 1.0, True, "1", 2**127],
        torch.tensor(1.0),
        "\ud800",
    ],
    ids=repr,
)
def test_what_is_easily_confused_is_not(tree):
    assert same(travel(tree), tree)


def test_tensors_are_named_by_where_they_stand():
    plain, tensors = pack({"model": {"conv.weight": torch.ones(2)}, "optimizer": [{0: torch.tensor(3)}]})
    assert list(tensors) == ["model.conv.weight", "optimizer.0.0"]
    assert plain["model"] == {"conv.weight": {"$tensor": "model.conv.weight"}}


def test_a_tensor_that_can_be_written_as_it_lies_is_not_copied():
    weights = torch.randn(5, 5)
    tensors = pack([weights, weights[1:], weights.T, nn.Parameter(weights)])[1]
    assert tensors["0"].data_ptr() == tensors["3"].data_ptr() == weights.data_ptr()
    assert tensors["1"].data_ptr() == weights[1:].data_ptr()
    assert tensors["2"].data_ptr() != weights.data_ptr()


def test_views_come_back_with_their_values():
    base = torch.arange(6.0).reshape(2, 3)
    state = [base.T, base[:, 1], base[0].expand(2, 3), torch.tensor([1 + 2j]).conj(), torch.tensor([1j]).conj().imag]
    assert same(travel(state), [tensor.resolve_conj().resolve_neg() for tensor in state])


@pytest.mark.parametrize("make", [torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_an_optimizer_goes_on_as_if_nothing_had_happened(make):
    def step(network, optimizer):
        optimizer.zero_grad()
        network(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()

    network = nn.Linear(3, 2)
    optimizer = make(network.parameters())
    for _ in range(3):
        step(network, optimizer)
    state = travel({"model": network.state_dict(), "optimizer": optimizer.state_dict()})
    assert same(state, {"model": network.state_dict(), "optimizer": optimizer.state_dict()})
    state = deepcopy(state)  # nothing is copied on the way, and both go on from here

    other = nn.Linear(3, 2)
    other.load_state_dict(state["model"])
    resumed = make(other.parameters())
    resumed.load_state_dict(state["optimizer"])
    step(network, optimizer)
    step(other, resumed)
    assert torch.equal(network.weight, other.weight)


def test_schedules_samplers_and_random_states_come_back():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    sampler = MatchedGroups([0, 1] * 20, batch_size=4, num_batches=2, seed=0)
    next(iter(sampler))
    state = {
        "schedule": torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4, 4]).state_dict(),
        "sampler": sampler.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.default_rng(0).bit_generator.state,
    }
    assert type(state["schedule"]["milestones"]) is Counter
    assert same(travel(state), state)


class Thing:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Thing(),
        lambda x: x,
        print,
        1j,
        b"bytes",
        {1},
        range(3),
        np.float64(1.0),
        np.int64(1),
        np.str_("text"),
        HTTPStatus.OK,
        np.zeros(2),
        torch.float32,
        torch.Size([1]),
        namedtuple("Point", "x")(1),
        defaultdict(list),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_come_back_as_it_was_is_refused_by_its_place(value):
    with pytest.raises(TypeError, match=r"^optimizer\.param_groups\.0\.foo is a "):
        pack({"optimizer": {"param_groups": [{"lr": 0.1, "foo": value}]}})


def test_a_parameter_comes_back_as_its_values():
    parameter = nn.Parameter(torch.ones(2))
    assert same(travel([parameter, parameter * 2]), [torch.ones(2), torch.full((2,), 2.0)])


def test_a_state_that_is_nothing_but_an_object_is_refused():
    with pytest.raises(
        TypeError, match=r"^the state itself is a .*Thing, which cannot be stored without code; make it"
    ):
        pack(Thing())


@pytest.mark.parametrize("key", [None, 1.5, True, (1, 2)], ids=repr)
def test_other_keys_are_refused(key):
    with pytest.raises(TypeError, match=r"^a\.b has the key .*; only str and int can be stored as keys"):
        pack({"a": {"b": {key: 1}}})


def test_a_state_that_contains_itself_is_refused():
    state = {"a": []}
    state["a"].append(state)
    with pytest.raises(
        ValueError, match=r"^a\.0\.a\.\.\. is nested more than 64 levels deep; does it contain itself\?"
    ):
        pack(state)


def test_as_deep_as_can_be_packed_can_be_read():
    tree = 1
    for _ in range(64):
        tree = {0: tree}
    assert same(travel(tree), tree)
    with pytest.raises(ValueError, match="levels deep"):
        pack([tree])


def test_an_unknown_mark_is_not_taken_for_a_state():
    with pytest.raises(ValueError, match=r"unknown mark '\$set'; it was packed by a newer version"):
        unpack({"a": {"$set": [1]}}, {})


def test_tensors_that_share_memory_come_back_as_their_own():
    weights = torch.arange(6.0)
    shared = {"all": weights, "same": weights, "part": weights[2:4], "one": weights[5], "none": weights[:0]}
    content = to_bytes(shared, "")
    tensors = from_bytes(content)[1]
    assert same({name: tensors[name] for name in shared}, shared)
    tensors["all"].zero_()
    assert same(tensors["same"], weights)
    assert content == to_bytes(shared, "")


@pytest.mark.parametrize("dtype", ["complex128", "float8_e8m0fnu"])  # the last is written, but not read
def test_a_type_that_cannot_be_read_back_is_refused_by_its_place(dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    tensors = {"sound": torch.ones(1), "model.weight": torch.empty(1, dtype=getattr(torch, dtype))}
    with pytest.raises(TypeError, match=rf"^model\.weight is of torch\.{dtype}, which safetensors files cannot hold"):
        to_bytes(tensors, "")


def test_bytes_of_others_have_their_tensors_and_no_entry():
    assert same(from_bytes(save({"x": torch.ones(1)})), ({}, {"x": torch.ones(1)}))


WHOLE = save({"abcdef": torch.ones(9, dtype=torch.uint8)})
UNREADABLE = WHOLE.replace(b'"abcdef":{"dtype":"U8"', b'"a":{"dtype":"F8_E8M0"')  # a type without a tensor


@pytest.mark.parametrize("content", [b"", b"no safetensors file", WHOLE[:-1], UNREADABLE])
def test_damaged_bytes_are_refused(content):
    with pytest.raises(ValueError, match=r"^it is cut short, or no safetensors file "):
        from_bytes(content)
