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
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from deepbilevel.gradients import AnyGradients, take_gradients
from deepbilevel.group_checks import check_all_taken_apart, check_losses, check_no_hooks
from deepbilevel.outer_products import OuterProducts

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
    parameters: Sequence[Tensor], sizes: Sequence[int], losses_of_samples: Callable[[], Tensor]
) -> tuple[list[Tensor], list[AnyGradients]]:
    """Return for each mini-batch its mean loss and its gradients; ``.grad`` must be empty, and stays so.

    Args:
        parameters: those of the model, in the order of the result; frozen ones have no gradient.
        sizes: how many samples each mini-batch has. They follow one another in the first dimension of every tensor.
        losses_of_samples: runs the forward pass for all of them, and returns one loss for each.
    """
    check_no_hooks(parameters)
    watch = _Watch(parameters, sizes)
    with watch:
        losses = losses_of_samples()
    check_losses(losses, sum(sizes))
    means = [part.mean() for part in losses.split(list(sizes))]
    watch.start_collecting()
    with torch.autocast(losses.device.type, enabled=False):  # a caller's would narrow products of gradients
        torch.stack(means).sum().backward()  # the gradient of a sum is made of the gradients of its terms
    check_all_taken_apart(parameters)
    return [mean.detach() for mean in means], [watch.gradients(number) for number in range(len(sizes))]


class _Watch(TorchFunctionMode):
    """While active, keeps the gradients of parameters apart for each mini-batch."""

    def __init__(self, parameters: Sequence[Tensor], sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)
        self._parameters = parameters
        self._positions = {id(each): position for position, each in enumerate(parameters) if each.requires_grad}
        # Per mini-batch and parameter what came in, to be added up: a parameter may be used more than once.
        self._parts: list[dict[int, list[Tensor | OuterProducts]]] = [{} for _ in sizes]
        self._copies: dict[int, list[Tensor]] = {}
        self._collecting = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (special := _SPECIAL.get(func)) is not None and self._knows(args[1:3], kwargs):
            return special(self, *args, **kwargs)
        if func in _IN_PARTS and args and (func in _ALWAYS_IN_PARTS or self._knows(args, kwargs)):
            return self._run_in_parts(func, args, kwargs)
        return func(*args, **kwargs)

    def start_collecting(self) -> None:
        """From now on gradients are those of the losses; earlier ones, as for adversarial images, do not count."""
        self._collecting = True
        take_gradients(self._parameters)
        for copies in self._copies.values():
            take_gradients(copies)

    def position(self, weight: Tensor | None) -> int | None:
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

    def gradients(self, number: int) -> AnyGradients:
        """Return the gradients of a mini-batch."""
        for position, copies in self._copies.items():
            if (gradient := copies[number].grad) is not None:
                self._parts[number].setdefault(position, []).append(gradient)
        return {position: _add_up(parts) for position, parts in sorted(self._parts[number].items())}

    def _knows(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return any(id(each) in self._positions for each in (*args, *kwargs.values()))

    def _run_in_parts(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        samples, *others = args
        outputs = [
            func(
                part,
                *(self._copy(each, number) for each in others),
                **{name: self._copy(each, number) for name, each in kwargs.items()},
            )
            for number, part in enumerate(self.split(samples))
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _copy(self, argument: Any, number: int) -> Any:
        """Return a trainable parameter under another name, whose gradient is that of one mini-batch alone."""
        position = self.position(argument)
        if position is None:
            return argument
        if position not in self._copies:
            self._copies[position] = [argument.detach().requires_grad_() for _ in self.sizes]
        return self._copies[position][number]


def _add_up(parts: Sequence[Tensor | OuterProducts]) -> Tensor | OuterProducts:
    if len(parts) == 1:
        return parts[0]
    products = [part for part in parts if isinstance(part, OuterProducts)]
    if len(products) == len(parts):
        return OuterProducts.joined(products)
    first, *others = (part.dense() if isinstance(part, OuterProducts) else part for part in parts)
    return sum(others, start=first)


def _linear(watch: _Watch, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002 - torch's
    if weight.dim() != 2 or input.dim() < 2:
        return F.linear(input, weight, bias)  # no rows of samples: refused for the gradient that will arrive
    watch.split(input)  # refuses what it cannot split
    return _Linear.apply(_cast_like_autocast(input), weight, bias, watch)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor, weight: Tensor, bias: Tensor | None, watch: _Watch) -> Tensor:
        ctx.save_for_backward(samples, weight)
        # Positions, for what was saved may come back as another object, as from save_on_cpu().
        ctx.watch, ctx.positions = watch, (watch.position(weight), watch.position(bias))
        output = F.linear(samples, weight.to(samples.dtype), None if bias is None else bias.to(samples.dtype))
        # Of more than rows torch returns a view, which autograd would forbid to change in place.
        return output.data if output.dim() > 2 else output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] - by torch's own decorator
        ctx: Any, *returned: Tensor
    ) -> tuple[Tensor | None, ...]:
        samples, weight = ctx.saved_tensors
        watch, (back,) = ctx.watch, returned
        for_samples, for_weight, for_bias = ctx.needs_input_grad[:3]

        of_weight = of_bias = None
        if for_weight:
            # Detached: rows that are kept must not keep the graph, which keeps what they are kept in.
            lefts, rights = watch.rows(back), watch.rows(samples.detach())
            products = [OuterProducts(left, right) for left, right in zip(lefts, rights, strict=True)]
            pays = OuterProducts.pays(max(map(len, lefts)), weight.shape)
            of_weight = watch.add(ctx.positions[0], products if pays else [each.dense() for each in products])
        if for_bias:
            of_bias = watch.add(ctx.positions[1], [rows.sum(0) for rows in watch.rows(back)])
        return back @ weight.to(back.dtype) if for_samples else None, of_weight, of_bias, None


def _convolution(
    watch: _Watch,
    input: Tensor,  # noqa: A002 - torch's name
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    num_axes = weight.dim() - 2
    if input.dim() != weight.dim():
        raise ValueError(
            f"a convolution got an input of shape {tuple(input.shape)}, without a dimension for samples; in one pass "
            "the first dimension must be the samples everywhere; step_over() has no such condition"
        )
    strides, dilations = _per_axis(stride, num_axes), _per_axis(dilation, num_axes)
    if isinstance(padding, str):
        input, padding = _pad(input, weight, padding, strides, dilations)  # noqa: A001
    watch.split(input)  # refuses what it cannot split
    settings = (strides, _per_axis(padding, num_axes), dilations, False, [0] * num_axes, groups)
    return _Convolution.apply(_cast_like_autocast(input), weight, bias, watch, settings)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, watch: _Watch, settings: Any) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.watch, ctx.settings, ctx.positions = watch, settings, (watch.position(weight), watch.position(bias))
        bias = None if bias is None else bias.to(images.dtype)
        return torch.convolution(images, weight.to(images.dtype), bias, *settings)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] - by torch's own decorator
        ctx: Any, *returned: Tensor
    ) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        watch, (back,) = ctx.watch, returned
        weight = _laid_out_like(images, weight.to(back.dtype))
        for_images, for_weight, for_bias = ctx.needs_input_grad[:3]

        pairs = zip(watch.split(back), watch.split(images), strict=True)
        parts = [_convolve_back(*pair, weight, ctx.settings, [False, for_weight, for_bias]) for pair in pairs]
        of_weight = watch.add(ctx.positions[0], [part[1] for part in parts]) if for_weight else None
        of_bias = watch.add(ctx.positions[1], [part[2] for part in parts]) if for_bias else None
        of_images = _convolve_back(back, images, weight, ctx.settings, [True, False, False])[0] if for_images else None
        return of_images, of_weight, of_bias, None, None


