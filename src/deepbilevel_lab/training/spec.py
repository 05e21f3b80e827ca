"""A run as a value: everything that decides its outcome, and nothing else.

Where data lies, how often a checkpoint is written and how progress is shown are not part of it. Its id is a hash of
its canonical JSON, so the same id is the same experiment.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from deepbilevel.contract import ADDED_LATER, Rule
from deepbilevel.rules.average import Uniform
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.catalog import RULES
from deepbilevel.sampling.draws import Draw
from deepbilevel.sampling.pools import OnRare
from deepbilevel_lab.data import find_recipe
from deepbilevel_lab.data.spec import DataSpec
from deepbilevel_lab.data.views import find_view
from deepbilevel_lab.losses import CrossEntropy, LossSpec, Mixup
from deepbilevel_lab.losses.objective import ObjectiveSpec
from deepbilevel_lab.networks.catalog import NETWORKS, NetworkSpec
from deepbilevel_lab.networks.named_code import TIMM, TRANSFORMERS, is_own_code
from deepbilevel_lab.noise import NoiseSpec
from deepbilevel_lab.specs import MOST, MOST_THREADS, Kinds, SpecError, check_not_above, spec_id, validate
from deepbilevel_lab.training.earlier_specs import as_first_written, upgraded
from deepbilevel_lab.training.optimizers import OptimizerSpec
from deepbilevel_lab.training.own_rules import RuleNotLoaded, find_loaded_rule
from deepbilevel_lab.training.schedules import Constant, ScheduleSpec

Device = Literal["cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16", "float16"]
Passes = Literal["single", "joined"]


@dataclass(frozen=True)
class GroupSpec:
    """The arguments of :class:`~deepbilevel.MatchedGroups`; the optimizer steps once per group.

    Attributes:
        num_batches: k, how many mini-batches are compared.
        batch_size: images of each.
        draw: how a group's labels are drawn.
        matched: whether its mini-batches carry the same labels; ``None`` leaves it to the method.
        holdout: the fraction of each class that only ever validates.
        on_rare: what to do with a class that has too few images for a group.
    """

    num_batches: int = 8
    batch_size: int = 16
    draw: Draw = "shuffled"
    matched: bool | None = None
    holdout: float | None = None
    on_rare: OnRare = "raise"

    def __post_init__(self) -> None:
        validate(self)
        if self.num_batches < 2:
            raise SpecError(f"num_batches must be at least 2, or nothing could be compared, got {self.num_batches}")
        if self.batch_size < 1:
            raise SpecError(f"batch_size must be at least 1, got {self.batch_size}")
        check_not_above("num_batches", self.num_batches, MOST)
        check_not_above("batch_size", self.batch_size, MOST)
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise SpecError(f"holdout must be a fraction between 0 and 1, got {self.holdout}")

    @property
    def size(self) -> int:
        """Images of a whole group."""
        return self.num_batches * self.batch_size


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run.

    Attributes:
        data: the images.
        network: what is trained.
        method: what a group of mini-batches becomes.
        loss: of a mini-batch; images with several labels have binary cross-entropy.
        mixing: how the images of a mini-batch are blended in training, if they are.
        noise: how labels are made wrong, if they are.
        group: how images are grouped.
        epochs: passes over the training images.
        seed: decides initial weights, noise, groups, augmentation and dropout.
        precision: of forward passes; parameters and gradients are float32.
        passes: of the mini-batches that are compared, each by itself (``"single"``) or several in one forward and one
            backward pass (``"joined"``), which is faster where they are small. Results differ in dropout and rounding.
        threads: of torch on the CPU; other numbers add up in another order, and so give other results.
        evaluate_every: how many epochs lie between two evaluations; the last epoch is always evaluated.
        zeroed_steps: stop the run after so many consecutive steps in which nothing could be learned.
        shared_dropout: draw the same dropout masks for all mini-batches of a group.
        weight_averaging: evaluate and keep an exponential average of the weights over steps, BatchNorm's statistics
            included; the decay per step, 0.99 for instance, or ``None`` for the weights of the last step.
        audit: keep what the network says of every label during training, for ``deepbilevel audit``.
    """

    data: DataSpec
    network: NetworkSpec
    method: Annotated[Rule[Any], Kinds(RULES, find_loaded_rule, RuleNotLoaded.standing_for)] = field(
        default_factory=BilevelRule
    )
    loss: LossSpec = field(default_factory=CrossEntropy)
    mixing: Mixup | None = None
    noise: NoiseSpec | None = None
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    schedule: ScheduleSpec = field(default_factory=Constant)
    group: GroupSpec = field(default_factory=GroupSpec)
    epochs: int = 100
    seed: int = 0
    device: Device = "cpu"
    precision: Precision = "float32"
    passes: Passes = field(default="single", metadata=ADDED_LATER)
    threads: int = 1
    evaluate_every: int = 1
    zeroed_steps: int = 100
    shared_dropout: bool = field(default=False, metadata=ADDED_LATER)
    weight_averaging: float | None = field(default=None, metadata=ADDED_LATER)
    audit: bool = field(default=False, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        validate(self)
        for name in ("epochs", "threads", "evaluate_every", "zeroed_steps"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be at least 1, got {getattr(self, name)}")
            check_not_above(name, getattr(self, name), MOST_THREADS if name == "threads" else MOST)
        if not 0 <= self.seed < 2**32:
            raise SpecError(f"seed must lie in 0 .. 2**32 - 1, got {self.seed}")
        if self.weight_averaging is not None and not 0 < self.weight_averaging < 1:
            raise SpecError(
                f"weight_averaging must lie between 0 and 1, got {self.weight_averaging}; 0.99 averages over about 100 "
                "steps, null keeps the last weights"
            )
        if self.precision == "float16" and self.device == "cpu":
            raise SpecError("precision 'float16' needs a GPU; on a CPU take 'float32', which is also the fastest")
        if self.group.holdout is not None and not self.method.validates:
            raise SpecError(f"group.holdout is for methods that validate; {self.method.kind} would waste the images")
        if self.group.holdout is not None and isinstance(self.method, Uniform) and self.method.use_validation:
            raise SpecError("group.holdout only validates, but method.use_validation would learn from it; drop one")
        if self.group.num_batches < self.method.min_batches:
            raise SpecError(
                f"method {self.method.kind} needs a group.num_batches of at least {self.method.min_batches}, got "
                f"{self.group.num_batches}"
            )
        if self.shared_dropout and not self.method.splits:
            raise SpecError(
                f"shared_dropout is for methods that compare; {self.method.kind} takes the group as one batch"
            )
        if self.group.matched and not self.method.splits:
            raise SpecError(
                f"group.matched is for methods that compare; {self.method.kind} takes the group as one batch"
            )
        if self.mixing is not None and self.method.splits and self.group.batch_size == 1:
            raise SpecError(
                f"mixing {self.mixing.kind} blends images within a mini-batch, and group.batch_size 1 leaves an image "
                "alone with itself; take at least 2"
            )
        if self.audit and self.mixing is not None:
            raise SpecError(
                f"audit needs to see each image by itself, and mixing {self.mixing.kind} blends them; drop one"
            )
        if self.passes == "joined":
            self._check_joined_passes()
        self._check_labels()
        if isinstance(self.loss, ObjectiveSpec):
            self._check_objective(self.loss)
        if self.data.entry.holds == "images":
            self._check_images_fit()
        elif self.data.entry.holds == "rows":
            self._check_rows_fit()

    def _check_rows_fit(self) -> None:
        name, text = self.network.name, self.data.columns and self.data.columns.text
        if name.startswith(TRANSFORMERS):
            if text is None:
                raise SpecError(f"network {name} reads text; name the column of text with --text, or take network mlp")
            if self.mixing is not None:
                raise SpecError(f"mixing {self.mixing.kind} blends numbers, and words have no blend; drop it")
        elif not is_own_code(name) and (name.startswith(TIMM) or not NETWORKS[name].fits_rows):
            fitting = ", ".join(name for name, entry in NETWORKS.items() if entry.fits_rows)
            raise SpecError(
                f"network {name} takes images; networks for tables: {fitting}, code of your own, and for text "
                f"{TRANSFORMERS}FOLDER"
            )

    def _check_objective(self, loss: ObjectiveSpec) -> None:
        if self.mixing is not None and loss.not_with_mixing is not None:
            raise SpecError(
                f"mixing {self.mixing.kind} does not go with loss {loss.kind}, which {loss.not_with_mixing}; drop one"
            )
        if loss.only_with_sgd is not None and self.method.splits:
            raise SpecError(
                f"method {self.method.kind} does not go with loss {loss.kind}, which {loss.only_with_sgd}; take method "
                "sgd, or another loss"
            )
        loss.check_epochs(self.epochs)

    def _check_joined_passes(self) -> None:
        reason = None
        if isinstance(self.loss, ObjectiveSpec):
            reason = f"loss {self.loss.kind}, which makes the passes itself"
        elif self.shared_dropout:
            reason = "shared_dropout: in one pass dropout is drawn for every image"
        elif self.precision == "float16":
            reason = "precision 'float16', whose losses are scaled"
        if reason is not None:
            raise SpecError(f"passes 'joined' does not go with {reason}; take passes 'single'")

    def _check_labels(self) -> None:
        if self.data.entry.multi_label and self.noise is not None:
            raise SpecError(f"noise {self.noise} needs one label per image; {self.data.name} has several")
        if self.data.entry.multi_label and self.loss != CrossEntropy():
            raise SpecError(
                f"loss {self.loss.kind} needs one label per image; {self.data.name} has several, whose loss is binary "
                "cross-entropy: leave loss as it is"
            )
        if self.data.entry.multi_label and self.mixing is not None:
            raise SpecError(
                f"mixing {self.mixing.kind} needs one label per image; {self.data.name} has several, and some that do "
                "not count, which cannot be blended with those that do"
            )
        if self.noise is not None and self.data.train_figures == "split":
            raise SpecError(
                f"noise {self.noise} makes labels of the images wrong that are trained on, and data.train_figures "
                "'split' is of others too; take 'trained'"
            )
        if self.noise is not None and self.data.labels is not None:
            raise SpecError(
                f"noise {self.noise} would fall on data.labels {self.data.labels!r}, noisy already; drop one"
            )

    def _check_images_fit(self) -> None:
        if self.network.input_shape is None and self.data.view is not None:
            raise SpecError(f"network.side is missing: {self.network.name} does not say how large its images are")
        expected, given = self.network.input_shape, self._image_shape()
        if ":" in self.network.name:
            return
        try:
            seen = _shape_after(self.data.recipe, given)
            problem = f"gives {_times(seen)}" if seen != expected else None
        except ValueError as error:
            problem = f"cannot be had: {error}"
        if problem is not None and expected is not None:
            fitting = [
                name
                for name, entry in NETWORKS.items()
                if entry.input_shape[0] == given[0] and (entry.sides or entry.input_shape[1:])[0] <= given[1]
            ]
            raise SpecError(
                f"network {self.network.name} takes images of {_times(expected)}, but {self.data.name} by the recipe "
                f"{self.data.recipe!r} {problem}; networks for these images, each with its recipe: {', '.join(fitting)}"
            )

    def _image_shape(self) -> tuple[int, ...]:
        """Return the shape in which images reach the recipe."""
        if self.data.view is None:
            return self.data.entry.image_shape or (3, 0, 0)
        side = find_view(self.data.view, self.network_side).size
        return (3, side, side)

    @property
    def network_side(self) -> int:
        """The side of the images that the network takes."""
        shape = self.network.input_shape
        assert shape is not None  # a view of files needs a side, and a spec without one is refused
        return shape[1]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, height and width of the images as the network sees them."""
        return self.network.input_shape or _shape_after(self.data.recipe, self._image_shape())

    @staticmethod
    def upgraded(plain: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what an earlier version wrote in today's form."""
        return upgraded(plain)

    @staticmethod
    def as_first_written(plain: dict[str, Any]) -> dict[str, Any]:
        """Return the form whose hash is the id, so that a run keeps the id it always had."""
        return as_first_written(plain)

    @property
    def id(self) -> str:
        """The name of exactly this run."""
        return spec_id(self)

    @property
    def name(self) -> str:
        """What the run is, for people: data, network, method, loss and mixing if they are unusual, and noise."""
        loss = None if isinstance(self.loss, CrossEntropy) else self.loss.kind
        mixing = self.mixing and self.mixing.kind
        averaging = None if self.weight_averaging is None else "averaged"
        noise = self.noise and str(self.noise)
        labels = self.data.labels and Path(self.data.labels).stem  # of a table, its name
        place, _, network = self.network.name.rpartition(":")
        network = "-".join(filter(None, (Path(place).stem, Path(network).name)))  # of code and folders no path
        parts = [self.data.name, labels, network, self.method.kind, loss, mixing, averaging, noise]
        return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(part for part in parts if part))

    @property
    def matched(self) -> bool:
        """Whether the mini-batches of a group carry the same labels."""
        return self.method.matches if self.group.matched is None else self.group.matched


@cache  # specs are made by the hundred
def _shape_after(recipe: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which the network sees images of that shape."""
    image, number = torch.zeros(1, *shape, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
    return tuple(find_recipe(recipe).apply("test", image, indices=number, split="test").shape[1:])


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
