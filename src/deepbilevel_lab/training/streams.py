"""The random numbers of a process, saved and restored as plain values: Python's, numpy's, torch's and its devices'."""

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_streams(seed: int) -> None:
    """Start all streams from a seed."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # of all devices


@contextmanager
def seeded_apart(seed: int, device: torch.device) -> Generator[None]:
    """Draw torch's random numbers from a seed; afterwards they go on as if nothing had been drawn."""
    accelerators = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(accelerators, device_type="cuda" if device.type == "cpu" else device.type):
        torch.manual_seed(seed)
        yield


def save_streams() -> dict[str, Any]:
    """Return where all streams stand."""
    numpy_state: dict[str, Any] = dict(np.random.get_state(legacy=False))  # pyright: ignore[reportArgumentType, reportCallIssue]
    numpy_state["state"] = {"key": numpy_state["state"]["key"].tolist(), "pos": int(numpy_state["state"]["pos"])}
    state: dict[str, Any] = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore_streams(state: Mapping[str, Any]) -> None:
    """Let all streams go on from where :func:`save_streams` found them; those of absent devices are passed over."""
    random.setstate(state["python"])
    numpy_state = dict(state["numpy"])
    key = np.array(numpy_state["state"]["key"], dtype=np.uint32)
    numpy_state["state"] = {"key": key, "pos": numpy_state["state"]["pos"]}
    np.random.set_state(numpy_state)
    torch.set_rng_state(state["torch"])
    devices: list[Tensor] = state.get("cuda", [])
    if torch.cuda.is_available() and len(devices) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(devices)
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
