"""Shrinking what an optimizer's step does, through the hooks that torch gives to every optimizer.

This module knows parameters before and after a step. It does not know where factors come from, nor what the optimizer
does with a gradient; the optimizer is neither wrapped nor owned, and its state stays as it makes it.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Factors = dict[int, Tensor]
"""Position of a parameter -> numbers from 0 to 1 that broadcast to its shape."""


class ShrunkenUpdates:
    """Let every step of an optimizer go only part of the way: ``p <- p_old + factor (p_new - p_old)``.

    All of the update is shrunk, weight decay and momentum included. A parameter that has no factor, or that the
    optimizer does not have, is left alone. During a step the parameters are held twice.

    >>> p = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = torch.optim.SGD([p], lr=1.0)
    >>> updates = ShrunkenUpdates(optimizer, [p])
    >>> updates.factors[0] = torch.tensor([1.0, 0.25])
    >>> p.grad = torch.ones(2)
    >>> optimizer.step()
    >>> p.data
    tensor([-1.0000, -0.2500])

    Args:
        optimizer: any optimizer of torch; hooks are added to it, which go when this object goes.
        parameters: what factors are for, by position.
        own_parts: gives the parts of parameters that are here, where factors are for parts.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Sequence[Tensor],
        own_parts: Callable[[dict[int, Tensor]], dict[int, Tensor]] = lambda whole: whole,
    ) -> None:
        self.factors: Factors = {}
        self._own_parts = own_parts
        self._positions = {id(parameter): position for position, parameter in enumerate(parameters)}
        self._before: dict[int, Tensor] = {}
        # The optimizer must not keep alive a rule that nobody uses any more, which would go on shrinking.
        this = weakref.ref(self)

        def before(stepping: Optimizer, args: Any, kwargs: Any) -> None:
            if (alive := this()) is not None:
                alive._remember(stepping)

        def after(stepping: Optimizer, args: Any, kwargs: Any) -> None:
            if (alive := this()) is not None:
                alive._shrink(stepping)

        for handle in (optimizer.register_step_pre_hook(before), optimizer.register_step_post_hook(after)):
            weakref.finalize(self, handle.remove)

    @classmethod
    def of(cls, optimizer: Optimizer | None, parameters: Sequence[Tensor], *, wanted: bool) -> "ShrunkenUpdates | None":
        """Return what shrinks the steps of an optimizer, if that is wanted; refuse one without the other."""
        if not wanted and optimizer is not None:
            raise ValueError(
                "optimizer is for rules that shrink its updates, as CrossValidated with shrink='update' does; leave it "
                "out, or choose such a rule"
            )
        if wanted and not isinstance(optimizer, Optimizer):
            raise TypeError(
                "shrink='update' needs the optimizer whose updates it shrinks, an instance of torch.optim.Optimizer, "
                f"got {type(optimizer).__name__}; pass optimizer=..., or take shrink='gradient'"
            )
        return None if optimizer is None else cls(optimizer, parameters)

    def _remember(self, optimizer: Optimizer) -> None:
        # Whether or not there are factors yet: a closure may compute them within the step.
        self._before = {position: parameter.detach().clone() for position, parameter in self._ours(optimizer).items()}

    def _shrink(self, optimizer: Optimizer) -> None:
        with torch.no_grad():
            for position, parameter in self._ours(optimizer).items():
                before, factor = self._before.pop(position, None), self.factors.get(position)
                if before is not None and factor is not None:
                    parameter.copy_(before.lerp_(parameter, factor.to(parameter.dtype)))

    def _ours(self, optimizer: Optimizer) -> dict[int, Tensor]:
        """Return the parameters that the optimizer has at this moment, with their positions."""
        found = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        ours = {self._positions[id(each)]: each for each in found if id(each) in self._positions}
        return self._own_parts(ours)
