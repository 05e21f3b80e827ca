"""Sizes at which an experiment can be made: as in the paper, on two processor cores in an evening, in seconds.

A scale is data. It says in a sentence how a run became smaller; nothing else of the run differs.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from deepbilevel.checks import choose
from deepbilevel_lab.losses import ObjectiveSpec
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.schedules import Exponential, ScheduleSpec
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_paper.recipes import full_split, tested_images, trained_images


@dataclass(frozen=True)
class Reduction:
    """How much smaller the runs on some data, or with some network, become.

    Attributes:
        images: to train on; of an experiment with part of the data, the same part of these.
        test_images: to test on.
        epochs: the share of the epochs, at least one.
        most_epochs: however many that would be.
        rate_per_image: let the learning rate fall per image seen as in the paper, and not per epoch as there.
        evaluate_every: how many epochs lie between two evaluations; None leaves it.
        network: a narrower one that takes the place of the network, trained alike; None leaves it.
    """

    images: int
    test_images: int
    epochs: float
    most_epochs: int = sys.maxsize
    rate_per_image: bool = False
    evaluate_every: int | None = None
    network: str | None = None


@dataclass(frozen=True)
class Scale:
    """A size of experiments.

    Attributes:
        description: for people.
        reductions: by the name of the experiment, or else of the data, or of the network; none leaves runs as they are.
        stands_in: the network that takes the place of the large ones, with its own images and optimizer.
        made_data: train on synthetic images in the layout of the real ones. Keep such runs in their own folder.
    """

    name: str
    description: str
    reductions: Mapping[str, Reduction] | None = None
    stands_in: str | None = None
    made_data: bool = False

    def reduce(self, spec: RunSpec, experiment: str = "") -> RunSpec:
        """Return the paper's run at this scale; the experiment it is made for may be reduced more than others."""
        if self.reductions is None:
            return spec
        names = (experiment, spec.data.name, spec.network.name)
        reduction = next(self.reductions[name] for name in names if name in self.reductions)
        if self.stands_in is not None:
            spec = _tiny_groups(spec if spec.network.name in _SMALL else _with_network(spec, self.stands_in))
        if reduction.network is not None:
            spec = replace(spec, network=replace(spec.network, name=reduction.network))
        share = min(1.0, reduction.images / full_split(spec.data))
        images = max(round(share * trained_images(spec.data)), spec.group.size)
        return replace(
            spec,
            data=replace(spec.data, limit=images, test_limit=min(reduction.test_images, tested_images(spec.data))),
            epochs=max(_least_epochs(spec), min(round(reduction.epochs * spec.epochs), reduction.most_epochs)),
            schedule=_per_image(spec.schedule, share) if reduction.rate_per_image else spec.schedule,
            evaluate_every=reduction.evaluate_every or spec.evaluate_every,
        )

    def describe(self, spec: RunSpec, experiment: str = "") -> str:
        """Say in a sentence how one of the paper's runs became smaller.

        >>> PAPER.describe(default_spec("cifar10"))
        'as in the paper'
        """
        if self.reductions is None:
            return "as in the paper"
        own = self.reduce(spec, experiment)
        parts = [
            f"{trained_images(own.data):,} of {trained_images(spec.data):,} training images",
            f"{tested_images(own.data):,} of {tested_images(spec.data):,} test images",
            f"{own.epochs} of {spec.epochs} epochs",
        ]
        if own.schedule != spec.schedule:
            parts.append("the learning rate falling per image seen as in the paper, so that it ends higher")
        if own.evaluate_every > spec.evaluate_every:
            parts.append(f"evaluated every {own.evaluate_every} epochs")
        if own.group.batch_size != spec.group.batch_size:
            parts.append(f"mini-batches of {own.group.batch_size} instead of {spec.group.batch_size}")
        if own.network.name != spec.network.name:
            parts.append(f"{own.network.name} instead of {spec.network.name}")
        if self.made_data:
            parts.append("on synthetic images")
        return ", ".join(parts)


