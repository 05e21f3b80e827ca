"""Labels are read in every form people have them, and multi-label images are matched on their rarest label."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from deepbilevel import MatchedGroups
from deepbilevel.sampling.pools import read_classes
from tests.sampling.claims import assert_disjoint, assert_matched, shuffled_labels, take_epochs

LABELS = shuffled_labels([12, 9, 6])
SETTINGS = {"num_batches": 3, "batch_size": 2, "seed": 7}
NAMES = np.array(["bird", "cat", "dog"])[LABELS]

SINGLE_LABELS = {
    "list": LABELS.tolist(),
    "tuple": tuple(LABELS.tolist()),
    "list of numpy numbers": list(LABELS),
    "list of 0-d tensors": [torch.tensor(label) for label in LABELS],
    "list of strings": NAMES.tolist(),
    "array of strings": NAMES,
    "array of objects that are strings": NAMES.astype(object),
    "negative numbers": LABELS - 2,
    "numbers with gaps": LABELS * 1000 + 5,
    "not contiguous": np.repeat(LABELS, 2)[::2],
    **{dtype: LABELS.astype(dtype) for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")},
    **{
        str(dtype): torch.from_numpy(LABELS).to(dtype) for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64)
    },
}

# Three labels that 8, 12 and 16 images have, so that there is no doubt which of an image's labels is the rarest.
POSITIVE = np.zeros((32, 3), dtype=bool)
POSITIVE[:8, 0] = POSITIVE[4:16, 1] = POSITIVE[8:24, 2] = True
ANCHORS = np.repeat([0, 1, 2, 3], [8, 8, 8, 8])  # the last 8 images have no label at all

MULTI_LABELS = {
    "list of lists": POSITIVE.astype(int).tolist(),
    **{dtype: POSITIVE.astype(dtype) for dtype in ("bool", "uint8", "int64", "float32", "float64")},
    **{
        str(dtype): torch.from_numpy(POSITIVE).to(dtype)
        for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32)
    },
    "float tensor with a gradient": torch.from_numpy(POSITIVE).float().requires_grad_(),
}


@pytest.mark.parametrize("form", SINGLE_LABELS)
def test_the_same_labels_in_any_form_give_the_same_groups(form):
    expected = take_epochs(MatchedGroups(LABELS, **SETTINGS), 2)
    np.testing.assert_array_equal(take_epochs(MatchedGroups(SINGLE_LABELS[form], **SETTINGS), 2), expected)
    assert_matched(expected, LABELS)


@pytest.mark.parametrize("labels", [LABELS > 0, torch.from_numpy(LABELS > 0)], ids=["numpy", "torch"])
def test_true_and_false_are_two_classes(labels):
    assert_matched(take_epochs(MatchedGroups(labels, **SETTINGS), 2), LABELS > 0)


def test_a_column_of_zeros_and_ones_is_two_classes():
    labels = (LABELS > 0).astype(int)
    assert_matched(take_epochs(MatchedGroups(labels[:, None], **SETTINGS), 2), labels)


def test_labels_may_change_after_the_sampler_was_built():
    labels = LABELS.copy()
    groups = MatchedGroups(labels, **SETTINGS)
    labels[:] = 0
    assert_matched(take_epochs(groups, 2), LABELS)


@pytest.mark.parametrize("convert", [np.int64, np.int32, np.uint8], ids=lambda convert: convert.__name__)
def test_settings_may_be_numpy_integers(convert):
    converted = {name: convert(value) for name, value in SETTINGS.items()}
    assert list(MatchedGroups(LABELS, **converted)) == list(MatchedGroups(LABELS, **SETTINGS))


def test_mini_batches_hold_plain_integers():
    batch = next(iter(MatchedGroups(LABELS, **SETTINGS)))
    assert {type(image) for image in batch} == {int}


@pytest.mark.parametrize("form", MULTI_LABELS)
def test_multi_label_images_are_matched_on_their_rarest_label(form):
    groups = MatchedGroups(MULTI_LABELS[form], num_batches=4, batch_size=2, seed=0)
    epochs = take_epochs(groups, 3)
    assert_matched(epochs, ANCHORS)
    assert_disjoint(epochs)
    assert set(epochs.flat) == set(range(32))  # images without any label are drawn as well


@given(arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, max_side=12)), st.integers(0, 99))
def test_an_anchor_is_a_positive_label_that_no_other_of_the_image_undercuts(positive, seed):
    classes, reason = read_classes(positive, np.random.RandomState(seed))
    assert reason is None
    frequency = positive.sum(axis=0)
    for image, row in enumerate(positive):
        anchor = classes.names[classes.of_image[image]]
        if row.any():
            assert row[int(anchor)]
            assert frequency[int(anchor)] == frequency[row].min()
        else:
            assert anchor == "no positive label"


def test_the_seed_settles_which_of_two_equally_rare_labels_is_the_anchor():
    both = np.ones((6, 2), dtype=int)
    first, second = ([read_classes(both, np.random.RandomState(seed))[0].names for seed in range(20)] for _ in range(2))
    assert set(first) == {("0",), ("1",)}
    assert first == second


def test_a_rare_anchor_is_named_by_its_column():
    positive = POSITIVE.copy()
    positive[:, 0] = False
    positive[:2, 0] = True
    with pytest.raises(ValueError, match=r"class '0' \(2 to train\).*num_batches=4"):
        MatchedGroups(positive, num_batches=4, batch_size=2, seed=0)
    with pytest.raises(ValueError, match=r"class 'no positive label' \(3 to train\).*num_batches=4"):
        MatchedGroups(POSITIVE[:-5], num_batches=4, batch_size=2, seed=0)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_class_sizes_and_names_are_those_of_the_labels(labels):
    classes, reason = read_classes(labels, np.random.RandomState(0))
    assert reason is None
    assert [int(classes.names[position]) for position in classes.of_image] == labels
    assert classes.sizes.tolist() == [labels.count(int(name)) for name in classes.names]
