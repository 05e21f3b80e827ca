"""Where a run computes, and with which precision."""

import torch

from deepbilevel_lab.training.spec import RunSpec


def make_autocast(spec: RunSpec) -> torch.autocast | None:
    """Return what lowers the precision of forward passes, if the spec wants it lower."""
    if spec.precision == "float32":
        return None
    return torch.autocast(spec.device, dtype=getattr(torch, spec.precision))


def find_device(name: str) -> torch.device:
    """Return the device of that name, if this machine has it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available[name]:
        there = ", ".join(each for each, is_there in available.items() if is_there)
        raise ValueError(f"device {name!r} is not available on this machine; there is: {there}")
    return torch.device(name)
