"""How a group is collected and shared, where there is nobody to share with. Those who share override what they must.

Rules talk to this interface alone, so they do not know how many processes there are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from deepbilevel.gradients import AnyGradients, Gradients

Blank = Callable[[Tensor], Tensor]
"""Makes the zeros that stand for a sum to which no own mini-batch contributed, from its parameter."""


def wide_zeros(parameter: Tensor) -> Tensor:
    """Return zeros of the parameter's shape, of float32 at the least."""
    return torch.zeros_like(parameter, dtype=torch.promote_types(parameter.dtype, torch.float32))


class WholeGroup:
    """A group that one process collects: nothing is exchanged, and what a rule has is what there is."""

    is_whole = True
    """Whether all mini-batches of a group are this process's."""
    is_alone = True
    """Whether there is no other process at all."""

    def num_own(self, num_batches: int) -> int:
        """Return how many of a group's mini-batches are this process's."""
        return num_batches

    def place(self, num_collected: int) -> int:
        """Return the place in the group of this process's mini-batch that comes after ``num_collected`` others."""
        return num_collected

    def check(self, num_batches: int, refused: str | None = None) -> None:
        """Refuse too few mini-batches for all processes, and what must see all gradients in one place (``refused``)."""

    def check_shards(self, refused: str | None = None, *, rows: str | None = None) -> None:
        """Refuse what needs whole parameters (``refused``) or whole rows of them (``rows``), where these are cut."""

    def check_equality(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Refuse, once, to start from different numbers: steps alike would keep them different for ever."""

    def collect_statistics(self) -> None:
        """Note what the last forward pass did to the running statistics."""

    def forget(self) -> None:
        """Drop a half-collected group; all processes must do so, at the same place."""

    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the number that the first process has."""
        return number

    def expect_first(self) -> None:
        """Get ready to receive the gradient of the group's first mini-batch."""

    def send_first(self, gradients: AnyGradients, *, wait: bool) -> AnyGradients:
        """Send the gradient of the first mini-batch to all; ``wait`` if what is returned will be overwritten."""
        return gradients

    def receive_first(self) -> Gradients:
        """Return the gradient of the first mini-batch; a parameter that it did not touch has zeros."""
        raise AssertionError("the first mini-batch of a whole group is an own one")

    def of_group(self, columns: tuple[Tensor, ...], num_batches: int) -> tuple[Tensor, ...]:
        """Return what the own mini-batches have, ``[own, ...]``, for all k of the group, ``[k, ...]``, in its order."""
        return columns

    def over_group(self, sums: Sequence[Gradients], blanks: Sequence[Blank], numbers: Tensor | None) -> Tensor | None:
        """Turn the own sums into those over all mini-batches, in place; and add up ``numbers`` on the way.

        A parameter that has a gradient in any process has one in all.
        """
        return numbers

    def average(self, results: Sequence[Gradients], blanks: Sequence[Blank], finite: Tensor) -> Tensor:
        """Turn the results of the own group into the mean over everybody's groups, in place.

        Returns:
            ``finite``, or whether all of it is true everywhere.
        """
        return finite

    def own_parts(self, tensors: Gradients) -> Gradients:
        """Return the parts of parameters or gradients that are in this process, where these are cut."""
        return tensors

    def joined_parts(self, gradients: Gradients) -> Gradients:
        """Return gradients in the form of their parameters: the opposite of :meth:`own_parts`."""
        return gradients

    def over_shards(self, numbers: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return sums over all processes, where each has numbers (vectors) of its parts of the parameters."""
        return numbers

    def over_images(self, losses: Tensor) -> Tensor:
        """Return the losses of whole mini-batches, where a process has seen some of the images of each."""
        return losses
