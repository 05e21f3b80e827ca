"""The recipes the experiments start from, as the paper gives them, and how many images their runs have.

What a spec fills in by itself is not repeated. Recipes are for one thread on the CPU, so that a run has the same id on
every machine. Numbers of images are those the catalog of data sets gives, so that the cost of a run is known before its
data is there.
"""

import sys
from dataclasses import replace

from deepbilevel.rules.average import Sgd
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel_lab.data.spec import DataSpec
from deepbilevel_lab.noise import NoiseSpec
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.spec import GroupSpec, RunSpec

NETWORK_NAMES = {"cifarnet": "CifarNet", "inception": "Inception"}

# "Mini-batches of size 128" are the whole group: SGD then sees as many images in as many steps.
GROUP_OF_128 = GroupSpec(num_batches=8, batch_size=16)
# Of part of CIFAR-100, with most labels wrong, a class may be left with fewer than 8 images.
GROUP_OF_64 = GroupSpec(num_batches=8, batch_size=8, on_rare="repeat")

SGD = Sgd()
BILEVEL = BilevelRule(mu=0.01, lam=1.0)
"""Dropout is drawn for every mini-batch, as in the code the paper's authors published; but see :func:`ablation`."""

OWN_DROPOUT = "the paper does not say whether mini-batches share dropout here; ours do not, as in its authors' code"


def recipe(data: str, network: str | None = None) -> RunSpec:
    """Return the paper's recipe for a network on some data, on one thread of the CPU."""
    return replace(default_spec(data, network), device="cpu", threads=1, seed=0)


def ablation(network: str, noise_rate: float) -> RunSpec:
    """Return the baseline of the ablations: CIFAR-10, groups of 128, 200 epochs, the same dropout in a whole group."""
    baseline = recipe("cifar10", network)
    return with_noise(
        replace(baseline, method=BILEVEL, shared_dropout=True, group=GROUP_OF_128, epochs=200), noise_rate
    )


def with_noise(spec: RunSpec, rate: float) -> RunSpec:
    """Return the run with the paper's noise: so many labels of every class become one of the other classes."""
    return replace(spec, noise=NoiseSpec("uniform", rate) if rate else None)


def trained_images(data: DataSpec) -> int:
    """Return how many images a run trains on."""
    return min(full_split(data), data.limit or sys.maxsize)


def rated_images(data: DataSpec) -> int:
    """Return of how many images the figures of training are."""
    return trained_images(data) if data.train_figures == "trained" else full_split(data)


def tested_images(data: DataSpec) -> int:
    """Return how many images a run is tested on."""
    return min(data.entry.num_images[data.entry.test_split or ""], data.test_limit or sys.maxsize)


def full_split(data: DataSpec) -> int:
    """Return how many images the split has that a run trains on, or on part of."""
    return data.entry.num_images[data.train_split]
