"""The gradients of several mini-batches from one forward and one backward pass.

Samples do not meet in a network, so the activations of many mini-batches can be computed at once; only where a
parameter comes in must its gradient be taken mini-batch by mini-batch. This module watches torch's functions while the
loss is computed and does so for the ones it knows. It never looks at modules, and does not know what becomes of
gradients. Whatever else uses a parameter runs as ever, and its gradient arrives in ``.grad``: there it is noticed and
refused.

- Linear layers keep what goes in and what comes back (``outer_products.py``) and multiply nothing out.
- Convolutions compute all images at once, forward and backward, and only their weights' gradients in parts.
- Other layers with parameters, normalisation foremost, are run in parts. So BatchNorm sees each mini-batch on its own,
  as in k passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from deepbilevel.gradients import AnyGradients
from deepbilevel.one_pass.checks import check_all_taken_apart, check_losses, check_no_hooks
from deepbilevel.one_pass.parted_gradients import PartedGradients
from deepbilevel.one_pass.parted_layers import PARTED_LAYERS, batch_norm, can_norm_together

# Without parameters too, what takes or keeps statistics of a mini-batch must not see more than one.
_ALWAYS_IN_PARTS: frozenset[Callable[..., Any]] = frozenset(
    {F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm}
)
_IN_PARTS = _ALWAYS_IN_PARTS | frozenset[Callable[..., Any]](
    {
        F.layer_norm,
        F.group_norm,
        F.rms_norm,
        F.embedding,
        F.prelu,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    }
)  # in all of them the first argument holds the samples


def run_in_one_pass(
    parameters: Sequence[Tensor], sizes: Sequence[int], run: Callable[[], Tensor]
) -> tuple[list[Tensor], list[AnyGradients]]:
    """Return for each mini-batch its loss and its gradients; ``.grad`` must be empty, and stays so.

    Args:
        parameters: those of the model, in the order of the result; frozen ones have no gradient.
        sizes: how many samples each mini-batch has. They follow one another in the first dimension of every tensor.
        run: makes the forward pass for all of them, and returns a loss for each sample or for each mini-batch.
    """
    check_no_hooks(parameters)
    parted = PartedGradients(parameters, sizes)
    with _Watch(parted):
        losses = run()
    check_losses(losses, sum(sizes), len(sizes))
    of_samples = len(losses) == sum(sizes)
    losses = torch.stack([part.mean() for part in losses.split(list(sizes))]) if of_samples else losses
    parted.start_collecting()
    with torch.autocast(losses.device.type, enabled=False):  # a caller's would narrow products of gradients
        losses.sum().backward()  # the gradient of a sum is made of the gradients of its terms
    check_all_taken_apart(parameters)
    return list(losses.detach()), [parted.of(number) for number in range(len(sizes))]


class _Watch(TorchFunctionMode):
    """While active, lets layers with parameters keep the gradients of mini-batches apart."""

    def __init__(self, parted: PartedGradients) -> None:
        super().__init__()
        self._parted = parted

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not args and "input" in kwargs:
            args = (kwargs.pop("input"),)
        if func is F.batch_norm and can_norm_together(*args, **kwargs):
            return batch_norm(self._parted, *args, **kwargs)
        if (layer := PARTED_LAYERS.get(func)) is not None and self._knows(args[1:3], kwargs):
            return layer(self._parted, *args, **kwargs)
        if func in _IN_PARTS and args and (func in _ALWAYS_IN_PARTS or self._knows(args, kwargs)):
            return self._run_in_parts(func, args, kwargs)
        return func(*args, **kwargs)

    def _knows(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return any(self._parted.position(each) is not None for each in (*args, *kwargs.values()))

    def _run_in_parts(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        samples, *others = args
        outputs = [
            func(
                part,
                *(self._copy(each, number) for each in others),
                **{name: self._copy(each, number) for name, each in kwargs.items()},
            )
            for number, part in enumerate(self._parted.split(samples))
        ]
        return torch.cat(outputs)

    def _copy(self, argument: Any, number: int) -> Any:
        return argument if self._parted.position(argument) is None else self._parted.copy_of(argument, number)
