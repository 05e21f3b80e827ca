"""The same random numbers for every forward pass of a group."""

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Generator[None]:
    """Let random numbers on the device follow from a seed; afterwards they go on as if nothing had been drawn."""
    accelerators = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(accelerators, device_type="cuda" if device.type == "cpu" else device.type):
        if accelerators:
            torch.manual_seed(seed)
        else:  # the CPU's alone: `torch.manual_seed` would reseed accelerators too, which are not put back
            torch.default_generator.manual_seed(seed)
        yield
