"""Which images a run trains and is tested on, as a value."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deepbilevel.checks import choose
from deepbilevel.contract import ADDED_LATER
from deepbilevel_lab.data.catalog import DataEntry, find_entry
from deepbilevel_lab.data.cifar import label_sets
from deepbilevel_lab.data.decisions import are_decisions
from deepbilevel_lab.data.fingerprint import take_fingerprint
from deepbilevel_lab.data.recipes import RECIPES
from deepbilevel_lab.data.table import ColumnsSpec
from deepbilevel_lab.data.views import VIEWS
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.specs import SpecError, validate

GIVEN = "given in Python"
"""The ``test_path`` of a run whose items to test on were passed, as those to train on were."""


@dataclass(frozen=True)
class DataSpec:
    """A data set of the catalog and how its images reach the network.

    Where a published data set lies on this machine is not part of it; of your own images the place is all there is.

    Attributes:
        name: a name of the catalog.
        recipe: what happens to batches of images, a name of ``RECIPES``.
        view: what is cut out of image files, a name of ``VIEWS``; for data sets of files only.
        path: the folder or table of your own data; for ``folder``, ``csv`` and ``table`` only. For ``dataset`` what
            tells your data from other data: a name of yours, or a fingerprint that ``train`` takes.
        labels: a named label set instead of the published labels, ``worst`` of CIFAR-10N for instance; or
            ``run:<id>``: what the network of that run predicts for the images it was trained on, dropout left on; or
            the ``corrected.csv`` of an audit: what a person decided about labels of these images.
        split: the part to train on, if not the usual one.
        limit: train on that many images, of every class in proportion.
        test_limit: test on that many.
        test_rate: the share of your own images that is set aside for testing, with labels as doubtful as the rest.
        test_path: the folder or table of other images of yours to test on, whose labels you trust; nothing is then set
            aside.
        selection: the share of the training images that is not trained on and keeps its labels, noisy or not: what
            settings and epochs may be chosen by. Without it nothing can be chosen without clean labels.
        selection_by_seed: set other images aside for every seed, so that several seeds together judge by more of them.
        test_crops: average predictions over that many random crops of each test image; 1 is the middle.
        train_figures: of which images figures of training are: of those it ``trained`` on, or of the whole ``split``,
            whatever the limit.
        columns: of a table, what its columns are for.
        content: a fingerprint of your own data and of the decisions about its labels, which tells it from other data
            in the same place; commands take it themselves.
    """

    name: str
    recipe: str = "none"
    view: str | None = None
    path: str | None = None
    labels: str | None = None
    split: str | None = None
    limit: int | None = None
    test_limit: int | None = None
    test_rate: float = 0.2
    test_crops: int = 1
    train_figures: Literal["trained", "split"] = field(default="trained", metadata=ADDED_LATER)
    selection: float | None = field(default=None, metadata=ADDED_LATER)
    test_path: str | None = field(default=None, metadata=ADDED_LATER)
    columns: ColumnsSpec | None = field(default=None, metadata=ADDED_LATER)
    content: str | None = field(default=None, metadata=ADDED_LATER)
    selection_by_seed: bool = field(default=False, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        validate(self)
        entry = self.entry
        choose("recipe", self.recipe, RECIPES)
        if referred_run(self.labels, key="labels") is not None:
            if entry.multi_label:
                raise SpecError(f"labels {self.labels!r} are one class per image; {self.name} has several")
        elif self.labels is not None and not are_decisions(self.labels):
            choose(f"label set of {self.name}", self.labels, label_sets(self.name))
            if self.train_split != "train":
                raise SpecError(f"labels {self.labels!r} are of the training images, not of split {self.split!r}")
        if self.split is not None:
            choose(f"split of {self.name}", self.split, entry.splits)
            if self.split == entry.test_split:
                raise SpecError(f"split {self.split!r} is what {self.name} is tested on; train on another")
        for name in ("limit", "test_limit", "test_crops"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise SpecError(f"{name} must be at least 1, got {value}")
        if not 0 < self.test_rate < 1:
            raise SpecError(f"test_rate must lie between 0 and 1, got {self.test_rate}")
        if self.selection is not None and not 0 < self.selection < 1:
            raise SpecError(f"selection must be a share between 0 and 1, got {self.selection}; 0.1 is usual")
        if self.selection_by_seed and self.selection is None:
            raise SpecError("selection_by_seed needs images set aside; say how many, as in selection=0.1")
        if (self.columns is None) == (entry.holds == "rows"):
            raise SpecError(
                f"columns is {'missing: name the target of your table' if self.columns is None else 'for a table'}; "
                f"the data is {self.name}"
            )
        if entry.own and self.path is None and entry.holds != "items":
            raise SpecError(f"path is missing: {self.name} needs the place of your images")
        if not entry.own and self.path is not None:
            raise SpecError(f"path {self.path!r} is for images of your own; {self.name} is found in the data folder")
        if entry.holds == "items" and self.test_path not in (None, GIVEN):
            raise SpecError(
                f"test_path {self.test_path!r} is a file; pass the items to test on: OwnData(..., test=...)"
            )
        if not entry.own and self.test_path is not None:
            raise SpecError(f"test_path {self.test_path!r} is for images of your own; {self.name} has a test set")
        if self.train_figures == "split" and entry.test_split is None:
            raise SpecError("train_figures 'split' would be of the images too that are set aside for testing; drop it")
        if self.train_figures == "split" and self.labels is not None:
            raise SpecError(f"train_figures 'split' is of published labels, and labels are {self.labels!r}; drop one")
        self._check_files(entry)

    def _check_files(self, entry: DataEntry) -> None:
        if entry.holds != "images":
            for name, usual in (("view", None), ("test_crops", 1)):
                if getattr(self, name) != usual:
                    raise SpecError(f"{name} {getattr(self, name)!r} is for image files; {self.name} holds none")
            if entry.holds == "rows" and self.recipe != "none":
                raise SpecError(f"recipe {self.recipe!r} is for images; {self.name} holds rows: take 'none'")
        elif entry.image_shape is None:
            if self.view is None:
                raise SpecError(f"view is missing: {self.name} holds image files; there are: {', '.join(VIEWS)}")
            choose("view", self.view, VIEWS)
            if self.view == "thumbnail" and self.test_crops > 1:
                raise SpecError(f"test_crops {self.test_crops} would all be the same; thumbnails are not cropped")
        elif self.view is not None:
            raise SpecError(f"view {self.view!r} is for image files; the images of {self.name} are all of one size")
        elif self.test_crops > 1:
            raise SpecError(f"test_crops {self.test_crops} is for image files; the images of {self.name} are small")

    @property
    def entry(self) -> DataEntry:
        """The line of the catalog."""
        return find_entry(self.name)

    def take_content(self) -> str | None:
        """Return the fingerprint of what is there now; None if nothing of it is one's own."""
        own = [place for place in (self.path, self.test_path) if place is not None]
        decided = [self.labels] if self.labels is not None and are_decisions(self.labels) else []
        return take_fingerprint(*map(Path, own + decided)) if own or decided else None

    def check_content(self) -> None:
        """Refuse other data than that of which the fingerprint was taken."""
        if self.content is not None and (found := self.take_content()) != self.content:
            places = " or ".join(place for place in (self.path, self.labels) if place is not None)
            raise ValueError(
                f"{places} has changed: data.content is {self.content}, and the data there now has {found}; bring the "
                "old data back, or run the command again, which begins a new run"
            )

    @property
    def tests_doubtful_labels(self) -> bool:
        """Whether the images tested on carry labels of the same origin as those trained on."""
        return self.entry.own and self.test_path is None

    @property
    def train_split(self) -> str:
        """The part that is trained on."""
        return self.split or self.entry.splits[0]