def _least_epochs(spec: RunSpec) -> int:
    return 2 if isinstance(spec.loss, ObjectiveSpec) else 1  # what warms up needs an epoch for it, and one after


_SMALL = ("cifarnet", "inception")


def _per_image(schedule: ScheduleSpec, share: float) -> ScheduleSpec:
    # An epoch over a tenth of the images is a tenth of an epoch. Decayed in full after every one, or over the whole
    # shorter run as far as in the paper, the rate would be gone before the network has learned a thing.
    if not isinstance(schedule, Exponential):
        return schedule
    return replace(schedule, factor_per_epoch=schedule.factor_per_epoch**share)


def _tiny_groups(spec: RunSpec) -> RunSpec:
    # The number of binary digits: small, and still another for every size that is compared.
    batch_size = spec.group.batch_size.bit_length()
    return replace(spec, group=replace(spec.group, batch_size=batch_size, on_rare="repeat"))


def _with_network(spec: RunSpec, name: str) -> RunSpec:
    usual = default_spec(spec.data.name, name)
    weights = spec.network.weights if referred_run(spec.network.weights) else None
    return replace(
        spec,
        network=replace(spec.network, name=name, weights=weights),
        data=replace(spec.data, recipe=usual.data.recipe, view=usual.data.view, test_crops=1),
        optimizer=usual.optimizer,
    )


PAPER = Scale("paper", "the full recipe")

# Inception, whose rate starts high, memorises only when it has fallen: it keeps the paper's schedule, which moves next
# to nothing after 100 epochs, and has few images instead.
_INCEPTION = Reduction(2_500, 2_000, epochs=1.0, most_epochs=100, evaluate_every=10, network="inception_half")

COMPACT = Scale(
    "compact",
    "the same on part of the real images, on two processor cores in an evening",
    # Images a second that a core trains on: CifarNet 370, Inception 50 and its half 160, AlexNet 20 to 30, ResNet-50 6.
    # PreAct ResNet-18 reaches 20, so a narrow one takes its place. Most runs then take 5 minutes to an hour.
    reductions=MappingProxyType(
        {
            "cifarnet": Reduction(5_000, 2_000, epochs=0.2, rate_per_image=True, evaluate_every=4),
            "inception": _INCEPTION,
            # 40 runs. CIFAR-100 has 16 of these images per class, twice as many as mini-batches that need one each.
            "noise-curves-inception": replace(_INCEPTION, images=1_600),
            "preact_resnet18": Reduction(5_000, 5_000, epochs=0.2, evaluate_every=4, network="preact_resnet8"),
            "imagenet": Reduction(10_000, 2_000, epochs=0.1, evaluate_every=3),
            "clothing1m": Reduction(2_000, 1_000, epochs=1.0, evaluate_every=5),
            "voc2007": Reduction(1_000, 500, epochs=0.06, evaluate_every=30),
        }
    ),
)

SMOKE = Scale(
    "smoke",
    "seconds per run, on synthetic images: shows that everything works, and nothing else",
    reductions=MappingProxyType(
        {
            "cifar10": Reduction(50, 20, epochs=0.0, evaluate_every=1),
            "cifar100": Reduction(200, 20, epochs=0.0, evaluate_every=1),
            "imagenet": Reduction(96, 24, epochs=0.0, evaluate_every=1),
            "clothing1m": Reduction(56, 28, epochs=0.0, evaluate_every=1),
            "voc2007": Reduction(200, 40, epochs=0.0, evaluate_every=1),
        }
    ),
    stands_in="cifarnet",
    made_data=True,
)

SCALES: Mapping[str, Scale] = MappingProxyType({scale.name: scale for scale in (PAPER, COMPACT, SMOKE)})


def find_scale(name: str) -> Scale:
    """Return the scale of that name; an unknown one gets the nearest."""
    return SCALES[choose("scale", name, SCALES)]
