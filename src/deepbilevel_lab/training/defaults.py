"""What a run is by default: the paper's recipe for its network, and the usual network for its data.

Images of one's own are looked at first (``own_data.py``). This module fills in every field, so that a spec says all
there is to say.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from deepbilevel.checks import choose
from deepbilevel_lab.data.catalog import find_entry
from deepbilevel_lab.data.survey import Survey
from deepbilevel_lab.data.table import ColumnsSpec
from deepbilevel_lab.networks.catalog import NETWORKS
from deepbilevel_lab.networks.named_code import TIMM, TRANSFORMERS, name_code
from deepbilevel_lab.networks.timm_networks import usual_side
from deepbilevel_lab.specs import from_plain
from deepbilevel_lab.training.optimizers import OptimizerSpec
from deepbilevel_lab.training.own_data import (
    FOR_TOKENS,
    REMEDY,
    REMEDY_REASON,
    Reasons,
    choose_schedule,
    choose_side,
    fit_groups,
    look_at,
    space_evaluations,
)
from deepbilevel_lab.training.schedules import Constant, Cosine, Exponential, Linear, Phases, Steps
from deepbilevel_lab.training.spec import Device, GroupSpec, RunSpec

_PUBLISHED_SIDE = 224
_MOST_THREADS = 4  # more hardly help networks of the size that is trained on a CPU


def _sgd(lr: float, weight_decay: float = 0.0) -> OptimizerSpec:
    arguments = {"momentum": 0.9, "weight_decay": weight_decay} if weight_decay else {"momentum": 0.9}
    return OptimizerSpec("SGD", lr, arguments)


_FOR_NETWORK: dict[str, dict[str, Any]] = {
    "digit_cnn": {"optimizer": _sgd(0.1), "schedule": Constant(), "epochs": 50},
    "cifarnet": {"optimizer": _sgd(0.01), "schedule": Exponential(), "epochs": 100},
    "inception": {"optimizer": _sgd(0.1, 5e-4), "schedule": Exponential(), "epochs": 100},
    "inception_half": {"optimizer": _sgd(0.1, 5e-4), "schedule": Exponential(), "epochs": 100},
    "inception_zhang": {"optimizer": _sgd(0.1, 5e-4), "schedule": Exponential(), "epochs": 100},
    "mlp": {"optimizer": _sgd(0.02), "schedule": Cosine(), "epochs": 50},
    "preact_resnet8": {"optimizer": _sgd(0.1, 5e-4), "schedule": Cosine(), "epochs": 100},
    "preact_resnet18": {"optimizer": _sgd(0.1, 1e-4), "schedule": Steps(), "epochs": 200},
    "alexnet": {"optimizer": _sgd(0.01), "schedule": Phases(), "epochs": 90},
    "resnet50": {
        "optimizer": _sgd(0.001, 1e-3),
        "schedule": Steps(at=(0.5,)),
        "epochs": 10,
        "group": GroupSpec(num_batches=4, batch_size=8),
    },
}
_FOR_DATA: dict[str, dict[str, Any]] = {
    "voc2007": {"schedule": Linear(), "epochs": 1000, "group": GroupSpec(num_batches=4, batch_size=16)},
}
_RECIPES = {
    "digit_cnn": "none",
    "cifarnet": "cifarnet",
    "inception": "inception",
    "inception_half": "inception",
    "inception_zhang": "inception-28",
    "mlp": "none",
    "preact_resnet8": "preact",
    "preact_resnet18": "preact",
    "alexnet": "imagenet",
    "resnet50": "imagenet",
    "small_resnet": "imagenet",
}


def default_spec(
    data: str, network: str | None = None, *, path: str | None = None, columns: ColumnsSpec | None = None
) -> RunSpec:
    """Return the run one gets by naming the data, and perhaps the network; of a table also what its columns are for.

    >>> default_spec("digits").network.name
    'digit_cnn'
    """
    spec, _ = explained_default(data, network, path=path, columns=columns)
    if spec.data.entry.own and spec.data.entry.holds == "images":
        spec = space_evaluations(spec)
    return fit_groups(spec, Path())[0] if spec.data.entry.own else spec


def explained_default(
    data: str, network: str | None = None, *, path: str | None = None, columns: ColumnsSpec | None = None
) -> tuple[RunSpec, Reasons]:
    """Return the same, and for images of one's own why it is so; groups are not fitted to them yet."""
    entry = find_entry(data)
    network = network or entry.network
    if ":" not in network:
        choose("network", network, NETWORKS)
    images: dict[str, Any] = {"name": data, "recipe": _recipe(data, network), "path": path if entry.own else None}
    if columns is not None:
        images["columns"] = columns
    if entry.holds != "images":
        images["recipe"] = "none"
    elif entry.image_shape is None:
        small = ":" not in network and NETWORKS[network].input_shape[1] <= 32
        images["view"] = "thumbnail" if small else ("random-area" if data == "voc2007" else "resized-crop")
    if entry.multi_label and images["view"] != "thumbnail":
        images["test_crops"] = 10
    settings = {**_FOR_NETWORK.get(network, {}), **_FOR_DATA.get(data, {})}
    chosen: dict[str, Any] = {"name": network, "code": name_code(network)}
    reasons: Reasons = {}
    takes_any_side = ":" in network or NETWORKS[network].sides is not None
    if takes_any_side and entry.holds == "images" and entry.image_shape is None:
        found = look_at(data, path or "") if entry.own else "they are published"
        chosen["side"], reasons["network.side"] = _side(network, found)
        if ":" not in network:
            reasons["network"] = f"{network}, {NETWORKS[network].description}"
        reasons["data.view"] = "a random box of 30 to 100 % of the image, maybe mirrored; in evaluation the middle"
        images |= {"view": "random-area", "recipe": "imagenet"}
        schedule = choose_schedule(found)
        settings |= schedule.settings
        reasons |= schedule.reasons
    elif takes_any_side and entry.image_shape is not None and entry.image_shape[0] == 3:
        chosen["side"] = entry.image_shape[1]
        settings |= choose_schedule("they are published").settings
    if entry.holds == "rows" and network.startswith(TRANSFORMERS):
        settings |= FOR_TOKENS.settings
        reasons |= FOR_TOKENS.reasons
    elif entry.own and (entry.holds != "images" or "side" in chosen):
        settings |= REMEDY
        reasons["mixing"] = REMEDY_REASON
    spec = from_plain(RunSpec, {"data": images, "network": chosen, **settings})
    return replace(spec, device=best_device(), threads=usual_threads()), reasons


def _side(network: str, found: Survey | str) -> tuple[int, str]:
    if network.startswith(TIMM) and (side := usual_side(network)) is not None:
        return side, f"{side} pixels, because that is what {network} was published with"
    if network.startswith(TRANSFORMERS):
        return _PUBLISHED_SIDE, f"{_PUBLISHED_SIDE} pixels, because most such networks were published with them"
    return choose_side(found)


def best_device() -> Device:
    """Return where training is fastest on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def usual_threads() -> int:
    """Return the threads of a run: half the cores, four at most.

    A thread that has to wait for a core holds up all the others: with as many threads as cores, whatever else the
    machine does can make a run ten times slower. Runs of one thread side by side use all cores best.
    """
    return max(1, min(_MOST_THREADS, (os.cpu_count() or 1) // 2))


def _recipe(data: str, network: str) -> str:
    if ":" in network:  # what its images are made for is not known: the usual augmentation of the data set
        recipe = {"digits": "none", "cifar10": "preact", "cifar100": "preact"}.get(data, "imagenet")
    else:
        recipe = _RECIPES[network]
    return "preact-cifar100" if data == "cifar100" and recipe == "preact" else recipe
