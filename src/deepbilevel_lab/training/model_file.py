"""A trained network as a file that says what it is: weights, classes and the run it comes from, without code."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from deepbilevel_lab.networks.weights_file import fill_network
from deepbilevel_lab.replacement import replacing
from deepbilevel_lab.specs import canonical_json, from_plain
from deepbilevel_lab.training.build import make_model
from deepbilevel_lab.training.packing import ENTRY, from_bytes, to_bytes
from deepbilevel_lab.training.spec import RunSpec


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network, ready to be used, the names of its classes, and the run that made it."""

    network: nn.Module
    class_names: tuple[str, ...]
    spec: RunSpec


def save_model(path: Path, model: nn.Module, class_names: tuple[str, ...], spec: RunSpec) -> None:
    """Write a trained network, whole or not at all."""
    weights = {name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}
    about = json.dumps({"spec": json.loads(canonical_json(spec)), "class_names": class_names})
    content = to_bytes(weights, about)
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
    spec, class_names = _read_about(entries[ENTRY], path)
    network = make_model(replace(spec.network, weights=None), len(class_names))
    fill_network(network, weights, str(path))
    # Their predictions would be NaN, and the first class would win.
    for name, each in network.state_dict().items():
        if each.is_floating_point() and not bool(each.isfinite().all()):
            raise ValueError(f"{path} holds weights that are not finite, in {name}; train it again, or fetch a copy")
    return TrainedModel(network.eval(), class_names, spec)


def _read_about(text: str, path: Path) -> tuple[RunSpec, tuple[str, ...]]:
    """Return the run and the names of the classes that a file tells of itself; a stranger may have written it."""
    try:
        about = json.loads(text)
        names = about["class_names"]
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("its class_names are not a list of names")
        return from_plain(RunSpec, about["spec"]), tuple(names)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} does not say which network its weights belong to ({type(error).__name__}: {error}); fetch a copy, "
            "or train it again"
        ) from error
