"""Networks of timm, also where torchvision is missing or does not load; imported only where one is asked for.

timm's networks use torchvision for data pipelines and for a frozen BatchNorm they do not contain, but import it in the
first lines. Where it is missing, empty classes stand in for what is imported, only while timm is.
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torch import nn

from deepbilevel_lab.networks.named_code import HUB, TIMM

_INSTALL = "pip install timm, or without torchvision: pip install --no-deps timm, pip install huggingface_hub pyyaml"
_FILES = {"checkpoint_path", "cache_dir", "pretrained_cfg", "pretrained_cfg_overlay"}


def make_timm(name: str, num_classes: int, *, pretrained: bool, arguments: Mapping[str, Any]) -> nn.Module:
    """Make a network of timm; pretrained weights are fetched or found in the cache."""
    model_name = name.removeprefix(TIMM)
    files = [name] if ":" in model_name.removeprefix(HUB) else []  # local-dir:, however it is spelt
    files += [f"network.arguments.{each}" for each in sorted(_FILES & arguments.keys())]
    if files:
        raise ValueError(f"{files[0]} names files of this machine; give the weights with --weights FILE instead")
    timm = import_timm()
    try:
        return timm.create_model(model_name, pretrained=pretrained, num_classes=num_classes, **arguments)
    except Exception as error:  # timm and the hub raise what they trip over
        if not pretrained and not model_name.startswith(HUB):
            known = ", ".join(timm.list_models(f"*{model_name}*")[:5]) or "timm.list_models() shows all"
            raise ValueError(f"network {name}: {error}; near it: {known}") from error
        raise ValueError(
            f"network {name} could not be fetched: {str(error).splitlines()[0]}. Without a network bring its weights: "
            f"{_where(timm, model_name)}, and give the file with --weights instead of --pretrained"
        ) from error


def usual_side(name: str) -> int | None:
    """Return the side of the images that a network of timm was published with, if that is known."""
    config = import_timm().get_pretrained_cfg(name.removeprefix(TIMM), allow_unregistered=True)
    return None if config is None else config.input_size[-1]


def import_timm() -> Any:
    """Import timm, with or without torchvision."""
    if "timm" in sys.modules:
        return sys.modules["timm"]
    if importlib.util.find_spec("timm") is None:
        raise ImportError(f"networks of timm need timm; {_INSTALL}")
    try:
        importlib.import_module("torchvision")
        missing = False
    except Exception:  # a build for another torch raises RuntimeError
        missing = True
    if not missing:
        return importlib.import_module("timm")
    finder = _StandIns()
    _forget_torchvision()  # what a broken one has left behind
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)
        _forget_torchvision()  # nobody else shall believe that it is there


def _forget_torchvision() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


class _StandIns(MetaPathFinder, Loader):
    """Finds a module for every name below torchvision."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _StandIn(ModuleType):
    """Has a class of every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NamedMembers(name, (), {})


class _NamedMembers(type):
    """A class with a member of every name, as enumerations have."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def _where(timm: Any, model_name: str) -> str:
    if model_name.startswith(HUB):
        return f"https://huggingface.co/{model_name.removeprefix(HUB)} (model.safetensors)"
    config = timm.get_pretrained_cfg(model_name, allow_unregistered=True)
    if config is not None and config.hf_hub_id:
        tag = f"{config.architecture}.{config.tag}" if config.tag else config.architecture
        repository = config.hf_hub_id + (tag if config.hf_hub_id.endswith("/") else "")
        return f"https://huggingface.co/{repository} (model.safetensors)"
    return str(getattr(config, "url", "") or "its publisher's")
