"""Layers that compute all samples of a pass together, and the gradients of their parameters for each mini-batch.

The functions here take the place of torch's of the same name, whoever calls them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from deepbilevel.one_pass.outer_products import OuterProducts
from deepbilevel.one_pass.parted_gradients import PartedGradients


def _linear(
    parted: PartedGradients,
    input: Tensor,  # noqa: A002 - torch's name
    weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    if weight.dim() != 2 or input.dim() < 2:
        return F.linear(input, weight, bias)  # no rows of samples: refused for the gradient that will arrive
    parted.split(input)  # refuses what it cannot split
    return _Linear.apply(_cast_like_autocast(input), weight, bias, parted)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, samples: Tensor, weight: Tensor, bias: Tensor | None, parted: PartedGradients) -> Tensor:
        ctx.save_for_backward(samples, weight)
        # Positions, for what was saved may come back as another object, as from save_on_cpu().
        ctx.parted, ctx.positions = parted, (parted.position(weight), parted.position(bias))
        output = F.linear(samples, weight.to(samples.dtype), None if bias is None else bias.to(samples.dtype))
        # Of more than rows torch returns a view, which autograd would forbid to change in place.
        return output.data if output.dim() > 2 else output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] - by torch's own decorator
        ctx: Any, *returned: Tensor
    ) -> tuple[Tensor | None, ...]:
        samples, weight = ctx.saved_tensors
        parted, (back,) = ctx.parted, returned
        for_samples, for_weight, for_bias = ctx.needs_input_grad[:3]

        of_weight = of_bias = None
        if for_weight:
            # Detached: rows that are kept must not keep the graph, which keeps what they are kept in.
            lefts, rights = parted.rows(back), parted.rows(samples.detach())
            products = [OuterProducts(left, right) for left, right in zip(lefts, rights, strict=True)]
            pays = OuterProducts.pays(max(map(len, lefts)), weight.shape)
            of_weight = parted.add(ctx.positions[0], products if pays else [each.dense() for each in products])
        if for_bias:
            of_bias = parted.add(ctx.positions[1], [rows.sum(0) for rows in parted.rows(back)])
        return back @ weight.to(back.dtype) if for_samples else None, of_weight, of_bias, None


def _convolution(
    parted: PartedGradients,
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
    parted.split(input)  # refuses what it cannot split
    settings = (strides, _per_axis(padding, num_axes), dilations, False, [0] * num_axes, groups)
    return _Convolution.apply(_cast_like_autocast(input), weight, bias, parted, settings)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, parted: PartedGradients, settings: Any
    ) -> Tensor:
        ctx.save_for_backward(images, weight)
        ctx.parted, ctx.settings, ctx.positions = parted, settings, (parted.position(weight), parted.position(bias))
        bias = None if bias is None else bias.to(images.dtype)
        return torch.convolution(images, weight.to(images.dtype), bias, *settings)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] - by torch's own decorator
        ctx: Any, *returned: Tensor
    ) -> tuple[Tensor | None, ...]:
        images, weight = ctx.saved_tensors
        parted, (back,) = ctx.parted, returned
        weight = _laid_out_like(images, weight.to(back.dtype))
        for_images, for_weight, for_bias = ctx.needs_input_grad[:3]

        pairs = zip(parted.split(back), parted.split(images), strict=True)
        parts = [_convolve_back(*pair, weight, ctx.settings, [False, for_weight, for_bias]) for pair in pairs]
        of_weight = parted.add(ctx.positions[0], [part[1] for part in parts]) if for_weight else None
        of_bias = parted.add(ctx.positions[1], [part[2] for part in parts]) if for_bias else None
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


def can_norm_together(
    input: Tensor,  # noqa: A002 - torch's name
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    *_: object,
    **__: object,
) -> bool:
    """Whether :func:`batch_norm` can do it: on a CPU, in one precision, by the statistics of mini-batches.

    Of a tensor that is not laid out densely torch would not return these statistics.
    """
    others = [each for each in (running_mean, running_var, weight, bias) if each is not None]
    return (
        training
        and input.device.type == "cpu"
        and input.dtype in (torch.float32, torch.float64)
        and all(each.dtype == input.dtype for each in others)
        and (input.is_contiguous() or (input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)))
    )


def batch_norm(
    parted: PartedGradients,
    input: Tensor,  # noqa: A002 - torch's name
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Norm each mini-batch by its own statistics, all into one tensor: putting them together later costs a copy."""
    for part in parted.split(input):
        if part.numel() == part.shape[1]:
            raise ValueError(
                f"BatchNorm got one number per channel, in a mini-batch of shape {tuple(part.shape)}; give "
                "mini-batches of two samples or more, or use another normalisation"
            )
    return _BatchNorm.apply(input, weight, bias, parted, (running_mean, running_var, training, momentum, eps))


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, samples: Tensor, weight: Tensor | None, bias: Tensor | None, parted: PartedGradients, settings: Any
    ) -> Tensor:
        output = torch.empty_like(samples)
        # In one tensor: activation checkpointing could take several for the ones that torch's own BatchNorm keeps.
        statistics = samples.new_empty(len(parted.sizes), 2, samples.shape[1])
        for part, place, (mean, inverse) in zip(parted.split(samples), parted.split(output), statistics, strict=True):
            torch.ops.aten.native_batch_norm.out(
                part, weight, bias, *settings, out=place, save_mean=mean, save_invstd=inverse
            )
        ctx.save_for_backward(samples, weight, statistics)
        ctx.parted, ctx.eps = parted, settings[-1]
        ctx.positions = parted.position(weight), parted.position(bias)
        return output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] - by torch's own decorator
        ctx: Any, *returned: Tensor
    ) -> tuple[Tensor | None, ...]:
        samples, weight, statistics = ctx.saved_tensors
        parted, (back,) = ctx.parted, returned
        wanted = list(ctx.needs_input_grad[:3])
        parts = [
            torch.ops.aten.native_batch_norm_backward(
                part_back, part, weight, None, None, mean, inverse, True, ctx.eps, wanted
            )
            for part_back, part, (mean, inverse) in zip(
                parted.split(back), parted.split(samples), statistics, strict=True
            )
        ]
        of_samples, of_weight, of_bias = zip(*parts, strict=True)
        return (
            torch.cat(of_samples) if wanted[0] else None,
            parted.add(ctx.positions[0], of_weight) if wanted[1] else None,
            parted.add(ctx.positions[1], of_bias) if wanted[2] else None,
            None,
            None,
        )


PARTED_LAYERS: Mapping[Callable[..., Any], Callable[..., Tensor]] = {
    F.linear: _linear,
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv3d: _convolution,
}
