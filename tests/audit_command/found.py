"""Folders with wrong labels, and audits of them that need no training."""

import csv

import numpy as np
import torch

from deepbilevel.audit import LabelAudit
from deepbilevel_lab.audit import Findings, write_findings
from deepbilevel_lab.data import ImagesInMemory
from deepbilevel_lab.training.defaults import default_spec
from tests.cli.trained import write_picture

HOSTILE = '</script><img src=x onerror="document.title=1">&=1+1'
QUICK = ("--method", "sgd", "--threads", "1", "--quiet")
SMALL_GROUPS = ("--set", "group.num_batches=2", "--set", "group.batch_size=8")


def write_flipped(root, per_class=40, num_flipped=6):
    """Write pictures of two colours, some of each in the folder of the other, and return the names of these."""
    flipped = set()
    for colour, other in (("blue", "red"), ("red", "blue")):
        for number in range(per_class):
            folder = other if number < num_flipped else colour
            name = f"{folder}/{colour}-{number}.jpg"
            write_picture(root / name, colour, seed=number)
            if number < num_flipped:
                flipped.add(name)
    return flipped


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def make_findings(num_images=200, class_names=("cat", "dog", "cow"), files=None, *, side=8, told_apart=True):
    """Return an audit of images of which every tenth label is wrong, or one that knows nothing."""
    random = np.random.RandomState(0)
    truth = torch.arange(num_images) % len(class_names)
    labels = torch.where(torch.arange(num_images) % 10 == 0, (truth + 1) % len(class_names), truth)
    audit = LabelAudit(labels, num_classes=len(class_names))
    strength = 6.0 if told_apart else 0.0
    for _ in range(3):
        noise = torch.from_numpy(random.randn(num_images, len(class_names)))
        audit.observe(range(num_images), strength * torch.nn.functional.one_hot(truth, len(class_names)) + noise)
    images = torch.zeros(num_images, 3, side, side, dtype=torch.uint8)
    images[torch.arange(num_images), truth % 3] = 200
    return Findings(
        issues=audit.issues(),
        probabilities=audit.pred_probs(),
        curves=audit.curves(),
        data=ImagesInMemory(images=images, labels=labels, class_names=class_names),
        files=files or [""] * num_images,
        class_names=class_names,
        spec=default_spec("folder", path="photos"),
    )


def make_multi_label_findings(num_images=200):
    """Return an audit of images that are cats, dogs, both or neither; every tenth has both labels wrong."""
    names = ("cat", "dog")
    truth = torch.stack([torch.arange(num_images) % 2, torch.arange(num_images) // 2 % 2], dim=1)
    labels = torch.where(torch.arange(num_images)[:, None] % 10 == 0, 1 - truth, truth)
    audit = LabelAudit(labels, num_classes=2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        audit.observe(range(num_images), 8.0 * truth - 4 + torch.randn(num_images, 2, generator=generator))
    images = torch.zeros(num_images, 3, 8, 8, dtype=torch.uint8)
    return Findings(
        issues=audit.issues(),
        probabilities=audit.pred_probs(),
        curves=audit.curves(),
        data=ImagesInMemory(images=images, labels=labels, class_names=names),
        files=[""] * num_images,
        class_names=names,
        spec=default_spec("folder", path="photos"),
    )


def write_page(folder, **settings):
    return write_findings(make_findings(**settings), folder).page
