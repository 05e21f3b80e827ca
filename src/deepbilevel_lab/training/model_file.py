"""A trained network as a file that says what it is: weights, classes and the run it comes from, without code."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deepbilevel_lab.data.encoding import TableEncoding
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.networks.mlp import Mlp
from deepbilevel_lab.networks.weights_file import fill_network
from deepbilevel_lab.replacement import replacing
from deepbilevel_lab.specs import canonical_json, from_plain, to_plain
from deepbilevel_lab.training.inputs import for_rows
from deepbilevel_lab.training.packing import ENTRY, from_bytes, to_bytes
from deepbilevel_lab.training.spec import RunSpec


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network, ready to be used, the names of its classes, the run that made it, and how rows are encoded for it."""

    network: nn.Module
    class_names: tuple[str, ...]
    spec: RunSpec
    encoding: TableEncoding | None = None


def save_model(
    path: Path, model: nn.Module, class_names: tuple[str, ...], spec: RunSpec, encoding: TableEncoding | None = None
) -> None:
    """Write a trained network, whole or not at all."""
    weights = {name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}
    about: dict[str, Any] = {"spec": json.loads(canonical_json(spec)), "class_names": class_names}
    if isinstance(model, Mlp):
        about["input_shape"] = list(model.input_shape)
    if encoding is not None:
        about["encoding"] = to_plain(encoding)
    content = to_bytes(weights, json.dumps(about))
    with replacing(path) as stream:
        stream.write(content)


def load_model(path: Path) -> TrainedModel:
    """Read what :func:`save_model` wrote; ``path`` may also be the folder of a finished run."""
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; is the run finished? `deepbilevel runs list` shows the runs")
    try:
        entries, weights = from_bytes(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if ENTRY not in entries:
        raise ValueError(f"{path} was not written by deepbilevel: it does not say which network its weights belong to")
    spec, class_names, encoding, input_shape = _read_about(entries[ENTRY], path, weights)
    untrained = replace(spec.network, weights=None, pretrained=False, freeze=False)
    network = make_model(for_rows(untrained, encoding), len(class_names), input_shape)
    fill_network(network, weights, str(path))
    # Their predictions would be NaN, and the first class would win.
    for name, each in network.state_dict().items():
        if each.is_floating_point() and not bool(each.isfinite().all()):
            raise ValueError(f"{path} holds weights that are not finite, in {name}; train it again, or fetch a copy")
    return TrainedModel(network.eval(), class_names, spec, encoding)


def _read_about(
    text: str, path: Path, weights: Mapping[str, Tensor]
) -> tuple[RunSpec, tuple[str, ...], TableEncoding | None, tuple[int, ...] | None]:
    """Return the run, the classes, and how rows are encoded, as a file tells of itself; a stranger may have written it.

    The last is the shape of an input, where the network was fitted to it.
    """
    try:
        about = json.loads(text)
        names = about["class_names"]
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("its class_names are not a list of names")
        encoding = from_plain(TableEncoding, about["encoding"]) if "encoding" in about else None
        spec = from_plain(RunSpec, about["spec"])
        if (encoding is None) == (spec.data.entry.holds == "rows"):
            raise ValueError("an encoding belongs to a table, and a table to an encoding")
        return spec, tuple(names), encoding, _read_shape(about.get("input_shape"), encoding, weights)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} does not say which network its weights belong to ({type(error).__name__}: {error}); fetch a copy, "
            "or train it again"
        ) from error


def _read_shape(shape: Any, encoding: TableEncoding | None, weights: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    if shape is None:
        return None
    if not isinstance(shape, list) or not shape or not all(type(side) is int and side > 0 for side in shape):
        raise ValueError("its input_shape is not a list of sizes")
    if math.prod(shape) > sum(each.numel() for each in weights.values()):  # before so much memory is asked for
        raise ValueError(f"its input_shape {shape} is larger than its weights")
    if encoding is not None and shape != [encoding.width]:
        raise ValueError(f"its encoding makes rows of {encoding.width} numbers, and its network takes {shape}")
    return tuple(shape)
