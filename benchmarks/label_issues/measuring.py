"""Rankings of labels, how they are measured, and the tables of what is committed."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.label_issues.training import Task, Way, accuracy, fit, probabilities
from deepbilevel.audit import Issues, LabelAudit
from deepbilevel_lab.data import ImagesInMemory, find_recipe, load_data
from deepbilevel_lab.noise import flip_uniformly

WAYS: Sequence[Way] = ("sgd", "elr", "cross-validated")
SCORES = ("contrast", "probability", "margin", "hit_rate", "agreement")
FOLDS = 5
RESULTS = Path(__file__).parents[2] / "results" / "label-issues"
_IMAGES = 5_000
_REPORTED: Mapping[str, str] = {
    "cleanlab": "cleanlab, 5-fold (five runs)",
    "elr contrast": "audit under ELR",
    "cross-validated contrast": "audit under the cross-validated gradient",
    "sgd contrast": "audit under SGD",
    "sgd agreement": "agreement of gradients, SGD",
    "sgd margin": "margin (AUM), SGD",
    "sgd hit_rate": "wrong predictions counted, SGD",
    "sgd loss": "loss at the last epoch, SGD",
}
_RETRAINED: Mapping[str, str] = {
    "as given": "all labels as given",
    "sgd dropped": "audit under SGD: the most suspicious dropped",
    "sgd corrected": "audit under SGD: the most suspicious corrected",
    "elr dropped": "audit under ELR: dropped",
    "elr corrected": "audit under ELR: corrected",
    "cleanlab dropped": "cleanlab: dropped",
}


@dataclass(frozen=True)
class Setting:
    """A data set whose wrong labels are known: uniform ones by rate, or a label set of CIFAR-10N by name."""

    data: str
    noise: float | str


SETTINGS: Mapping[str, Setting] = {
    "digits-uniform20": Setting("digits", 0.2),
    "cifar10-worst": Setting("cifar10", "worst"),
    "cifar10-uniform40": Setting("cifar10", 0.4),
    "cifar10-aggre": Setting("cifar10", "aggre"),
    "cifar10-uniform20": Setting("cifar10", 0.2),
}


def load(setting: Setting, seed: int) -> tuple[Task, Tensor, Tensor]:
    """Return the images of a setting, their labels as given, and the right ones."""
    directory = os.environ.get("DEEPBILEVEL_DATA", "data")
    named = setting.noise if isinstance(setting.noise, str) else None
    train, test = load_data(setting.data, directory, labels=named), load_data(setting.data, directory, "test")
    assert isinstance(train, ImagesInMemory)
    assert isinstance(test, ImagesInMemory)
    small = setting.data == "digits"
    recipe = find_recipe("none" if small else "cifarnet")
    some = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[:_IMAGES]
    given, truth = train.labels[some], (train.labels if train.clean_labels is None else train.clean_labels)[some]
    if not isinstance(setting.noise, str):
        noisy = flip_uniformly(truth.numpy(), setting.noise, num_classes=train.num_classes, seed=seed)
        given = torch.from_numpy(noisy.labels)
    task = Task(
        network="digit_cnn" if small else "cifarnet",
        images=recipe.apply("test", train.images[some]),
        test_images=recipe.apply("test", test.images[:_IMAGES]),
        test_labels=test.labels[:_IMAGES],
        num_classes=train.num_classes,
        lr=0.1 if small else 0.015,
        epochs=30 if small else 20,
    )
    return task, given, truth


def measure(suspicion: npt.NDArray[np.float64], wrong: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return how well a ranking finds wrong labels; ``missed`` when as many are flagged as there are wrong ones."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return {
        "auroc": float(roc_auc_score(wrong, suspicion)),
        "average_precision": float(average_precision_score(wrong, suspicion)),
        "missed": float(1 - wrong[_worst(suspicion, wrong)].mean()),
    }


def run(setting: Setting, seed: int, ways: Sequence[Way] = WAYS) -> dict[str, object]:
    """Rank the labels of a setting in these ways, then train plain SGD without as many as are wrong, and corrected."""
    task, given, truth = load(setting, seed)
    wrong = (given != truth).numpy()
    rankings: dict[str, dict[str, float]] = {}
    accuracies: dict[str, float] = {}
    flagged: dict[str, dict[str, float | None]] = {}
    for way in ways:
        trained = fit(task, given, seed=seed, way=way)
        for score in SCORES:
            rankings[f"{way} {score}"] = measure(_suspicion(trained.audit, score), wrong)
        rankings[f"{way} loss"] = measure(trained.losses.nan_to_num(0).double().numpy(), wrong)
        issues = trained.audit.issues()
        flagged[way] = _flagged(issues, wrong)
        if way == "sgd":
            accuracies["as given"] = accuracy(trained.network, task)
        if way == "cross-validated":
            continue
        worst = _worst(_suspicion(trained.audit, "contrast"), wrong)
        corrected = given.clone()
        corrected[worst] = torch.from_numpy(_others(trained.audit, given)[worst])
        accuracies[f"{way} dropped"] = accuracy(fit(task, given, seed=seed, rows=_rest(worst, given)).network, task)
        accuracies[f"{way} corrected"] = accuracy(fit(task, corrected, seed=seed).network, task)
    suspicion, is_issue = _cleanlab(task, given, seed)
    rankings["cleanlab"] = measure(suspicion, wrong)
    flagged["cleanlab"] = {"share": float(is_issue.mean()), "right": float(wrong[is_issue].mean())}
    rest = _rest(_worst(suspicion, wrong), given)
    accuracies["cleanlab dropped"] = accuracy(fit(task, given, seed=seed, rows=rest).network, task)
    return {"wrong": float(wrong.mean()), "rankings": rankings, "flagged": flagged, "accuracies": accuracies}


def _worst(suspicion: npt.NDArray[np.float64], wrong: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the most suspicious labels, as many as are wrong."""
    return np.argsort(-suspicion, kind="stable")[: wrong.sum()]


