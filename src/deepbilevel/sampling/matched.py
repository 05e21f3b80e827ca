"""Groups of mini-batches with identical labels and disjoint images, as a batch sampler.

This module knows epochs and positions in them; who may stand where is ``pools.py``, and which labels and images a group
holds is ``draws.py``.
"""

import copy
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, get_args

import numpy as np
from torch.utils.data import Sampler

from deepbilevel.checks import check_alone
from deepbilevel.guards import note_pass
from deepbilevel.sampling.draws import Draw, ImageQueue, Part, ShuffledDeck, StratifiedDraw
from deepbilevel.sampling.pools import Indices, Labels, OnRare, one_class, read_classes, reserve_holdout, split_pools

_DRAWS: dict[Draw, type[ShuffledDeck] | type[StratifiedDraw]] = {
    "shuffled": ShuffledDeck,
    "stratified": StratifiedDraw,
}


class MatchedGroups(Sampler[list[int]]):
    """Yields mini-batches group by group, validation first; pass it to a ``DataLoader`` as ``batch_sampler``.

    The k mini-batches of a group carry the same label at the same place and share no image. Labels come as often
    as in the data set. All images of a class are visited equally often, to within one visit at any moment. Every
    pass over the sampler is the next epoch, and epoch n of a seed is always the same.

    >>> from deepbilevel import MatchedGroups
    >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
    >>> groups = MatchedGroups(labels, num_batches=2, batch_size=2, seed=0)
    >>> len(groups)
    4
    >>> validation, training, *_ = groups
    >>> [labels[i] for i in validation] == [labels[i] for i in training]
    True

    Args:
        labels: one class per image (numbers or names), a 0/1 matrix ``[images, classes]`` for multi-label images, or
            the number of images if there are no labels. Without classes (also for real-valued targets) there is
            nothing to match: groups are then plain random ones, and a warning says so.
        num_batches: k, how many mini-batches a group compares.
        batch_size: how many images each mini-batch has. The optimizer steps once per ``num_batches * batch_size``.
        seed: determines every epoch.
        matched: set to false for plain random groups (an ablation of the paper: it hurts).
        holdout: images that only ever validate: a fraction of each class, or the positions of images you trust.
        draw: how a group's labels are drawn: ``"shuffled"``, the next of a shuffled deck, or ``"stratified"``,
            each class within one of its expected count.
        on_rare: what to do with a class too small to give each mini-batch one image: ``"raise"``, ``"repeat"`` its
            images within a group, or ``"drop"`` it.

    Attributes:
        num_groups: groups, and so optimizer steps, in an epoch: ``images // (num_batches * batch_size)``.
        holdout: positions of the images that only validate, or ``None``.
    """

    def __init__(
        self,
        labels: Labels,
        *,
        num_batches: int,
        batch_size: int,
        seed: int,
        matched: bool = True,
        holdout: float | Sequence[int] | None = None,
        draw: Draw = "shuffled",
        on_rare: OnRare = "raise",
    ) -> None:
        self.num_batches = num_batches = _whole("num_batches", num_batches, at_least=2)
        self.batch_size = batch_size = _whole("batch_size", batch_size, at_least=1)
        self.seed = seed = _whole("seed", seed, at_least=0)
        self._part = Part(0, 1, "batches", num_batches)
        self._is_dealt = False
        _check_choice("draw", draw, get_args(Draw))
        _check_choice("on_rare", on_rare, get_args(OnRare))
        # Three independent streams, so that who is held out does not depend on how ties between anchors fell.
        anchor_seed, holdout_seed, self._epoch_seed = np.random.SeedSequence(seed).spawn(3)
        classes, nothing_to_match = read_classes(labels, _random(anchor_seed))
        if matched and nothing_to_match:
            warnings.warn(
                f"MatchedGroups yields plain random groups, because {nothing_to_match}; "
                "pass classes as whole numbers, or matched=False if this is meant",
                stacklevel=2,
            )
        in_holdout = None if holdout is None else reserve_holdout(holdout, classes, _random(holdout_seed))
        self.holdout: Indices | None = None if in_holdout is None else np.flatnonzero(in_holdout)
        self._pools = split_pools(
            classes if matched else one_class(len(classes.of_image)),
            in_holdout,
            num_batches=num_batches,
            on_rare=on_rare,
        )
        self._num_drawn_groups = self._pools.num_images // (num_batches * batch_size)  # by all, per epoch
        self.num_groups = self._num_drawn_groups // self._part.at_once
        self._check_groups_can_be_filled()
        self._warn_of_distorted_frequencies()
        self._draw: Draw = draw
        self._settings: dict[str, int | str | None] = {
            "num_batches": num_batches,
            "batch_size": batch_size,
            "seed": seed,
            "matched": bool(matched),  # numpy's does not survive a JSON checkpoint
            "draw": draw,
            "on_rare": on_rare,
            "labels_checksum": zlib.crc32(classes.of_image.tobytes()),
            "holdout_checksum": None if in_holdout is None else zlib.crc32(in_holdout.tobytes()),
        }
        self._restart()
        # Where the next pass begins, and what the current one has handed out: epoch, mini-batches of it.
        self._next = self._here = (0, 0)

    def __len__(self) -> int:
        """Return the number of mini-batches in an epoch, or of this process's share of them."""
        return self.num_groups * len(self._part.places)

    def __iter__(self) -> Iterator[list[int]]:
        if not self._is_dealt:
            check_alone()
        note_pass(self)
        epoch, done = self._next
        # Set at the start, not at the end: a pass that is broken off is followed by a new one, not by itself again.
        self._next = (epoch + 1, 0)
        for group, batches in enumerate(self._part.of_epoch(self._epoch(epoch))):
            start = group * self._part.stride
            for place in self._part.places:
                if start + place >= done:
                    # Up to the next one that is yielded here: between two groups all processes are at the same place.
                    after = place + self._part.places.step
                    self._here = (epoch, start + (after if after < self.num_batches else self._part.stride))
                    yield batches[place].tolist()

    def dealt(self, part: Part) -> "MatchedGroups":
        """Return a sampler of the same groups that yields one part of them; see :func:`deepbilevel.distributed.share`.

        All parts draw the same groups. Between two groups the state is the same in all of them, and fits any number of
        them.
        """
        other = copy.copy(self)
        other._part, other._is_dealt = part, True
        other.num_groups = self._num_drawn_groups // part.at_once
        other._check_groups_can_be_filled()
        other._restart()
        other.load_state_dict(self.state_dict())  # a place between parts moves to the next whole one
        return other

    def alone(self) -> "MatchedGroups":
        """Return a sampler of the same groups that yields all of them, although there are other processes."""
        return self.dealt(Part(0, 1, "batches", self.num_batches))

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be this epoch, from its start; going on in order, or from a loaded state, needs no call."""
        self._next = self._here = (_whole("epoch", epoch, at_least=0), 0)

    @property
    def next_position(self) -> tuple[int, int]:
        """The epoch in which the next pass begins, and after how many mini-batches, those of all processes."""
        return self._next

    @property
    def stride(self) -> int:
        """How many mini-batches all processes go through together, while this one goes through its part of a group."""
        return self._part.stride

    def state_dict(self, *, num_groups: int | None = None) -> dict[str, Any]:
        """Return the position in the current epoch and the settings, as plain numbers and strings.

        Args:
            num_groups: how many groups of the epoch training has finished, counted from the epoch's start also where
                the epoch was resumed. Needed when the ``DataLoader`` has workers: they fetch ahead, so more
                mini-batches were handed out than trained on.
        """
        epoch, done = self._here
        if num_groups is not None:
            done = _whole("num_groups", num_groups, at_least=0) * self._part.stride
            if done > self._epoch_length:
                raise ValueError(
                    f"num_groups must count this epoch's groups, at most {self.num_groups}, got {num_groups}"
                )
        if done >= self._epoch_length:
            epoch, done = epoch + 1, 0
        return {"epoch": epoch, "position": done, "settings": dict(self._settings)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where :meth:`state_dict` was called."""
        if set(state) != {"epoch", "position", "settings"}:
            raise ValueError(f"state must have the keys epoch, position and settings, got {', '.join(state)}")
        theirs: Mapping[str, Any] = state["settings"]
        for name in sorted({*self._settings, *theirs}):
            if theirs.get(name) != self._settings.get(name):
                raise ValueError(
                    f"state was saved with {name}={theirs.get(name)!r}, this sampler has {self._settings.get(name)!r}; "
                    "build the sampler from the same labels and settings to continue"
                )
        epoch, position = (_whole(name, state[name], at_least=0) for name in ("epoch", "position"))
        if position >= (drawn := self._num_drawn_groups * self.num_batches):
            raise ValueError(f"position {position} lies beyond the epoch of {drawn} mini-batches")
        if position % self._part.stride >= self.num_batches:
            # Another number of processes had begun groups that are one round here; what they left of it is left out.
            position += self._part.stride - position % self._part.stride
        self._next = self._here = (epoch, position) if position < self._epoch_length else (epoch + 1, 0)

    @property
    def _epoch_length(self) -> int:
        """How many mini-batches an epoch has in all processes together; positions count these."""
        return self.num_groups * self._part.stride

    def _check_groups_can_be_filled(self) -> None:
        needed = self.num_batches * self.batch_size
        if self.num_groups == 0 and self._num_drawn_groups:
            raise ValueError(
                f"share(..., 'groups') over {self._part.at_once} processes needs a group for each, but there are "
                f"images for {self._num_drawn_groups}; start fewer processes, or use smaller or fewer mini-batches"
            )
        if self.num_groups == 0:
            raise ValueError(
                f"batch_size={self.batch_size} with num_batches={self.num_batches} needs {needed} images per group, "
                f"but only {self._pools.num_images} can be drawn; use smaller or fewer mini-batches"
            )
        if self._pools.caps.sum() < self.batch_size:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be filled: without repeating an image, a group of "
                f"num_batches={self.num_batches} matched mini-batches has room for {self._pools.caps.sum()} labels; "
                "use smaller or fewer mini-batches, or a larger holdout if there is one"
            )

    def _warn_of_distorted_frequencies(self) -> None:
        sizes = np.array([len(images) for images in self._pools.training])
        shares = self.batch_size * sizes / sizes.sum()
        worst = int(np.argmax(shares - self._pools.caps))
        if shares[worst] > self._pools.caps[worst] + 1:
            warnings.warn(
                f"class {self._pools.names[worst]!r} has a share of {shares[worst]:.1f} in a mini-batch, "
                f"a group has different images of it for {self._pools.caps[worst]} places only, so it comes less often "
                "than in the data set; hold out more of its images, or use smaller or fewer mini-batches",
                stacklevel=3,
            )

    def _restart(self) -> None:
        random = _random(self._epoch_seed)
        sizes = np.array([len(images) for images in self._pools.training], dtype=np.int64)
        self._labels = _DRAWS[self._draw](sizes, self.batch_size, self._pools.caps, random)
        self._training = [ImageQueue(images, random) for images in self._pools.training]
        held_out = self._pools.validation
        self._validation = None if held_out is None else [ImageQueue(images, random) for images in held_out]
        self._num_drawn = 0

    def _epoch(self, epoch: int) -> Indices:
        """Return the images of an epoch, shape ``[groups, num_batches, batch_size]``.

        Queues go on from epoch to epoch, so an epoch is reached by drawing those before it: milliseconds each.
        """
        if epoch < self._num_drawn:
            self._restart()
        while self._num_drawn < epoch:
            self._draw_epoch()
        return self._draw_epoch()

    def _draw_epoch(self) -> Indices:
        self._num_drawn += 1
        labels = self._labels.draw(self._num_drawn_groups)
        if self._validation is None:
            return _deal(labels, self.num_batches, self._training)
        validation = _deal(labels, 1, self._validation)
        return np.concatenate([validation, _deal(labels, self.num_batches - 1, self._training)], axis=1)


def _deal(labels: Indices, num_batches: int, queues: list[ImageQueue]) -> Indices:
    """Replace labels ``[groups, batch_size]`` by images, the same labels for each of ``num_batches`` mini-batches."""
    num_groups, batch_size = labels.shape
    wanted = np.repeat(labels, num_batches, axis=0).reshape(-1)  # mini-batch after mini-batch, as they are yielded
    # The places of class 0 in the order in which they come up, then those of class 1, and so on.
    places = np.argsort(wanted, kind="stable")
    edges = np.searchsorted(wanted[places], np.arange(1, len(queues)))
    groups = np.split(places // (num_batches * batch_size), edges)
    images = np.empty_like(wanted)
    images[places] = np.concatenate([queue.take(group) for queue, group in zip(queues, groups, strict=True)])
    return images.reshape(num_groups, num_batches, batch_size)


def _random(seed: np.random.SeedSequence) -> np.random.RandomState:
    # RandomState, because numpy promises that its streams never change, which it does not for Generator.
    return np.random.RandomState(np.random.MT19937(seed))


def _whole(name: str, value: Any, *, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return int(value)  # numpy's integers do not survive a JSON checkpoint


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
