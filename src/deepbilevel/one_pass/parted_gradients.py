"""The gradients of parameters, kept apart for each mini-batch of a pass.

Knows how many samples each mini-batch has and which parameters are trained; does not know how a gradient comes about.
"""

from collections.abc import Sequence

from torch import Tensor

from deepbilevel.gradients import AnyGradients
from deepbilevel.one_pass.outer_products import OuterProducts
from deepbilevel.parameters import take_gradients


class PartedGradients:
    """What came in for each mini-batch and parameter.

    Args:
        parameters: those of the model; frozen ones have no gradient.
        sizes: how many samples each mini-batch has. They follow one another in the first dimension of every tensor.
    """

    def __init__(self, parameters: Sequence[Tensor], sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self._parameters = parameters
        self._positions = {id(each): position for position, each in enumerate(parameters) if each.requires_grad}
        # Per mini-batch and parameter what came in, to be added up: a parameter may be used more than once.
        self._parts: list[dict[int, list[Tensor | OuterProducts]]] = [{} for _ in sizes]
        self._copies: dict[int, list[Tensor]] = {}
        self._collecting = False

    def start_collecting(self) -> None:
        """From now on gradients are those of the losses; earlier ones, as for adversarial images, do not count."""
        self._collecting = True
        take_gradients(self._parameters)
        for copies in self._copies.values():
            take_gradients(copies)

    def position(self, weight: object) -> int | None:
        """Return where a weight is among the trainable parameters, if it is one and not computed from some."""
        return self._positions.get(id(weight))

    def add(self, position: int | None, gradients: Sequence[Tensor | OuterProducts]) -> Tensor | None:
        """Take in a parameter's gradients, one for each mini-batch; return for autograd what is not to be kept."""
        if position is None or not self._collecting:
            total = _add_up(gradients)
            return total.dense() if isinstance(total, OuterProducts) else total
        dtype = self._parameters[position].dtype
        for parts, gradient in zip(self._parts, gradients, strict=True):
            # A mini-batch's share of a layer is little work: a call that does nothing counts.
            parts.setdefault(position, []).append(gradient if gradient.dtype == dtype else gradient.to(dtype))
        return None

    def copy_of(self, parameter: Tensor, number: int) -> Tensor:
        """Return a trainable parameter under another name, whose gradient is that of one mini-batch alone."""
        position = self._positions[id(parameter)]
        if position not in self._copies:
            self._copies[position] = [parameter.detach().requires_grad_() for _ in self.sizes]
        return self._copies[position][number]

    def split(self, samples: Tensor) -> Sequence[Tensor]:
        """Return the rows of each mini-batch."""
        if len(samples) != sum(self.sizes):
            raise ValueError(
                f"a layer got an input of shape {tuple(samples.shape)}, but the pass has {sum(self.sizes)} samples; "
                "in one pass the first dimension must be the samples everywhere; step_over() has no such condition"
            )
        return samples.split(self.sizes)

    def rows(self, samples: Tensor) -> list[Tensor]:
        """Return each mini-batch as a matrix: what a linear layer treats alike, it adds up alike."""
        return [part.flatten(0, -2) for part in self.split(samples)]

    def of(self, number: int) -> AnyGradients:
        """Return the gradients of a mini-batch."""
        for position, copies in self._copies.items():
            if (gradient := copies[number].grad) is not None:
                self._parts[number].setdefault(position, []).append(gradient)
        return {position: _add_up(parts) for position, parts in sorted(self._parts[number].items())}


def _add_up(parts: Sequence[Tensor | OuterProducts]) -> Tensor | OuterProducts:
    if len(parts) == 1:
        return parts[0]
    products = [part for part in parts if isinstance(part, OuterProducts)]
    if len(products) == len(parts):
        return OuterProducts.joined(products)
    first, *others = (part.dense() if isinstance(part, OuterProducts) else part for part in parts)
    return sum(others, start=first)
