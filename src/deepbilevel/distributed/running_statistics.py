"""BatchNorm's running statistics of a group whose mini-batches ran in several processes, as if they ran in one.

    one process, mini-batch after mini-batch:   r <- (1 - m) r + m s_i
    in any order:                               r  = (1 - m)^k r_0 + sum_i (1 - m)^(k - 1 - i) c_i,   c_i = m s_i

``c_i = r_after - (1 - m) r_before`` is read off the layer, wherever mini-batch i ran. A layer that is used n times in
one forward pass has ``(1 - m)^n`` in the place of ``1 - m``. With ``momentum=None`` it is the sum
``r * num_batches_tracked`` that grows, by ``c_i`` and without decay. This module knows layers and places in a
group, and no process.

Where every process has a group of its own, statistics are averaged as gradients are.
"""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.instancenorm import _InstanceNorm  # pyright: ignore[reportPrivateUsage]


class RunningStatistics:
    """All layers of a model whose running statistics follow from the mini-batches they saw.

    Args:
        model: its layers are read after each forward pass and written once per group.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers: list[_BatchNorm] = []
        for module in model.modules():
            _check_layer(module)
            if isinstance(module, _BatchNorm) and module.running_mean is not None:
                self._layers.append(module)
        sizes = torch.tensor([2 * layer.num_features for layer in self._layers], dtype=torch.long)
        self._layer_of = torch.repeat_interleave(torch.arange(len(sizes)), sizes)  # of each number in the long vector
        # Somebody else may write the statistics between two groups; whoever does it through torch is noticed.
        this = weakref.ref(self)

        def start_again(module: nn.Module, keys: Any) -> None:
            if (alive := this()) is not None:
                alive.start()

        for layer in self._layers:
            weakref.finalize(self, layer.register_load_state_dict_post_hook(start_again).remove)
        self.start()

    @property
    def num_layers(self) -> int:
        """How many layers have running statistics."""
        return len(self._layers)

    def start(self) -> None:
        """Begin a group with the statistics as they are."""
        self._collected: list[tuple[Tensor, Tensor]] = []  # for each own mini-batch c_i and how often layers were used
        self.at_start = torch.zeros(0)  # means and variances, layer by layer
        if self._layers:
            self._first = self._last = self._read()
            self.at_start = torch.cat([part.flatten() for part in self._parts()])

    def go_back(self) -> None:
        """Drop what a half-collected group did to the statistics: it differs from process to process."""
        if self._collected:
            self._write(*self._first)
        self.start()

    def collect(self) -> None:
        """Note what the last forward pass did."""
        values, counts = self._read()
        before, counts_before = (each.to(values.device) for each in self._last)
        uses = counts - counts_before
        self._collected.append((values - self._kept(uses) * before, uses))
        self._last = values, counts

    @property
    def uses(self) -> Tensor:
        """How often each of the own mini-batches used each layer, shape ``[own, layers]``."""
        return torch.stack([uses for _, uses in self._collected])

    def own_part(self, uses: Tensor, places: slice) -> Tensor:
        """Return the own terms of the sum over mini-batches.

        Args:
            uses: of all k mini-batches, shape ``[k, layers]``.
            places: where in the group the own ones are.
        """
        later = uses.flip(0).cumsum(0).flip(0) - uses  # how often each layer is used after mini-batch i
        terms = [self._kept(after) * term for after, (term, _) in zip(later[places], self._collected, strict=True)]
        return torch.stack(terms).sum(0)

    def finish(self, total: Tensor, uses: Tensor) -> None:
        """Write the statistics after the whole group: those before it, decayed, and the sum over all mini-batches."""
        values, counts = (each.to(total.device) for each in self._first)
        number = uses.sum(0)
        self._write(self._kept(number) * values + total, counts + number)

    def own_result(self) -> Tensor:
        """Return what the own group came to, as a vector for a mean over processes: zero if it is not finite."""
        values = torch.cat([part.flatten() for part in self._parts()])
        sound = torch.isfinite(values).all()
        uses = self._last[1] - self._first[1].to(values.device)
        return torch.cat([torch.where(sound, values, 0.0), sound.reshape(1), uses])

    def become_mean(self, mean: Tensor) -> None:
        """Write the mean of :meth:`own_result` over those processes for which it was finite."""
        values, sound, uses = mean.split([len(self._layer_of), 1, len(self._layers)])
        counts = self._first[1].to(mean.device) + uses.round().long()
        self._write(values / sound * self._scale(counts), counts)

    def _read(self) -> tuple[Tensor, Tensor]:
        """Return statistics as one long vector, and how many mini-batches each layer has seen."""
        counts = torch.stack([_seen(layer) for layer in self._layers])
        return torch.cat([part.flatten() for part in self._parts()]) * self._scale(counts), counts

    def _write(self, values: Tensor, counts: Tensor) -> None:
        scale, parts = self._scale(counts), self._parts()
        values = torch.where(scale > 0, values / scale, self.at_start.to(values.device))  # 0: still as it was made
        for part, value in zip(parts, values.split([part.numel() for part in parts]), strict=True):
            part.copy_(value.view_as(part))
        for layer, count in zip(self._layers, counts.unbind(), strict=True):
            _seen(layer).copy_(count)

    def _parts(self) -> list[Tensor]:
        return [part for layer in self._layers for part in _statistics(layer)]

    def _kept(self, uses: Tensor) -> Tensor:
        """Return for every number of the long vector how much of it is left after so many uses of its layer."""
        kept = [1.0 if layer.momentum is None else 1 - layer.momentum for layer in self._layers]
        powers = torch.tensor(kept, dtype=torch.float64).to(uses.device) ** uses
        return powers[self._layer_of.to(uses.device)].to(self._first[0].dtype)

    def _scale(self, counts: Tensor) -> Tensor:
        """Return what turns a mean over all mini-batches so far (``momentum=None``) into a sum; 1 elsewhere."""
        is_mean = torch.tensor([layer.momentum is None for layer in self._layers], device=counts.device)
        return torch.where(is_mean, counts, 1)[self._layer_of.to(counts.device)]


def _statistics(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert layer.running_mean is not None and layer.running_var is not None  # noqa: PT018
    return layer.running_mean, layer.running_var


def _seen(layer: _BatchNorm) -> Tensor:
    assert layer.num_batches_tracked is not None
    return layer.num_batches_tracked


def _check_layer(module: nn.Module) -> None:
    if isinstance(module, nn.SyncBatchNorm):
        raise ValueError(
            "the model has SyncBatchNorm, which mixes mini-batches that are to be compared; take BatchNorm: its "
            "running statistics become the same on all processes anyway"
        )
    if isinstance(module, _InstanceNorm) and module.running_mean is not None:
        raise ValueError(
            "the model has an InstanceNorm with track_running_stats=True, which does not count its mini-batches; "
            "take GroupNorm or track_running_stats=False, or share(step, 'nothing')"
        )
