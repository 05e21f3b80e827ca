"""A small task with wrong labels, and the loop of one's own that every trainer must agree with."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import GroupStep, MatchedGroups
from deepbilevel.distributed import share
from deepbilevel.rules.bilevel import BilevelRule

K, BATCH_SIZE, SEED = 4, 6, 3
NUM_GROUPS = 5  # of an epoch


def make_data(dtype=torch.float64):
    random = torch.Generator().manual_seed(1)
    labels = torch.arange(K * BATCH_SIZE * NUM_GROUPS) % 3
    inputs = torch.randn(len(labels), 5, generator=random, dtype=dtype) + F.one_hot(labels, 5)
    wrong = torch.rand(len(labels), generator=random) < 0.3
    return inputs, torch.where(wrong, (labels + 1) % 3, labels)


def make_network(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)


def vector(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def plain_loop(
    *, epochs=2, rule=None, spread="nothing", clip=None, make_optimizer=None, make_scheduler=None, steps=None
):
    """Return the parameters after some epochs of a loop without any trainer; schedulers step with the optimizer."""
    inputs, labels = make_data()
    model = make_network()
    optimizer = (make_optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)))(model.parameters())
    scheduler = None if make_scheduler is None else make_scheduler(optimizer)
    step = share(GroupStep(model, rule or BilevelRule(), num_batches=K), spread)
    groups = share(MatchedGroups(labels, num_batches=K, batch_size=BATCH_SIZE, seed=SEED), spread)
    taken = 0
    for _ in range(epochs):
        for x, y in DataLoader(TensorDataset(inputs, labels), batch_sampler=groups):
            step.backward(F.cross_entropy(model(x), y))
            if step.full:
                step.fill()
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()
                taken += 1
                if scheduler is not None:
                    scheduler.step()
                if taken == steps:
                    return vector(model)
    return vector(model)
