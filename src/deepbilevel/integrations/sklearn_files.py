"""Trained classifiers as files: tensors by safetensors, the rest as JSON in its header. Reading one runs no code."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from deepbilevel.contract import Rule
from deepbilevel.rules.catalog import RULES

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file
except ImportError as error:
    raise ImportError(f"{error}; run: pip install 'deepbilevel[sklearn]'") from error

if TYPE_CHECKING:
    from deepbilevel.integrations.sklearn import NoisyLabelClassifier

_FORMAT = "deepbilevel classifier 1"
_SETTINGS = ("hidden_sizes", "num_batches", "batch_size", "epochs", "learning_rate", "weight_decay", "device")


def write_classifier(classifier: "NoisyLabelClassifier", path: str | PathLike[str]) -> None:
    """Write a trained classifier; a file that is there is replaced at the end, or stays."""
    classes = classifier.classes_
    # pandas gives strings as objects.
    if classes.dtype.kind not in "biufU" and not all(isinstance(each, str) for each in classes.tolist()):
        raise ValueError(f"classes of type {classes.dtype} cannot be saved; train with numbers or strings as labels")
    rule = classifier.rule
    header = {
        "rule": {"kind": rule.kind, **dataclasses.asdict(rule)} if isinstance(rule, Rule) else rule,
        "own_network": classifier.network is not None,
        "settings": {name: _plain(getattr(classifier, name)) for name in _SETTINGS},
        "random_state": _plain(classifier.random_state),
        "classes": {"dtype": classes.dtype.str, "values": classes.tolist()},
        "features": getattr(classifier, "feature_names_in_", np.array([])).tolist(),
        "group_shape": list(classifier.group_shape_),
    }
    tensors: dict[str, Tensor] = {
        f"network.{name}": each.contiguous().clone() for name, each in classifier.network_.state_dict().items()
    }
    tensors |= {"mean": torch.from_numpy(classifier.mean_), "scale": torch.from_numpy(classifier.scale_)}
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.unfinished-{os.getpid()}")
    try:
        save_file(tensors, unfinished, {"format": _FORMAT, "classifier": json.dumps(header)})
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_classifier(
    kind: "type[NoisyLabelClassifier]",
    path: str | PathLike[str],
    network: Callable[[int, int], nn.Module] | None,
    rule: str | Rule[Any] | None,
) -> "NoisyLabelClassifier":
    """Read a trained classifier; refuse what is none."""
    try:
        with safe_open(path, "pt") as file:
            described = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except SafetensorError as error:
        raise ValueError(f"{path} is no file of NoisyLabelClassifier.save: {error}") from error
    if described.get("format") != _FORMAT:
        raise ValueError(f"{path} is no file of NoisyLabelClassifier.save: its format is {described.get('format')!r}")
    try:
        header = json.loads(described["classifier"])
        if header["own_network"] != (network is not None):
            trained, remedy = ("with", "pass it as network=...") if network is None else ("without", "leave it out")
            raise ValueError(f"it was trained {trained} a network of one's own; {remedy}")
        made = kind(
            _read_rule(header["rule"]) if rule is None else rule,
            network,
            random_state=header["random_state"],
            **{name: header["settings"][name] for name in _SETTINGS},
        )
        _learn(made, header, tensors)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    return made


def _read_rule(saved: str | Mapping[str, Any]) -> str | Rule[Any]:
    name = saved if isinstance(saved, str) else saved["kind"]
    if name not in RULES:  # importing what a file names would run code
        raise ValueError(f"it was trained by {name!r}, a rule of one's own; pass it as rule=...")
    return name if isinstance(saved, str) else RULES[name](**{key: v for key, v in saved.items() if key != "kind"})


def _learn(made: "NoisyLabelClassifier", header: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
    """Give a classifier what another one has learned."""
    values, dtype = header["classes"]["values"], np.dtype(header["classes"]["dtype"])
    classes = np.array(values)
    if classes.ndim != 1 or classes.dtype.kind not in "biufU":
        raise ValueError("its classes are no list of numbers or strings")
    if classes.dtype.kind == "U":
        made.classes_ = np.array(values, dtype=object) if dtype.kind == "O" else classes
    else:
        made.classes_ = classes.astype(dtype)
    made.mean_, made.scale_ = tensors.pop("mean").numpy(), tensors.pop("scale").numpy()
    if made.mean_.ndim != 1 or made.mean_.shape != made.scale_.shape:
        raise ValueError("its features have means and scales of different shapes")
    made.n_features_in_ = len(made.mean_)
    if header["features"]:
        made.feature_names_in_ = np.array(header["features"], dtype=object)
    made.group_shape_ = cast(tuple[int, int], tuple(header["group_shape"]))
    with torch.device("meta"):  # so that no number in a file can ask for memory
        network = made.make_network(made.n_features_in_)
    network.load_state_dict({name.removeprefix("network."): each for name, each in tensors.items()}, assign=True)
    made.network_ = network.double().eval()


def _plain(value: Any) -> Any:
    """Return a setting as JSON knows it; what it does not know, such as a generator of random numbers, is left out."""
    if isinstance(value, tuple | list | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, bool | int | float | str) else None
