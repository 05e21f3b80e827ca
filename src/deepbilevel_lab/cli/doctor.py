"""``deepbilevel doctor``: whether this machine is ready, and what to do if it is not."""

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from deepbilevel_lab.cli.messages import FAILED

_INSTALL = "pip install 'deepbilevel[cli]'"
_LEAST_FREE_GB = 1.0
_IMPORT_SECONDS = 120

OPTIONAL_PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "safetensors": "trained networks",
        "filelock": "one process per run",
        "pillow": "image files",
        "scikit-learn": "the digits, and average precision",
        "vl-convert-python": "pictures",
        "jinja2": "reports",
        "tensorboard": "TensorBoard",
        "tomli-w": "specs as TOML",
        **({"tomli": "specs as TOML"} if sys.version_info < (3, 11) else {}),
    }
)
"""What comes with ``deepbilevel[cli]`` and may be missing, and what it is for."""

NEEDED_TO_TRAIN = ("safetensors", "filelock")


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="DEEPBILEVEL_DATA", help="Where data sets stand; the folder data unless told."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at this machine: versions, devices, disk and data sets, and train two steps on made data.

    Example: deepbilevel doctor --data-dir data
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    problems: list[str] = []
    with Console(stderr=True).status("looking") as status:
        facts: dict[str, Any] = {}
        checks: dict[str, Callable[[list[str]], dict[str, str]]] = {
            "versions": _versions,
            "machine": _machine,
            "disk": _disk,
            "data": lambda problems: _data_sets(data_dir, problems),
            "torchvision": _torchvision,
            "self test": _self_test,
        }
        for name, check in checks.items():
            status.update(f"looking: {name}")
            facts[name] = check(problems)
    if as_json:
        typer.echo(json.dumps({"facts": facts, "problems": problems}))
    else:
        table = Table("", "what", "found")
        for name, found in facts.items():
            for number, (key, value) in enumerate(found.items()):
                table.add_row("" if number else name, key, escape(value))
            table.add_section()
        Console().print(table)
        if not problems:
            typer.echo("all well")
        for problem in problems:
            typer.echo(f"problem: {problem}")
    if problems:
        raise typer.Exit(FAILED)


def _versions(problems: list[str]) -> dict[str, str]:
    import numpy as np
    import torch

    from deepbilevel_lab import __version__

    versions = {
        "deepbilevel": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    for package, purpose in OPTIONAL_PACKAGES.items():
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = f"missing ({purpose}); run: {_INSTALL}"
            if package in NEEDED_TO_TRAIN:
                problems.append(f"{package} is missing, without which nothing can be trained; run: {_INSTALL}")
    return versions


def _machine(problems: list[str]) -> dict[str, str]:
    import torch

    from deepbilevel_lab.training.defaults import best_device, usual_threads

    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append("Apple GPU")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "GPUs": ", ".join(devices) or "none",
        "a run trains on": best_device(),
        "cores": str(os.cpu_count()),
        "threads of a run": f"{usual_threads()} unless told (--threads)",
    }


def _disk(problems: list[str]) -> dict[str, str]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free / 1e9
    if free < _LEAST_FREE_GB:
        problems.append(f"{here} has {free:.1f} GB of free space, too little for checkpoints; free some, or use --out")
    return {"free in this folder": f"{free:.1f} GB", "writing to it": _write_test(here, problems)}


def _write_test(folder: Path, problems: list[str]) -> str:
    from deepbilevel_lab.replacement import write_text

    probe = folder / f".deepbilevel-doctor-{os.getpid()}"
    try:
        write_text(probe, "written by deepbilevel doctor; may be removed\n")
        probe.unlink()
    except OSError as error:
        problems.append(f"{folder} cannot be written to ({error}); go to another folder, or train with --out")
        return "fails"
    return "works"


def _data_sets(data_dir: Path | None, problems: list[str]) -> dict[str, str]:
    from deepbilevel_lab.data import DATA_SETS
    from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100

    if data_dir is not None and not data_dir.is_dir():
        problems.append(f"the data folder {data_dir} does not exist; make it, or correct --data-dir")
    directory = data_dir or Path("data")
    signs = {
        "digits": importlib.util.find_spec("sklearn") is not None,
        "cifar10": _holds(directory, f"{CIFAR10.folder}/{CIFAR10.meta_file}", CIFAR10.meta_file),
        "cifar100": _holds(directory, f"{CIFAR100.folder}/{CIFAR100.meta_file}", CIFAR100.meta_file),
        "voc2007": _holds(directory, *(f"{root}ImageSets/Main" for root in ("VOCdevkit/VOC2007/", "VOC2007/", ""))),
        "imagenet": _holds(directory, "train") and _holds(directory, "val"),
        "clothing1m": _holds(directory, "clean_test_key_list.txt"),
    }
    found = {"looked in": str(directory.absolute())}
    for name, is_there in signs.items():
        fetch = f"; fetch it: deepbilevel data fetch {name} --dir {directory}" if DATA_SETS[name].release else ""
        found[name] = "there" if is_there else f"not there{fetch}"
    return found


def _holds(directory: Path, *names: str) -> bool:
    return any((directory / name).exists() for name in names)


def _torchvision(problems: list[str]) -> dict[str, str]:
    if importlib.util.find_spec("torchvision") is None:
        return {"torchvision": "not installed, not needed"}
    # In a process of its own: built for another torch it can take everything down with it.
    command = [sys.executable, "-c", "import torchvision"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False)
        error = (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else None
    except subprocess.TimeoutExpired:
        error = f"importing it takes more than {_IMPORT_SECONDS} s"
    if error is None:
        return {"torchvision": "works, not needed"}
    problems.append(
        f"torchvision is installed but broken ({error}), which breaks other packages that look for it; it is not "
        "needed here: pip uninstall torchvision, or install the one that belongs to your torch"
    )
    return {"torchvision": "broken"}


def _self_test(problems: list[str]) -> dict[str, str]:
    """Train two steps where a run would; a failure of any kind is what this is here to find."""
    from deepbilevel_lab.training.defaults import best_device

    device = best_device()
    try:
        trained = _train_two_steps(device)
    except Exception as error:
        trained = f"{type(error).__name__}: {error}"
    if trained:
        problems.append(f"training two steps on {device} failed ({trained}); reinstall torch: https://pytorch.org")
    return {f"two steps on {device}": "fails" if trained else "works"}


def _train_two_steps(device: str) -> str:
    """Return what went wrong, or nothing."""
    import torch
    from torch.nn import functional as F

    from deepbilevel import Bilevel
    from deepbilevel_lab.networks.catalog import build_network

    random = torch.Generator().manual_seed(0)
    network = build_network("digit_cnn", num_classes=2).to(device)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    bilevel = Bilevel(network, num_batches=3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):
        for _ in range(3):
            images = torch.rand(8, 1, 8, 8, generator=random).to(device)
            labels = torch.randint(2, (8,), generator=random).to(device)
            bilevel.backward(F.cross_entropy(network(images), labels))
        bilevel.fill()
        optimizer.step()
    after = list(network.parameters())
    if not all(bool(torch.isfinite(parameter).all()) for parameter in after):
        return "the parameters are not finite"
    return "" if any(not torch.equal(*pair) for pair in zip(before, after, strict=True)) else "nothing was learned"
