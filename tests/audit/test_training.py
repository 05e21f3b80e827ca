"""The audit in real training: handwritten digits of which a fifth are mislabelled, with and without groups."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from deepbilevel import GroupStep, MatchedGroups
from deepbilevel.audit import LabelAudit
from deepbilevel.rules.cross_validated import CrossValidatedRule
from tests.audit.test_mixture import auroc


def mislabelled_digits(seed):
    pixels, clean = load_digits(return_X_y=True)
    random = np.random.RandomState(seed)
    flipped = random.rand(len(clean)) < 0.2
    labels = np.where(flipped, (clean + random.randint(1, 10, len(clean))) % 10, clean)
    return torch.from_numpy(pixels / 16).float(), labels, clean, flipped


def audit_training(seed, *, num_batches):
    """Train a small network, in groups if there is more than one mini-batch; return the audit and the truth."""
    images, labels, clean, flipped = mislabelled_digits(seed)
    targets = torch.from_numpy(labels)
    torch.manual_seed(seed)
    layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    last = nn.Linear(64, 10)
    model = nn.Sequential(layers, last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    audit = LabelAudit(labels, num_classes=10)
    if num_batches == 1:
        random = torch.Generator().manual_seed(seed)
        for _ in range(15):
            for indices in torch.randperm(len(labels), generator=random).split(64):
                logits = model(images[indices])
                audit.observe(indices, logits, labels=targets[indices])
                optimizer.zero_grad()
                F.cross_entropy(logits, targets[indices]).backward()
                optimizer.step()
        return audit, clean, flipped
    step = GroupStep(model, CrossValidatedRule(), num_batches=num_batches)
    groups = MatchedGroups(labels, num_batches=num_batches, batch_size=16, seed=seed)
    for _ in range(15):
        for indices in groups:
            features = layers(images[indices])
            logits = last(features)
            audit.observe(indices, logits, features=features)
            step.backward(F.cross_entropy(logits, targets[indices]))
            if step.full:
                step.fill()
                optimizer.step()
    return audit, clean, flipped


@pytest.mark.parametrize("num_batches", [1, 8])
def test_mislabelled_digits_are_found(num_batches):
    """Over ten seeds the least AUROC was 0.995, and 0.93 of as many as are wrong; by chance it is 0.5 and 0.2."""
    audit, clean, flipped = audit_training(0, num_batches=num_batches)
    issues = audit.issues()
    assert auroc(-audit.scores(), flipped) > 0.9
    assert issues.noise_rate.told_apart
    found = issues.index[: flipped.sum()]
    assert flipped[found].mean() > 0.7
    right = found[flipped[found]]
    suggested = dict(zip(issues.index, issues.predicted_label, strict=True))
    assert np.mean([suggested[index] == clean[index] for index in right]) > 0.7
