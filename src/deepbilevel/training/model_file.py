"""A trained network as a file that says what it is: weights, classes and the run it comes from, without code."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from deepbilevel.networks.weights_file import fill_network
from deepbilevel.replacement import replacing
from deepbilevel.specs import canonical_json, from_plain
from deepbilevel.training.build import make_model
from deepbilevel.training.spec import RunSpec

_ENTRY = "deepbilevel"
_INSTALL = "trained networks need safetensors; run: pip install 'deepbilevel[cli]'"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network, ready to be used, the names of its classes, and the run that made it."""

    network: nn.Module
    class_names: tuple[str, ...]
    spec: RunSpec


def save_model(path: Path, model: nn.Module, class_names: tuple[str, ...], spec: RunSpec) -> None:
    """Write a trained network, whole or not at all."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    weights: dict[str, Tensor] = {name: each.detach().cpu().contiguous() for name, each in model.state_dict().items()}
    # One entry: safetensors writes several in random order, and the same network should be the same file.
    about = json.dumps({"spec": json.loads(canonical_json(spec)), "class_names": class_names})
    with replacing(path) as stream:
        stream.write(save(weights, {_ENTRY: about}))


def load_model(path: Path) -> TrainedModel:
    """Read what :func:`save_model` wrote; ``path`` may also be the folder of a finished run."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(_INSTALL) from error
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; is the run finished? `deepbilevel runs list` shows the runs")
    try:
        with safe_open(path, framework="pt") as file:
            entry = (file.metadata() or {}).get(_ENTRY)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or no safetensors file: {error}") from error
    if entry is None:
        raise ValueError(f"{path} was not written by deepbilevel: it does not say which network its weights belong to")
    about = json.loads(entry)
    spec, class_names = from_plain(RunSpec, about["spec"]), tuple(about["class_names"])
    network = make_model(replace(spec.network, weights=None), len(class_names))
    fill_network(network, weights, str(path))
    return TrainedModel(network.eval(), class_names, spec)
