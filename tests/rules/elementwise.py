"""Gradients of one's choice for rules that look at every parameter by itself."""

import numpy as np
import torch
from torch import nn

from deepbilevel import GroupStep
from tests.rules.test_cross_validated import TwoLayers


def step(rule, rows, *, dtype=torch.float64):
    """Hand one group of given gradients [k, 10] to a rule; return the gradient it fills, flat, and its report."""
    model = TwoLayers(dtype)
    made = GroupStep(model, rule, num_batches=len(rows))
    for row in torch.as_tensor(np.asarray(rows), dtype=dtype):
        parts = row.split([p.numel() for p in model.parameters()])
        made.backward(sum((p.flatten() * part).sum() for p, part in zip(model.parameters(), parts, strict=True)))
    report = made.fill()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), report


def on_vectors(rule, rows):
    """Hand one group of given gradients [k, d] to a rule; return its only parameter and its report."""
    parameter = nn.Parameter(torch.zeros(len(rows[0]), dtype=torch.float64))
    made = GroupStep([parameter], rule, num_batches=len(rows))
    for row in rows:
        made.backward(parameter @ torch.tensor(row, dtype=torch.float64))
    return parameter, made.fill()
