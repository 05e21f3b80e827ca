"""``deepbilevel doctor``: whether this machine is ready, and what to do if it is not."""

import json
import os
import platform
import shutil
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Annotated

import typer

from deepbilevel_lab import __version__
from deepbilevel_lab.cli.messages import FAILED
from deepbilevel_lab.cli.tables import print_table

_INSTALL = "pip install 'deepbilevel[cli]'"
_NEEDED_TO_TRAIN = ("safetensors", "filelock")
_OTHERS = ("pillow", "scikit-learn", "vl-convert-python", "jinja2", "tensorboard", "tomli-w")
OPTIONAL_PACKAGES = (*_NEEDED_TO_TRAIN, *_OTHERS, *(("tomli",) if sys.version_info < (3, 11) else ()))
"""What comes with ``deepbilevel[cli]`` and may be missing."""


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="DEEPBILEVEL_DATA", help="The folder of data sets; data by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine: versions, devices, disk, data sets, and two training steps on synthetic data.

    Example: deepbilevel doctor --data-dir data
    """
    problems: list[str] = []
    facts = {
        "versions": _versions(problems),
        "machine": _machine(),
        "disk": _disk(Path.cwd(), problems),
        "data": _data_sets(data_dir, problems),
        "self test": _self_test(problems),
    }
    if as_json:
        typer.echo(json.dumps({"facts": facts, "problems": problems}))
    else:
        rows = [[key, value] for found in facts.values() for key, value in found.items()]
        print_table(["what", "found"], rows, caption="", numbers=())
        typer.echo("\n".join(f"problem: {problem}" for problem in problems) or "all well")
    if problems:
        raise typer.Exit(FAILED)


def _versions(problems: list[str]) -> dict[str, str]:
    versions = {"deepbilevel": __version__, "python": platform.python_version()}
    for package in ("torch", "numpy", *OPTIONAL_PACKAGES):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = f"missing; run: {_INSTALL}"
            if package in _NEEDED_TO_TRAIN:
                problems.append(f"{package} is missing, without which nothing can be trained; run: {_INSTALL}")
    return versions


def _machine() -> dict[str, str]:
    import torch

    from deepbilevel_lab.training.defaults import best_device, usual_threads

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "GPUs": ", ".join(gpus) or ("Apple GPU" if torch.backends.mps.is_available() else "none"),
        "a run trains on": best_device(),
        "cores": str(os.cpu_count()),
        "threads of a run": f"{usual_threads()} by default (--threads)",
    }


def _disk(folder: Path, problems: list[str]) -> dict[str, str]:
    from deepbilevel_lab.replacement import write_text

    free, writing, probe = shutil.disk_usage(folder).free / 1e9, "works", folder / f".deepbilevel-doctor-{os.getpid()}"
    if free < 1:
        problems.append(
            f"{folder} has {free:.1f} GB of free space, too little for checkpoints; free some, or use --out"
        )
    try:
        write_text(probe, "written by deepbilevel doctor; may be removed\n")
        probe.unlink()
    except OSError as error:
        problems.append(f"{folder} cannot be written to ({error}); go to another folder, or train with --out")
        writing = "fails"
    return {"free in this folder": f"{free:.1f} GB", "writing to it": writing}


def _data_sets(data_dir: Path | None, problems: list[str]) -> dict[str, str]:
    from deepbilevel_lab.data import DATA_SETS

    directory = data_dir or Path("data")
    found = {"looked in": str(directory.absolute())}
    try:
        if data_dir is not None and not data_dir.is_dir():
            problems.append(f"the data folder {data_dir} does not exist; make it, or correct --data-dir")
        for entry in DATA_SETS.values():
            entry.is_in(directory)
    except OSError as error:  # a name that is too long, a folder of somebody else
        problems.append(f"the data folder {directory} cannot be looked into ({error.strerror}); correct --data-dir")
        return found
    for name, entry in DATA_SETS.items():
        if not entry.own:
            is_there = entry.is_in(directory) and (name != "digits" or util.find_spec("sklearn") is not None)
            fetch = f"; fetch it: {entry.remedy.format(dir=directory)}" if entry.release else ""
            found[name] = "there" if is_there else f"not there{fetch}"
    return found


def _self_test(problems: list[str]) -> dict[str, str]:
    from deepbilevel_lab.training.defaults import best_device

    device = best_device()
    try:
        _train_two_steps(device)
    except Exception as error:  # a failure of any kind is what this is here to find
        reason = f"{type(error).__name__}: {error}"
        problems.append(f"training two steps on {device} failed ({reason}); reinstall torch: https://pytorch.org")
        return {f"two steps on {device}": "fails"}
    return {f"two steps on {device}": "works"}


def _train_two_steps(device: str) -> None:
    """Train where a run would, and raise if the parameters are not finite or stay as they were."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils import parameters_to_vector

    from deepbilevel import Bilevel
    from deepbilevel_lab.networks import build_network

    network = build_network("digit_cnn", num_classes=2).to(device)
    before = parameters_to_vector(network.parameters()).detach()
    bilevel = Bilevel(network, num_batches=3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    labels = torch.arange(8, device=device) % 2
    for _ in range(2):
        for _ in range(3):
            bilevel.backward(cross_entropy(network(torch.rand(8, 1, 8, 8, device=device)), labels))
        bilevel.fill()
        optimizer.step()
    after = parameters_to_vector(network.parameters())
    if not torch.isfinite(after).all():
        raise RuntimeError("the parameters are not finite")
    if torch.equal(before, after):
        raise RuntimeError("nothing was learned")
