"""What the trainers of others share: a sampler for processes that start later, checks of loaders, numbers to log."""

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch import distributed as dist
from torch.utils.data import Sampler

from deepbilevel.contract import Report
from deepbilevel.distributed import share
from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep


class SharedLater(Sampler[list[int]]):
    """Groups that are dealt out to processes as soon as there are any: a trainer starts them after loaders are made.

    Args:
        groups: of all processes.
        spread: what they share.
    """

    def __init__(self, groups: MatchedGroups, spread: Literal["batches", "groups"]) -> None:
        self._all = groups
        self._spread: Literal["batches", "groups"] = spread
        self._shared: MatchedGroups | None = None

    @property
    def groups(self) -> MatchedGroups:
        """This process's part, or all groups as long as no process group exists."""
        if self._shared is None and dist.is_available() and dist.is_initialized():
            self._shared = share(self._all, self._spread)
        return self._shared or self._all

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)


def report_numbers(report: Report) -> dict[str, Tensor]:
    """Return what is worth a curve; as tensors, which nobody has waited for."""
    numbers = {
        "loss": report.losses.mean(),
        "weight_min": report.weights.min(),
        "weight_max": report.weights.max(),
        "skipped": (~report.finite).sum().float(),
    }
    for name in ("agreement", "shared"):  # with validation, and among mini-batches, by rules that know them
        if isinstance(value := getattr(report, name, None), Tensor):
            numbers[name] = value.mean()
    return {name: value.detach().to(torch.float32) for name, value in numbers.items()}


def check_loader(loader: Any, num_batches: float, step: GroupStep[Any], *, limit: str) -> None:
    """Refuse or warn of a loader whose groups are not those of the step.

    Args:
        loader: what the trainer reads from.
        num_batches: how many mini-batches an epoch takes from it.
        step: is fed.
        limit: the trainer's setting that decides on their number.
    """
    if num_batches != float("inf") and num_batches % step.num_expected:
        whole = num_batches // step.num_expected * step.num_expected or step.num_expected
        raise ValueError(
            f"an epoch has {num_batches} mini-batches, no multiple of the {step.num_expected} of a group, so that "
            f"groups would straddle epochs; set {limit} to a multiple, such as {whole}"
        )
    sampler = getattr(loader, "batch_sampler", None)
    groups = getattr(sampler, "groups", sampler)
    if isinstance(groups, MatchedGroups):
        if groups.num_batches != step.num_batches:
            raise ValueError(
                f"the loader has groups of num_batches={groups.num_batches}, the step of {step.num_batches}; give both "
                "the same number"
            )
    elif step.rule.matches:
        warnings.warn(
            f"rule {step.rule.kind} compares mini-batches with the same labels, but this {type(loader).__name__} has "
            "no MatchedGroups; take the loader of this integration",
            stacklevel=2,
        )
