"""The table people read: its order, its gaps, and a file that harms nobody."""

import csv
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from deepbilevel.audit import Issue, LabelAudit

HEADER = ["index", "given_label", "predicted_label", "label_score", "is_label_issue", "p_wrong"]


def trained(num_samples=200, num_classes=4, rate=0.2, *, unvisited=(), seed=0):
    """Return an audit of a network that knows the truth, and which labels are wrong."""
    random = np.random.RandomState(seed)
    clean = random.randint(0, num_classes, num_samples)
    wrong = random.rand(num_samples) < rate
    labels = np.where(wrong, (clean + random.randint(1, num_classes, num_samples)) % num_classes, clean)
    audit = LabelAudit(labels, num_classes=num_classes)
    visited = np.setdiff1d(np.arange(num_samples), unvisited)
    for _ in range(5):
        logits = random.randn(num_samples, num_classes)
        logits[np.arange(num_samples), clean] += 4
        audit.observe(visited, torch.from_numpy(logits[visited]))
    return audit, clean, wrong


def trained_on_several(seed=0):
    random = np.random.RandomState(seed)
    clean = (random.rand(600, 3) < 0.3).astype(np.int64)
    wrong = random.rand(600, 3) < 0.15
    audit = LabelAudit(np.where(wrong, 1 - clean, clean), num_classes=3)
    for _ in range(5):
        audit.observe(range(600), torch.from_numpy(random.randn(600, 3) + 6 * clean - 3))
    return audit, clean, wrong


def test_wrong_labels_are_found_and_the_suggestion_is_the_truth():
    audit, clean, wrong = trained()
    issues = audit.issues()
    assert len(issues) == 200
    assert sorted(issues.index) == list(range(200))
    assert (issues.is_label_issue == wrong[issues.index]).mean() > 0.98
    assert (issues.predicted_label == clean[issues.index]).mean() > 0.98
    assert (issues.given_label == audit.labels[issues.index]).all()
    assert (np.diff(issues.p_wrong) <= 0).all()
    assert issues.noise_rate.low <= wrong.mean() <= issues.noise_rate.high
    assert (issues.class_index, issues.missing_rate) == (None, None)


@pytest.mark.parametrize("score", ["contrast", "probability", "margin", "hit_rate"])
def test_a_suggestion_differs_from_the_label_it_doubts(score):
    audit, _, wrong = trained()
    issues = audit.issues(score)
    flagged = issues.is_label_issue
    assert flagged[: wrong.sum() - 10].all()
    assert (issues.predicted_label[flagged] != issues.given_label[flagged]).all()
    assert np.array_equal(issues.label_score, audit.scores(score)[issues.index])


def test_of_several_labels_wrong_and_missing_ones_are_found():
    audit, clean, wrong = trained_on_several()
    issues = audit.issues()
    assert len(issues) == 1800
    cells = issues.index, issues.class_index
    assert (issues.is_label_issue == wrong[cells]).mean() > 0.98
    assert (issues.predicted_label == clean[cells]).mean() > 0.98
    labels = audit.labels
    for rate, value in ((issues.noise_rate, 1), (issues.missing_rate, 0)):
        assert abs(rate.estimate - wrong[labels == value].mean()) < 0.03


def test_of_several_labels_a_network_that_has_not_learned_says_nothing():
    random = np.random.RandomState(0)
    labels = (random.rand(60, 8) < 0.2).astype(int)
    audit = LabelAudit(labels, num_classes=8)
    leaning = torch.tensor([0.5, -0.5] * 4)  # of an untrained network, whatever it sees
    for _ in range(3):
        audit.observe(range(60), leaning + 0.05 * torch.randn(60, 8))
    issues = audit.issues()
    assert not issues.noise_rate.told_apart
    assert not issues.missing_rate.told_apart
    assert not issues.is_label_issue.any()


def test_samples_never_visited_are_a_stated_gap():
    audit, _, _ = trained(unvisited=[3, 77])
    issues = audit.issues()
    assert issues.num_unvisited == 2
    assert issues.index[-2:].tolist() == [3, 77]
    assert issues.predicted_label[-2:].tolist() == [-1, -1]
    assert not issues.is_label_issue[-2:].any()
    assert np.isnan(issues.p_wrong[-2:]).all()
    assert np.isnan(audit.pred_probs()[[3, 77]]).all()
    assert np.isfinite(issues.p_wrong[:-2]).all()


