"""Refusing arguments that make no sense: every message names the argument, the value and the remedy."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


def choose(what: str, given: str, known: Collection[str]) -> str:
    """Return ``given`` if it is one of the known names; otherwise the error suggests the nearest one.

    >>> choose("data set", "cifar11", ["digits", "cifar10"])
    Traceback (most recent call last):
    ValueError: unknown data set 'cifar11'; did you mean 'cifar10'? There are: digits, cifar10
    """
    if given in known:
        return given
    if not known:
        raise ValueError(f"unknown {what} {given!r}; there is none")
    by_lower_case = {name.lower(): name for name in known}
    near = get_close_matches(str(given).lower(), by_lower_case, n=1, cutoff=0.4)
    hint = f"did you mean {by_lower_case[near[0]]!r}? " if near else ""
    raise ValueError(f"unknown {what} {given!r}; {hint}There are: {', '.join(known)}")


def check_number(name: str, value: float, least: float, most: float, *, remedy: str) -> float:
    """Return a number between ``least`` and ``most``, both included, as a float.

    >>> check_number("threshold", 1.5, 0, 1, remedy="the usual value is 0.5")
    Traceback (most recent call last):
    ValueError: threshold must lie in 0 .. 1, got 1.5; the usual value is 0.5
    """
    check_real(name, value)
    if not least <= value <= most:
        raise ValueError(f"{name} must lie in {least} .. {most}, got {value!r}; {remedy}")
    return float(value)


def check_real(name: str, value: float) -> None:
    """Refuse what is not a number; NaN and infinity are."""
    if isinstance(value, bool) or not isinstance(value, Real):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number, got {value!r}")


def check_flag(name: str, value: bool) -> bool:
    """Return a value that is true or false; numpy's own are not, and would not survive a JSON checkpoint."""
    if not isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def check_count(name: str, value: int, least: int, *, remedy: str) -> int:
    """Return a whole number that is at least ``least``, as Python's own int."""
    if isinstance(value, bool) or not isinstance(value, Integral):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}; {remedy}")
    return int(value)


def check_loss(loss: Tensor, device: torch.device) -> None:
    """Refuse what is not a loss of parameters on the device."""
    if not isinstance(loss, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"loss must be a tensor, got {type(loss).__name__}; pass what the criterion returned")
    if loss.numel() != 1:
        raise ValueError(
            f"loss must be a single number, got shape {tuple(loss.shape)}; reduce it first, as in loss.mean()"
        )
    if not loss.requires_grad:
        raise ValueError(
            "loss does not depend on any trainable parameter; was the forward pass run under no_grad(), "
            "was the loss detached, or are all parameters frozen?"
        )
    if loss.device != device:
        raise ValueError(
            f"loss is on {loss.device} but the parameters are on {device}; "
            f"move the model with .to({str(loss.device)!r}) or the inputs with .to({str(device)!r})"
        )


def check_gradients(gradients: Mapping[int, Any]) -> None:
    """Refuse a backward pass that left no gradient, or one that cannot be compared."""
    if not gradients:
        raise ValueError(
            "loss does not depend on any of the parameters given to this object; was it built for another model?"
        )
    if any(isinstance(each, Tensor) and each.layout is not torch.strided for each in gradients.values()):
        raise ValueError("a parameter has a sparse gradient; build its layer with sparse=False")


def check_alone() -> None:
    """Refuse to guess: several processes could share a group, average their groups, or have nothing in common."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise RuntimeError(
            f"torch.distributed runs {dist.get_world_size()} processes, but nothing says what they share; wrap the "
            "step and its sampler alike, as in deepbilevel.distributed.share(step, 'batches'), or take share(step, "
            "'nothing') where every process trains a model of its own"
        )
