"""Images on their way to the network: fetched, augmented, mixed, and moved to the device.

Everything random here is a function of the run's seed, the epoch and the group: no generator is carried along, so
a run that goes on in the middle of an epoch, with any number of workers, sees the images it would have seen. And
nothing is drawn before it is needed: of a million images, a list of who comes when would outweigh the network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, tee

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from deepbilevel.sampling import MatchedGroups
from deepbilevel_lab.data import ImagesInMemory, ImagesOnDisk, LabelledSet, Recipe
from deepbilevel_lab.data.augmentation import Draws, DrawsOfPart, Split
from deepbilevel_lab.data.decode import decode_rgb
from deepbilevel_lab.data.encoding import EncodedRows
from deepbilevel_lab.data.own_items import OwnItems
from deepbilevel_lab.data.views import View, ViewMode
from deepbilevel_lab.losses import Mixup

_CROPS, _BATCHES, _MIXING, _NETWORK = 1, 2, 3, 4  # independent streams of random numbers
_Key = tuple[int, int]
"""An image and the seed of its crop."""
_Viewed = tuple[Tensor, str]
"""What was cut out, or black and why."""
_Raw = tuple[list[int], Tensor]
"""Which images, and what they show."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A mini-batch as the network sees it.

    Attributes:
        labels: one class per image; or, mixed or with several labels, a row with a number per class.
        difficult: masks labels that do not count.
        seed: of what is random in the network, where other mini-batches of the group run in other processes. Nothing
            where all run here: then the random numbers of the process just go on.
    """

    indices: Tensor
    images: Tensor
    labels: Tensor
    difficult: Tensor | None
    seed: int | None = None


class Feed:
    """Hands out the images of a data set as one network wants them.

    Args:
        data: images with labels, or encoded rows of a table, or items of somebody's data set.
        recipe: what happens to batches of images.
        view: what is cut out of files; needed for images on disk.
        split: which data set the numbers of images count in.
        seed: the run's.
        device: where batches go.
        workers: processes that decode files; 0 decodes in this one.
        skip_bad: go on after a file that cannot be decoded, with black in its place.
        mixing: how the mini-batches of groups are mixed; those for evaluation never are.

    Attributes:
        bad: why, by the number of the image, where a file could not be decoded.
    """

    def __init__(
        self,
        data: LabelledSet,
        recipe: Recipe,
        view: View | None,
        *,
        split: Split,
        seed: int,
        device: torch.device,
        workers: int = 0,
        skip_bad: bool = False,
        mixing: Mixup | None = None,
    ) -> None:
        self.data = data
        self.bad: dict[int, str] = {}
        self._recipe = recipe
        self._view = view
        self._split: Split = split
        self._seed = seed
        self._device = device
        self._workers = workers
        self._skip_bad = skip_bad
        self._mixing = mixing

    def groups(
        self, sampler: MatchedGroups, epoch: int, first: int, *, num_parts: int, own: Sequence[int] | None = None
    ) -> Iterator[list[Batch]]:
        """Yield the groups of an epoch from number ``first`` on, each cut into ``num_parts`` mini-batches.

        Args:
            sampler: must stand at that place, and yield whole groups. It is asked for them as they are needed; workers
                need them earlier, so its own position says nothing.
            epoch: counted from 0.
            first: the group to begin with.
            num_parts: into how many mini-batches a group is cut.
            own: which of these to fetch and prepare; all by default. They are the same as among all.
        """
        size = sampler.num_batches * sampler.batch_size
        places = range(num_parts) if own is None or len(own) == num_parts else own
        at_hand = torch.arange(size).view(num_parts, -1)[list(places)].flatten()
        chosen = at_hand.tolist()
        keys = (self._keys(row, epoch, number) for number, row in enumerate(_whole_groups(sampler), first))
        own_keys = ([of_group[place] for place in chosen] for of_group in keys)
        for number, (row, images) in enumerate(self._raw(own_keys, "train"), first):
            draws: Draws = torch.Generator().manual_seed(_seeds(1, self._seed, _BATCHES, epoch, number)[0])
            if len(places) < num_parts:
                draws = DrawsOfPart(draws, size, at_hand)
            batches = self._prepare(row, images, draws, len(places))
            if len(places) < num_parts:
                seeds = _seeds(num_parts, self._seed, _NETWORK, epoch, number)
                batches = [replace(batch, seed=seeds[place]) for place, batch in zip(places, batches, strict=True)]
            if self._mixing is not None:
                seeds = _seeds(num_parts, self._seed, _MIXING, epoch, number)
                batches = self._mixed(self._mixing, batches, [seeds[place] for place in places])
            yield batches

    def chunks(self, size: int) -> list[range]:
        """Return the images in order, cut into batches for evaluation."""
        return [range(start, min(start + size, len(self.data))) for start in range(0, len(self.data), size)]

    def batches(self, size: int, *, crops: int = 1, own: Sequence[int] | None = None) -> Iterator[Batch]:
        """Yield all images in order for evaluation, the middle of each; or ``crops`` random ones, one after another.

        Args:
            size: of a batch.
            crops: how often each batch is yielded.
            own: which of the :meth:`chunks` to yield; all by default.
        """
        chunks = self.chunks(size)
        keys = (
            [(index, _seeds(1, _CROPS, crop, index)[0]) for index in chunks[number]]
            for number in (range(len(chunks)) if own is None else own)
            for crop in range(crops)
        )
        for row, images in self._raw(keys, "test" if crops == 1 else "crops"):
            yield self._prepare(row, images, None, 1)[0]

    def _prepare(self, row: Sequence[int], images: Tensor, generator: Draws | None, num_parts: int) -> list[Batch]:
        # The whole group at once: its mini-batches are too small to keep a processor busy with augmentation.
        indices = torch.tensor(row)
        mode = "test" if generator is None else "train"
        images = images.to(self._device, non_blocking=True)
        if images.ndim == 4:
            images = self._recipe.apply(mode, images, generator, indices=indices, split=self._split)
        labels = self.data.labels[indices].to(self._device)
        difficult = self.data.difficult
        masks = [None] * num_parts if difficult is None else difficult[indices].to(self._device).chunk(num_parts)
        parts = (indices.chunk(num_parts), images.chunk(num_parts), labels.chunk(num_parts), masks)
        return [Batch(*each) for each in zip(*parts, strict=True)]

    def _mixed(self, mixing: Mixup, batches: list[Batch], seeds: list[int]) -> list[Batch]:
        mixed: list[Batch] = []
        for batch, seed in zip(batches, seeds, strict=True):
            images, labels = mixing(
                batch.images,
                batch.labels,
                num_classes=self.data.num_classes,
                generator=np.random.default_rng(seed),
            )
            mixed.append(replace(batch, images=images, labels=labels))
        return mixed

    def _raw(self, keys: Iterator[list[_Key]], mode: ViewMode) -> Iterator[_Raw]:
        """Return for each chunk which images it has, and these as stored or cut out, uint8."""
        if isinstance(self.data, ImagesInMemory):
            images = self.data.images
            rows = ([index for index, _ in chunk] for chunk in keys)
            return ((row, images.index_select(0, torch.tensor(row))) for row in rows)
        if isinstance(self.data, EncodedRows):
            read = self.data.read
            return ((row, read(row)) for row in ([index for index, _ in chunk] for chunk in keys))
        if isinstance(self.data, OwnItems):
            views: Dataset[_Viewed] = _SeededItems(self.data)
        elif isinstance(self.data, ImagesOnDisk) and self._view is not None:
            views = _SeededViews(self.data, self._view, mode)
        else:
            raise TypeError(f"data must be images in memory, or on disk with a view, got {type(self.data).__name__}")
        keys, ahead = tee(keys)  # holds as many chunks as workers are ahead
        # A loader draws a number at its start; from its own generator, the run's random numbers are not disturbed.
        loader: DataLoader[_Viewed] = DataLoader(
            views,
            batch_sampler=ahead,
            num_workers=self._workers,
            generator=torch.Generator(),
        )
        return self._decoded(keys, loader)

    def _decoded(self, keys: Iterator[list[_Key]], loader: "DataLoader[_Viewed]") -> Iterator[_Raw]:
        batches = iter(loader)
        try:
            for chunk in keys:
                images, problems = next(batches)
                row = [index for index, _ in chunk]
                bad = {index: problem for index, problem in zip(row, problems, strict=True) if problem}
                if bad and not self._skip_bad:
                    raise ValueError(next(iter(bad.values())))
                self.bad.update(bad)
                yield row, images
        finally:
            del batches  # ends the workers now; left to the garbage collector, that takes seconds

    def _keys(self, row: list[int], epoch: int, number: int) -> list[_Key]:
        if isinstance(self.data, (ImagesInMemory, EncodedRows)):
            return [(index, 0) for index in row]
        return list(zip(row, _seeds(len(row), self._seed, _CROPS, epoch, number), strict=True))


class _SeededViews(Dataset[_Viewed]):
    """Cuts images out of files; each by its own seed, so it does not matter which process does it.

    Errors are returned: raised in a worker, they would reach the user as the traceback of another process.
    """

    def __init__(self, data: ImagesOnDisk, view: View, mode: ViewMode) -> None:
        self._paths = data.paths
        self._view = view
        self._mode: ViewMode = mode

    def __getitem__(self, key: _Key) -> _Viewed:  # pyright: ignore[reportIncompatibleMethodOverride]
        from PIL import Image

        index, seed = key
        try:
            image, problem = decode_rgb(self._paths[index], needed_side=self._view.needed_side), ""
        except (ValueError, OSError) as error:
            image, problem = Image.new("RGB", (self._view.size, self._view.size)), str(error)
        return self._view(image, self._mode, torch.Generator().manual_seed(seed)), problem


class _SeededItems(Dataset[_Viewed]):
    """Asks somebody's data set for its items, each under its own seed; their errors are theirs to read."""

    def __init__(self, data: OwnItems) -> None:
        self._data = data
        self._shape = data.read(0, seed=0).shape

    def __getitem__(self, key: _Key) -> _Viewed:  # pyright: ignore[reportIncompatibleMethodOverride]
        index, seed = key
        item = self._data.read(index, seed)
        if item.shape != self._shape:
            raise ValueError(
                f"item {int(self._data.places[index])} has the shape {list(item.shape)}, and the first one "
                f"{list(self._shape)}; items of a batch must be alike: crop, resize or pad them in the data set"
            )
        return item if item.dtype == torch.uint8 else item.float(), ""


def _whole_groups(sampler: MatchedGroups) -> Iterator[list[int]]:
    batches = iter(sampler)
    while group := list(islice(batches, sampler.num_batches)):
        yield [index for batch in group for index in batch]


def _seeds(count: int, *stream: int) -> list[int]:
    return np.random.SeedSequence(stream).generate_state(count, np.uint64).tolist()