@pytest.mark.parametrize("labels", [[0, 1, 2], [[0, 1, 1], [1, 0, 0]]])
def test_an_audit_that_saw_nothing_says_so(labels):
    issues = LabelAudit(labels, num_classes=3).issues()
    assert issues.num_unvisited == len(labels)
    assert not issues.noise_rate.told_apart
    assert not issues.is_label_issue.any()


def test_where_nothing_can_be_told_apart_the_ranking_is_by_score():
    audit = LabelAudit(np.zeros(300, dtype=int), num_classes=2)
    audit.observe(range(300), torch.randn(300, 2))
    issues = audit.issues("margin")
    assert not issues.noise_rate.told_apart
    assert np.isnan(issues.p_wrong).all()
    assert (np.diff(issues.label_score) >= 0).all()


def test_an_unknown_score_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'margin'"):
        LabelAudit([0, 1], num_classes=2).issues("margins")


def test_rows_are_plain_values():
    issues = trained()[0].issues()
    rows = list(issues)
    assert rows[0] == Issue(*(column[0].item() for column in issues.columns.values()))
    assert len(rows) == len(issues)
    assert list(trained_on_several()[0].issues().columns) == [*HEADER, "class_index"]


def test_the_file_holds_the_table(tmp_path):
    issues = trained()[0].issues()
    issues.write_csv(tmp_path / "issues.csv")
    with (tmp_path / "issues.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == HEADER
    assert [int(row[0]) for row in rows] == issues.index.tolist()
    assert [float(row[5]) for row in rows] == issues.p_wrong.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["issues.csv"]


def test_names_from_strangers_are_no_formulas(tmp_path):
    issues = trained(unvisited=[0])[0].issues()
    names = ["=cmd|' /C calc'!A0", 'a,"b"\nc', "@SUM(1)", "\tcat"]
    paths = [f"-{index}.png" if index % 2 else f"caf\udce9/{index}.png" for index in range(200)]
    issues.write_csv(tmp_path / "issues.csv", class_names=names, paths=paths)
    with (tmp_path / "issues.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["index", "path", *HEADER[1:]]
    assert {row[2] for row in rows} == {"'" + names[0], names[1], "'" + names[2], "'" + names[3]}
    assert all(cell[:1] not in ("=", "+", "@", "\t", "-") for row in rows for cell in row[1:4])
    assert next(row[1] for row in rows if row[0] == "7") == "./-7.png"
    assert rows[-1][3] == ""  # never visited, so nothing is suggested


def test_of_several_labels_the_class_is_named(tmp_path):
    issues = trained_on_several()[0].issues()
    issues.write_csv(tmp_path / "issues.csv", class_names=["cat", "dog", "=owl"])
    with (tmp_path / "issues.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["class_index"] for row in rows} == {"cat", "dog", "'=owl"}
    assert {row["given_label"] for row in rows} == {"0", "1"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"class_names": ["cat", "dog"]}, "2 names"), ({"paths": ["a.png"]}, "1 entries")],
)
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, arguments, message):
    path = tmp_path / "issues.csv"
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        trained()[0].issues().write_csv(path, **arguments)
    assert path.read_text() == "old"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    with pytest.raises(OSError, match="folder"):
        trained()[0].issues().write_csv(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "issues.csv"]


def test_a_data_frame_where_pandas_is_there(monkeypatch):
    issues = trained()[0].issues()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    assert list(issues.to_pandas()) == HEADER
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        issues.to_pandas()


def test_few_samples_and_rare_classes_are_judged_with_the_others():
    random = np.random.RandomState(0)
    clean = np.r_[np.zeros(900, dtype=int), np.ones(90, dtype=int), np.full(4, 2)]
    labels = clean.copy()
    labels[[5, 905, 991]] = [1, 0, 0]
    labels[10:60] = 1
    audit = LabelAudit(labels, num_classes=4)  # of the last class there is none
    for _ in range(5):
        logits = random.randn(len(labels), 4)
        logits[np.arange(len(labels)), clean] += 5
        audit.observe(range(len(labels)), torch.from_numpy(logits))
    issues = audit.issues()
    assert sorted(issues.index[issues.is_label_issue]) == [5, *range(10, 60), 905, 991]