def _laid_out_like(images: Tensor, weight: Tensor) -> Tensor:
    """Return a weight as torch wants it beside such images; it would otherwise copy it for every mini-batch."""
    if images.dim() == 4 and images.is_contiguous(memory_format=torch.channels_last):
        return weight.contiguous(memory_format=torch.channels_last)
    return weight


def _convolve_back(
    back: Tensor, images: Tensor, weight: Tensor, settings: tuple[Any, ...], wanted: list[bool]
) -> Sequence[Tensor]:
    """Return the gradients of images, weight and bias that are wanted."""
    return torch.ops.aten.convolution_backward(back, images, weight, [len(weight)], *settings, wanted)


_SPECIAL: Mapping[Callable[..., Any], Callable[..., Tensor]] = {
    F.linear: _linear,
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv3d: _convolution,
}


def _per_axis(number: int | Sequence[int], num_axes: int) -> list[int]:
    return [number] * num_axes if isinstance(number, int) else list(number) * (num_axes // len(number))


def _pad(
    images: Tensor, weight: Tensor, padding: str, strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Tensor, int]:
    """Pad as torch does for ``"same"`` and ``"valid"``."""
    if padding == "valid":
        return images, 0
    if padding != "same" or set(strides) != {1}:
        raise ValueError(f"padding={padding!r} with a stride of {list(strides)} is none that torch knows; give numbers")
    totals = [step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
    sides = [side for total in reversed(totals) for side in (total // 2, total - total // 2)]
    return F.pad(images, sides), 0


def _cast_like_autocast(samples: Tensor) -> Tensor:
    device = samples.device.type
    if not torch.is_autocast_enabled(device) or samples.dtype == torch.float64:  # which autocast leaves alone
        return samples
    return samples.to(torch.get_autocast_dtype(device))