def _rest(dropped: npt.NDArray[np.int64], given: Tensor) -> Tensor:
    return torch.from_numpy(np.setdiff1d(np.arange(len(given)), dropped))


def _others(audit: LabelAudit, given: Tensor) -> npt.NDArray[np.int64]:
    """Return for every sample the class with the highest mean probability among those that it was not given."""
    likely = np.nan_to_num(audit.pred_probs())
    likely[np.arange(len(given)), given.numpy()] = -1
    return likely.argmax(axis=1)


def _suspicion(audit: LabelAudit, score: str) -> npt.NDArray[np.float64]:
    return -np.nan_to_num(audit.scores(score))  # pyright: ignore[reportArgumentType]


def _flagged(issues: Issues, wrong: npt.NDArray[np.bool_]) -> dict[str, float | None]:
    chosen = issues.index[issues.is_label_issue]
    right = float(wrong[chosen].mean()) if len(chosen) else None
    rate = issues.noise_rate.estimate if issues.noise_rate.told_apart else None
    return {"share": len(chosen) / len(wrong), "right": right, "noise_rate": rate}


def _cleanlab(task: Task, given: Tensor, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return how suspicious cleanlab finds each label, and whether it flags it, by cross-validated probabilities."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.model_selection import StratifiedKFold

    predicted = np.zeros((len(given), task.num_classes))
    for rows, held_out in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(given, given):
        trained = fit(task, given, seed=seed, rows=torch.from_numpy(rows))
        predicted[held_out] = probabilities(trained.network, task.images[held_out]).double().numpy()
    predicted /= predicted.sum(axis=1, keepdims=True)
    quality = get_label_quality_scores(given.numpy(), predicted)
    return -np.asarray(quality), np.asarray(find_label_issues(given.numpy(), predicted))


def tables() -> str:
    """Return the committed records as Markdown."""
    records = {name: _records(name) for name in SETTINGS}
    records = {name: each for name, each in records.items() if each}
    head = [f"{name} ({100 * mean(each['wrong'] for each in found):.0f} % wrong)" for name, found in records.items()]
    lines = [f"| AUROC / average precision / missed | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for key, words in _REPORTED.items():
        lines.append(f"| {words} | {' | '.join(_ranking(found, key) for found in records.values())} |")
    lines += ["", f"| test accuracy of plain SGD | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for key, words in _RETRAINED.items():
        entries = [_spread([each["accuracies"].get(key) for each in found], 1) for found in records.values()]
        lines.append(f"| {words} | {' | '.join(entries)} |")
    return "\n".join(lines)


def _records(name: str) -> list[dict[str, dict[str, dict[str, float]]]]:
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{name}-seed*.json"))]


def _ranking(found: Sequence[Mapping[str, Mapping[str, Mapping[str, float]]]], key: str) -> str:
    measured = [each["rankings"].get(key) for each in found]
    auroc, precision, missed = (
        [None if each is None else each[name] for each in measured] for name in ("auroc", "average_precision", "missed")
    )
    if not any(measured):
        return "-"
    return f"{_spread(auroc, 3)} / {_mean(precision):.3f} / {100 * _mean(missed):.0f} %"


def _mean(values: Sequence[float | None]) -> float:
    return mean(value for value in values if value is not None)


def _spread(values: Sequence[float | None], digits: int) -> str:
    """Return mean and deviation over seeds, and how many seeds if some lack the figure."""
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    deviation = f" ± {stdev(there):.{digits}f}" if len(there) > 1 else ""
    fewer = "" if len(there) == len(values) else f" ({len(there)} of {len(values)} seeds)"
    return f"{_mean(there):.{digits}f}{deviation}{fewer}"
