"""Section 4.2 and the curves of section 4.3: images and labels that can only be learned by heart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deepbilevel.contract import Rule
from deepbilevel_paper.experiment import Cell, Experiment
from deepbilevel_paper.published import PIXEL_PERMUTATION
from deepbilevel_paper.recipes import BILEVEL, GROUP_OF_64, GROUP_OF_128, OWN_DROPOUT, SGD, recipe, with_noise

_ROWS: dict[str, Rule[Any]] = {"SGD": SGD, "Bilevel": BILEVEL}
_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
_NOISE_RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def _permuted_pixels() -> list[Cell]:
    spec = recipe("cifar10", "inception")
    spec = replace(spec, data=replace(spec.data, recipe="pixel-permutation"), group=GROUP_OF_128, epochs=200)
    return [Cell(row, "Inception, permuted pixels", replace(spec, method=method)) for row, method in _ROWS.items()]


def _noise_curves(network: str) -> Callable[[], list[Cell]]:
    def plan() -> list[Cell]:
        return [
            Cell(row, shown, with_noise(replace(spec, method=method), rate), x=rate)
            for data, shown in _DATA.items()
            for spec in [replace(recipe(data, network), group=GROUP_OF_64, epochs=100)]
            for row, method in _ROWS.items()
            for rate in _NOISE_RATES
        ]

    return plan


MEMORIZATION = (
    Experiment(
        "pixel-permutation",
        "Images with permuted pixels",
        where="section 4.2, table 2",
        varies="the method",
        plan=_permuted_pixels,
        published=PIXEL_PERMUTATION,
        assumes=(OWN_DROPOUT, "every image has a permutation of its own, test images too"),
    ),
    Experiment(
        "noise-curves-cifarnet",
        "Wrong labels, CifarNet",
        where="section 4.3, the figure of CifarNet",
        varies="the share of wrong labels",
        plan=_noise_curves("cifarnet"),
        assumes=(OWN_DROPOUT,),
    ),
    Experiment(
        "noise-curves-inception",
        "Wrong labels, Inception",
        where="section 4.3, the figure of the Inception network",
        varies="the share of wrong labels",
        plan=_noise_curves("inception"),
        assumes=(OWN_DROPOUT,),
    ),
)
