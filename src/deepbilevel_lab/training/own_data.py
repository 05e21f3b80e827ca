"""What images of one's own are trained with by default, and why: chosen from their number and their size.

Every choice ends up in the spec; the reasons are for people. Published data sets get the paper's recipes instead
(``defaults.py``).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepbilevel.rules.average import Sgd
from deepbilevel_lab.data import ImagesOnDisk, load_data
from deepbilevel_lab.data.survey import Survey, survey
from deepbilevel_lab.losses import CrossEntropy
from deepbilevel_lab.networks.named_code import TRANSFORMERS
from deepbilevel_lab.training.sets import load_sets
from deepbilevel_lab.training.spec import GroupSpec, RunSpec

REMEDY = {"method": "sgd", "mixing": "mixup"}
"""How wrong labels are met by default. One place, so that new evidence changes one line.

Of the methods that end highest in docs/results.md (mixup, ELR, GCE), mixup is the one that no learning rate of the grid
ruins, with wrong labels and without; it costs what SGD costs. See docs/photographs.md for the same on photographs, and
docs/tables.md for tables and text.
"""
REMEDY_REASON = "meets wrong labels at the price of SGD, at any usual learning rate; if labels are right: --method sgd"

_SIDES = ((96, 64), (192, 128))  # up to that shorter side of the images, the network sees so many pixels
_LARGE_SIDE, _LARGE_NUMBER = 224, 5_000
_STEPS_PER_EPOCH = 8
_GROUP_SIZES = (8, 128)
_MOST_TEXTS = 32  # of a group, as tokens: a network that reads text needs 100 MB for a long one
_EPOCHS = ((5_000, 100), (50_000, 50))  # up to so many images
_FEWEST_EPOCHS = 20
_EVALUATIONS = 20  # of a run; photographs are decoded anew for each, so one per epoch would double the time


Reasons = dict[str, str]
"""Why a setting is what it is, by its dotted key."""


@dataclass(frozen=True)
class Choice:
    """Settings of a run, and why they are what they are."""

    settings: dict[str, Any]
    reasons: Reasons


FOR_TOKENS = Choice(
    {
        "method": "sgd",
        "optimizer": {"name": "AdamW", "lr": 5e-5},
        "schedule": {"kind": "cosine", "warmup": 0.1},
        "epochs": 4,
    },
    {
        "optimizer": "AdamW with a small learning rate, as such networks are usually fine-tuned",
        "epochs": "4: more would memorise wrong labels; from scratch it takes many more",
    },
)
"""How a network of transformers that reads text is trained by default; words cannot be mixed up."""


def look_at(name: str, path: str) -> Survey | str:
    """Look at one's own images; where that cannot be, return why, and leave it to training to fail of it."""
    try:
        data = load_data(name, Path(path))
    except (OSError, ValueError) as error:
        return str(error)
    assert isinstance(data, ImagesOnDisk)
    return survey(data)


def choose_side(found: Survey | str) -> tuple[int, str]:
    """Return how many pixels the network sees along a side, and why."""
    if isinstance(found, str) or found.side is None:
        return 128, "128 pixels, because the images could not be looked at"
    about = f"the images are {found.side} pixels at their shorter side (median)"
    for most, side in _SIDES:
        if found.side <= most:
            return side, f"{side} pixels, because {about}"
    if found.num_images < _LARGE_NUMBER:
        few = f"{found.num_images:,} images are too few for details that need more"
        return 128, f"128 pixels: {about}, but {few}"
    return _LARGE_SIDE, f"{_LARGE_SIDE} pixels, because {about} and there are {found.num_images:,}"


