"""What is collected equals the textbook's, whatever the order, the device's precision or the interruptions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbilevel.audit import LabelAudit
from tests.audit.reference import ReferenceAudit, visits_of_epochs

SCORES = ["probability", "margin", "hit_rate", "agreement"]
STEP = 1 / 65535  # of a kept probability


def single(n=40, classes=4, seed=0):
    return np.random.RandomState(seed).randint(0, classes, n)


def several(n=40, classes=4, seed=0):
    return np.random.RandomState(seed).randint(0, 2, (n, classes))


def assert_equal_states(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])), name


@pytest.mark.parametrize("labels", [single(), several()], ids=["single", "several"])
def test_scores_are_those_of_the_textbook(labels):
    audit, reference = LabelAudit(labels, num_classes=4), ReferenceAudit(labels)
    for indices, logits, features in visits_of_epochs(40, 4, epochs=7):
        audit.observe(indices, logits, features=features)
        reference.observe(indices.tolist(), logits, features)
    for name in SCORES:
        within = 10 * STEP if name == "probability" else 1e-4
        np.testing.assert_allclose(audit.scores(name), reference.scores(name), atol=within, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(audit.pred_probs(), reference.pred_probs(), atol=10 * STEP)
    np.testing.assert_allclose(audit.scores("contrast"), reference.scores("contrast"), atol=0.1)
    assert (audit.visits == 7).all()


def test_mean_probabilities_of_one_label_add_up_to_one():
    audit = LabelAudit(single(), num_classes=4)
    for indices, logits, _ in visits_of_epochs(40, 4, epochs=5):
        audit.observe(indices, logits)
    np.testing.assert_allclose(audit.pred_probs().sum(axis=1), 1, atol=1e-6)


PATTERNS = {
    "constant": lambda t: torch.full_like(t, 0.3),
    "first high, then low": lambda t: torch.where(t < 100, 0.999, 0.001),
    "a slow drift": lambda t: 0.1 + 0.8 * t / t[-1],
    "in turns": lambda t: torch.where(t % 2 == 0, 0.9, 0.1),
    "a period near the threshold's": lambda t: torch.where(t % 34 < 13, 0.9, 0.2),
    "random": lambda t: torch.rand(len(t), generator=torch.Generator().manual_seed(0)).double(),
}


@pytest.mark.parametrize("visits", [300, 8000])
def test_means_in_16_bits_do_not_stop_moving(visits):
    probabilities = torch.stack([pattern(torch.arange(visits).double()) for pattern in PATTERNS.values()], dim=1)
    logits = torch.stack([probabilities.log(), (1 - probabilities).log()], dim=2).float()
    audit = LabelAudit([0] * len(PATTERNS), num_classes=2)
    for rows in logits:
        audit.observe(range(len(PATTERNS)), rows)
    exact = logits.double().softmax(dim=2)[..., 0].mean(dim=0)
    off = np.abs(audit.scores("probability") - exact.numpy()) / STEP
    assert off.max() < 20, dict(zip(PATTERNS, off, strict=True))


@settings(max_examples=25)
@given(order=st.permutations(range(8)), seed=st.integers(0, 100))
def test_the_order_of_visits_hardly_matters(order, seed):
    calls = list(visits_of_epochs(16, 3, epochs=4, batch_size=8, seed=seed))
    audits = [LabelAudit(single(16, 3), num_classes=3) for _ in range(2)]
    for audit, some in zip(audits, [range(8), order], strict=True):
        for position in some:
            indices, logits, features = calls[position]
            audit.observe(indices, logits, features=features)
    for name in SCORES:
        within = 6 * STEP if name == "probability" else 1e-5
        np.testing.assert_allclose(audits[0].scores(name), audits[1].scores(name), atol=within)


@settings(max_examples=25)
@given(seed=st.integers(0, 100))
def test_a_permutation_of_samples_permutes_everything(seed):
    labels, permutation = several(16, 3), np.random.RandomState(seed).permutation(16)
    plain, moved = LabelAudit(labels, num_classes=3), LabelAudit(labels[np.argsort(permutation)], num_classes=3)
    for indices, logits, features in visits_of_epochs(16, 3, epochs=3, seed=seed):
        plain.observe(indices, logits, features=features)
        moved.observe(permutation[indices.numpy()], logits, features=features)
    for name in SCORES:
        assert np.array_equal(plain.scores(name), moved.scores(name)[permutation])


@settings(max_examples=25)
@given(cut=st.integers(0, 12), seed=st.integers(0, 100))
def test_resumed_is_unbroken_bit_for_bit(cut, seed):
    calls = list(visits_of_epochs(30, 4, epochs=6, seed=seed))
    unbroken, first = LabelAudit(single(30), num_classes=4), LabelAudit(single(30), num_classes=4)
    for indices, logits, features in calls:
        unbroken.observe(indices, logits, features=features)
    for indices, logits, features in calls[:cut]:
        first.observe(indices, logits, features=features)
    resumed = LabelAudit(single(30), num_classes=4)
    resumed.load_state_dict(first.state_dict())
    for indices, logits, features in calls[cut:]:
        resumed.observe(indices, logits, features=features)
    assert_equal_states(unbroken, resumed)


@settings(max_examples=25)
@given(owners=st.lists(st.integers(0, 2), min_size=12, max_size=12), seed=st.integers(0, 100))
def test_parts_merged_are_the_whole(owners, seed):
    labels = several(24, 3)
    whole, parts = LabelAudit(labels, num_classes=3), [LabelAudit(labels, num_classes=3) for _ in range(3)]
    for owner, (indices, logits, features) in zip(owners, visits_of_epochs(24, 3, epochs=6, seed=seed), strict=True):
        for audit in (whole, parts[owner]):
            audit.observe(indices, logits, features=features)
    merged = parts[0].merged(*parts[1:])
    assert np.array_equal(merged.visits, whole.visits)
    for name in SCORES:
        within = 6 * STEP if name == "probability" else 1e-5
        np.testing.assert_allclose(merged.scores(name), whole.scores(name), atol=within)


def test_merging_changes_none_and_goes_chunk_by_chunk(monkeypatch):
    parts = [LabelAudit(single(), num_classes=4) for _ in range(2)]
    for position, (indices, logits, _) in enumerate(visits_of_epochs(40, 4, epochs=4)):
        parts[position % 2].observe(indices, logits)
    before = [part.state_dict() for part in parts]
    at_once = parts[0].merged(parts[1])
    monkeypatch.setattr("deepbilevel.audit.observations._CHUNK", 28)
    assert_equal_states(at_once, parts[0].merged(parts[1]))
    for part, state in zip(parts, before, strict=True):
        assert all(
            torch.equal(torch.as_tensor(state[name]), torch.as_tensor(v)) for name, v in part.state_dict().items()
        )


def test_audits_of_other_labels_are_not_merged():
    with pytest.raises(ValueError, match="different labels"):
        LabelAudit([0, 1], num_classes=2).merged(LabelAudit([1, 1], num_classes=2))
    with pytest.raises(ValueError, match="different labels"):
        LabelAudit([0, 1], num_classes=2).merged(LabelAudit([0, 1], num_classes=3))


def test_a_sample_twice_in_a_call_is_visited_twice():
    logits = torch.randn(5, 3)
    at_once, one_by_one = (LabelAudit([0, 1, 2], num_classes=3) for _ in range(2))
    at_once.observe([2, 0, 2, 1, 2], logits)
    for index, row in zip([2, 0, 2, 1, 2], logits, strict=True):
        one_by_one.observe([index], row[None])
    assert at_once.visits.tolist() == [1, 1, 3]
    assert_equal_states(at_once, one_by_one)


def test_logits_that_are_not_finite_are_left_out_and_counted():
    labels = single(6, 3)
    audit, reference = LabelAudit(labels, num_classes=3), ReferenceAudit(labels)
    logits, features = torch.randn(6, 3), torch.randn(6, 4)
    for round_ in range(3):
        broken = logits.clone()
        broken[1, 2], broken[4, 0] = torch.nan, torch.inf
        if round_:
            broken[4] = logits[4]
        audit.observe(range(6), broken, features=features)
        reference.observe(range(6), broken, features)
    assert audit.visits.tolist() == [3, 0, 3, 3, 2, 3]
    for name in SCORES:
        np.testing.assert_allclose(audit.scores(name), reference.scores(name), atol=1e-4)
    issues = audit.issues()
    assert (issues.num_unvisited, issues.num_left_out) == (1, 4)


def test_huge_logits_do_not_overflow():
    audit = LabelAudit([0, 1], num_classes=2)
    for _ in range(3):
        audit.observe([0, 1], torch.tensor([[3e38, -3e38], [3e38, -3e38]]))
    assert np.isfinite(audit.scores("margin")).all()
    assert audit.scores("probability").tolist() == [1, 0]


def test_features_that_are_not_finite_only_miss_in_the_agreement():
    audit = LabelAudit([0, 1, 0], num_classes=2)
    features = torch.randn(3, 4)
    features[1, 2] = torch.nan
    audit.observe(range(3), torch.randn(3, 2), features=features)
    assert np.isnan(audit.scores("agreement")).tolist() == [False, True, False]
    assert np.isfinite(audit.scores("margin")).all()


def test_agreement_of_tiny_gradients_is_not_lost():
    labels, logits, features = [0, 1, 0, 1], torch.tensor([[18.0, 0], [0, 17], [16, 0], [0, 15]]), torch.rand(4, 6) + 1
    audit, reference = LabelAudit(labels, num_classes=2), ReferenceAudit(labels)
    audit.observe(range(4), logits - 10, features=features / 1000)
    reference.observe(range(4), logits - 10, features / 1000)
    np.testing.assert_allclose(audit.scores("agreement"), reference.scores("agreement"), atol=1e-3)


def test_a_sample_alone_agrees_with_nobody():
    audit = LabelAudit([0], num_classes=2)
    audit.observe([0], torch.randn(1, 2), features=torch.randn(1, 300))
    assert audit.scores("agreement").tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_logits_of_any_precision_also_under_autocast(dtype):
    logits, features = torch.randn(8, 4).to(dtype), torch.randn(8, 6).to(dtype)
    plain, inside = (LabelAudit(single(8), num_classes=4) for _ in range(2))
    plain.observe(range(8), logits.float(), features=features.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside.observe(range(8), logits.requires_grad_(), features=features)
    assert_equal_states(plain, inside)


def test_observing_leaves_the_graph_alone():
    logits = torch.randn(4, 3, requires_grad=True)
    doubled = logits * 2
    before = doubled.detach().clone()
    audit = LabelAudit(single(4, 3), num_classes=3)
    with torch.inference_mode():
        audit.observe(range(4), torch.randn(4, 3))
    audit.observe(range(4), doubled)
    doubled.sum().backward()
    assert torch.equal(doubled, before)
    assert torch.equal(logits.grad, torch.full((4, 3), 2.0))


REFUSED = {
    "too large": ({"indices": [0, 4], "logits": torch.zeros(2, 3)}, IndexError, r"0 \.\. 3, got 4"),
    "negative": ({"indices": [-1, 0], "logits": torch.zeros(2, 3)}, IndexError, r"got -1"),
    "fractions": ({"indices": [0.0, 1.0], "logits": torch.zeros(2, 3)}, TypeError, "whole numbers"),
    "a mask": ({"indices": [True, False], "logits": torch.zeros(2, 3)}, TypeError, "whole numbers"),
    "a matrix": ({"indices": [[0, 1]], "logits": torch.zeros(1, 3)}, TypeError, "shape"),
    "other number of rows": ({"indices": [0, 1], "logits": torch.zeros(3, 3)}, ValueError, "one row per index: 2"),
    "other number of classes": (
        {"indices": [0, 1], "logits": torch.zeros(2, 4)},
        ValueError,
        r"\[batch, 3\], got \(2, 4\)",
    ),
    "no matrix": ({"indices": [0, 1], "logits": torch.zeros(2)}, ValueError, r"\[batch, 3\]"),
    "no tensor": ({"indices": [0], "logits": [[0.0, 0.0, 0.0]]}, TypeError, "logits must be a tensor"),
    "features of others": (
        {"indices": [0, 1], "logits": torch.zeros(2, 3), "features": torch.zeros(3, 2)},
        ValueError,
        "features must have one row",
    ),
    "changed labels": (
        {"indices": [0, 1], "logits": torch.zeros(2, 3), "labels": [0, 2]},
        ValueError,
        "labels of sample 1 are 2, the audit was given 1",
    ),
    "labels of others": ({"indices": [0, 1], "logits": torch.zeros(2, 3), "labels": [0]}, ValueError, "one per index"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_changes_nothing(arguments, error, message):
    audit = LabelAudit([0, 1, 2, 0], num_classes=3)
    audit.observe(range(4), torch.randn(4, 3), labels=torch.tensor([0, 1, 2, 0]))
    before = audit.state_dict()
    with pytest.raises(error, match=message):
        audit.observe(**arguments)
    assert all(torch.equal(torch.as_tensor(before[name]), torch.as_tensor(v)) for name, v in audit.state_dict().items())


def test_labels_of_several_classes_are_checked_too():
    audit = LabelAudit([[0, 1], [1, 1]], num_classes=2)
    audit.observe([1], torch.randn(1, 2), labels=torch.tensor([[1.0, 1.0]]))
    with pytest.raises(ValueError, match=r"labels of sample 0"):
        audit.observe([0], torch.randn(1, 2), labels=torch.tensor([[1.0, 1.0]]))


def test_an_empty_mini_batch_is_no_visit():
    audit = LabelAudit([0, 1], num_classes=2)
    audit.observe([], torch.zeros(0, 2), features=torch.zeros(0, 3))
    assert audit.visits.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("labels", "classes", "error", "message"),
    [
        ([0, 3], 3, ValueError, "sample 1 has 3"),
        ([0, -1], 3, ValueError, "sample 1 has -1"),
        ([0.0, 1.0], 3, TypeError, "whole numbers"),
        ([], 3, ValueError, "one class per sample"),
        ([[0, 1]], 3, ValueError, "2 columns, num_classes is 3"),
        ([[0, 0.5]], 2, ValueError, "must be 0 or 1"),
        ([0, 0], 1, ValueError, "num_classes must be at least 2, got 1"),
        (["cat", "dog"], 2, TypeError, "replace names by class numbers"),
        ([0, 1], 0, ValueError, "num_classes must be at least 1"),
        (np.zeros((2, 2, 2)), 2, ValueError, "shape"),
    ],
)
def test_labels_that_make_no_sense(labels, classes, error, message):
    with pytest.raises(error, match=message):
        LabelAudit(labels, num_classes=classes)


@pytest.mark.parametrize(
    "labels", [torch.tensor([0, 1]), torch.tensor([[False, True], [True, True]]), np.array([0, 1])]
)
def test_labels_are_copied(labels):
    audit = LabelAudit(labels, num_classes=2)
    before = audit.labels
    labels[0] = 1
    assert np.array_equal(audit.labels, before)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
def test_whole_numbers_of_any_width_also_read_only(kind):
    labels, indices = np.array([0, 1, 2], dtype=kind), np.array([2, 0], dtype=kind)
    labels.flags.writeable = indices.flags.writeable = False
    audit = LabelAudit(labels, num_classes=3)
    audit.observe(indices, torch.zeros(2, 3), labels=labels[[2, 0]])
    assert audit.visits.tolist() == [1, 0, 1]


def test_a_state_of_something_else_changes_nothing():
    audit = LabelAudit([0, 1, 0], num_classes=2)
    audit.observe(range(3), torch.randn(3, 2))
    before = audit.state_dict()
    wrong = {
        "other labels": LabelAudit([1, 1, 0], num_classes=2).state_dict(),
        "build the audit|same labels": LabelAudit([0, 1, 0], num_classes=3).state_dict(),
        "same labels": LabelAudit([0, 1], num_classes=2).state_dict(),
        "must have the keys": {"visits": torch.zeros(3)},
        "needs torch.int32": {**before, "visits": "many"},
    }
    for message, state in wrong.items():
        with pytest.raises(ValueError, match=message):
            audit.load_state_dict(state)
    assert all(torch.equal(torch.as_tensor(before[name]), torch.as_tensor(v)) for name, v in audit.state_dict().items())


def test_a_state_is_a_copy():
    audit = LabelAudit([0, 1], num_classes=2)
    state = audit.state_dict()
    audit.observe([0], torch.randn(1, 2))
    assert state["visits"].tolist() == [0, 0]


@pytest.mark.parametrize(("labels", "per_sample"), [(single(100, 10), 2 * 10 + 96), (several(100, 10), 47 * 10 + 12)])
def test_memory_is_what_the_docstring_says(labels, per_sample):
    assert LabelAudit(labels, num_classes=10).nbytes == 100 * per_sample
