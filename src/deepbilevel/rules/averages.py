"""What rules have in common that average something over groups."""

from collections.abc import Mapping

from torch import Tensor

from deepbilevel.checks import check_number
from deepbilevel.gradients import Gradients


def check_momentum(momentum: float) -> None:
    """Refuse a momentum that would never learn anything new."""
    remedy = "it must be below 1; 0 forgets all groups but the current one, 0.9 remembers about ten"
    if check_number("momentum", momentum, 0, 1, remedy=remedy) == 1:
        raise ValueError(f"momentum must lie in 0 .. 1, got {momentum}; {remedy}")


def check_average(name: str, average: Gradients, like: Mapping[int, Tensor]) -> Gradients:
    """Return an average from a checkpoint on the device of the parameters; refuse one of other shapes.

    Args:
        name: what is averaged.
        average: tensors by their places.
        like: tensors of the right shapes, by the same places.
    """
    for place, tensor in average.items():
        if place not in like or tensor.shape != like[place].shape:
            raise ValueError(
                f"{name} has a tensor of shape {tuple(tensor.shape)} for parameter {place}, which does not fit these "
                "parameters; load the state that was saved with this model"
            )
    return {place: tensor.to(like[place].device) for place, tensor in average.items()}