def choose_schedule(found: Survey | str) -> Choice:
    """Return how long to train, and with which learning rate."""
    count = 0 if isinstance(found, str) else found.num_images
    epochs = next((epochs for most, epochs in _EPOCHS if count <= most), _FEWEST_EPOCHS)
    return Choice(
        {
            "optimizer": {"name": "SGD", "lr": 0.05, "arguments": {"momentum": 0.9, "weight_decay": 5e-4}},
            "schedule": {"kind": "cosine", "warmup": 0.05},
            "epochs": epochs,
            "weight_averaging": 0.99,
        },
        {
            "epochs": f"{epochs}, fewer where there are more images",
            "schedule": "a short warm-up, then half a cosine down to zero, so that the last epoch is the one to keep",
            "weight_averaging": "the average of the last hundred steps or so errs less than any of them",
        },
    )


def without_remedy(spec: RunSpec, reasons: Reasons, *, averaging: bool = True) -> tuple[RunSpec, Reasons]:
    """Return a run that does nothing about wrong labels: plain SGD and cross-entropy, averaged weights if wanted."""
    dropped = [*REMEDY, *([] if averaging else ["weight_averaging"])]
    spec = replace(spec, method=Sgd(), loss=CrossEntropy(), mixing=None)
    spec = spec if averaging else replace(spec, weight_averaging=None)
    return spec, {key: reason for key, reason in reasons.items() if key not in dropped}


def space_evaluations(spec: RunSpec) -> RunSpec:
    """Return the run with evaluations that take a small part of its time, however long it is."""
    return replace(spec, evaluate_every=max(1, spec.epochs // _EVALUATIONS))


def fit_groups(spec: RunSpec, data_dir: Path, *, fixed: Collection[str] = ()) -> tuple[RunSpec, str]:
    """Return the run with groups that its images can fill, and why they are of that size.

    Args:
        spec: a run, complete but for its groups.
        data_dir: where published data sets lie.
        fixed: dotted keys that somebody has decided, and that stay.
    """
    try:
        labels = load_sets(spec.data, data_dir, noise=spec.noise, seed=spec.seed).train.labels
    except (OSError, ValueError) as error:
        return spec, f"the usual sizes, because the data could not be counted: {error}"
    sizes = labels.unique(return_counts=True)[1].tolist()
    reads_tokens = spec.data.entry.holds == "rows" and spec.network.name.startswith(TRANSFORMERS)
    num_batches, batch_size = group_size(
        sizes,
        num_batches=spec.group.num_batches if "group.num_batches" in fixed else None,
        batch_size=spec.group.batch_size if "group.batch_size" in fixed else None,
        most=_MOST_TEXTS if reads_tokens else _GROUP_SIZES[1],
    )
    group = replace(spec.group, num_batches=num_batches, batch_size=batch_size)
    if "group.on_rare" not in fixed:
        group = replace(group, on_rare="repeat")
    steps = sum(sizes) // group.size
    reason = f"{num_batches} x {batch_size} samples, which makes {steps:,} steps of an epoch on {sum(sizes):,}"
    return replace(spec, group=group), f"{reason} to train on, of {len(sizes)} classes, the smallest {min(sizes)}"


def group_size(
    class_sizes: Sequence[int],
    *,
    num_batches: int | None = None,
    batch_size: int | None = None,
    most: int = _GROUP_SIZES[1],
) -> tuple[int, int]:
    """Return how many mini-batches of how many samples these classes can fill, some steps an epoch.

    >>> group_size([1000] * 10), group_size([13] * 10), group_size([3, 2])
    ((8, 16), (4, 4), (2, 2))
    """
    total, usual = sum(class_sizes), GroupSpec()
    wanted = min(most, max(_GROUP_SIZES[0], 1 << max(0, (total // _STEPS_PER_EPOCH).bit_length() - 1)))
    count = num_batches or (usual.num_batches if wanted >= 64 else 4)
    size = batch_size or max(1, wanted // count)

    def fits() -> bool:
        room = sum(max(1, each // count) for each in class_sizes)  # without an image twice in a group
        return count * size <= total and size <= room

    while batch_size is None and size > 2 and not fits():
        size //= 2
    while num_batches is None and count > 2 and not fits():
        count //= 2
    return count, size
