"""Image files: ImageNet and Clothing1M of section 4.3, and the small training sets of section 4.4."""

from dataclasses import replace
from typing import Any

from deepbilevel.contract import Rule
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.run_references import refer_to
from deepbilevel_paper.experiment import Cell, Experiment
from deepbilevel_paper.published import CLOTHING1M, IMAGENET
from deepbilevel_paper.recipes import BILEVEL, GROUP_OF_128, OWN_DROPOUT, SGD, full_split, recipe

PRETRAINED = "data:resnet50-0676ba61.pth"
"""ResNet-50 trained on ImageNet, as torchvision publishes it, in the folder of the data sets."""

_ROWS: dict[str, Rule[Any]] = {"SGD": SGD, "Bilevel": BILEVEL}
_VOC_FRACTIONS = (0.1, 0.25, 0.5, 0.75, 1.0)


def _imagenet() -> list[Cell]:
    spec = recipe("imagenet", "alexnet")
    # Which classes a trained network predicts often enough is not known before.
    spec = replace(spec, group=replace(GROUP_OF_128, on_rare="repeat"), epochs=90)
    labeller = replace(spec, method=SGD)
    noisy = replace(spec, data=replace(spec.data, labels=refer_to(labeller.id)))
    return [
        *(Cell(row, "clean", replace(spec, method=method)) for row, method in _ROWS.items()),
        *(Cell(row, "44 % noise", replace(noisy, method=method), before=(labeller,)) for row, method in _ROWS.items()),
    ]


def _clothing1m() -> list[Cell]:
    spec = replace(recipe("clothing1m", "resnet50"), network=NetworkSpec("resnet50", weights=PRETRAINED))
    cells: list[Cell] = []
    for row, method in _ROWS.items():
        noisy = replace(spec, method=method)
        tuned = replace(
            noisy,
            data=replace(spec.data, split="clean_train"),
            network=NetworkSpec("resnet50", weights=refer_to(noisy.id)),
        )
        cells += [Cell(row, "noisy labels", noisy), Cell(row, "then clean labels", tuned, before=(noisy,))]
    return cells


def _voc2007() -> list[Cell]:
    spec = recipe("voc2007", "alexnet")
    # The smallest part may have fewer images of a class than there are mini-batches.
    spec = replace(spec, group=replace(spec.group, on_rare="repeat"), evaluate_every=50)
    spec = replace(spec, data=replace(spec.data, train_figures="split"))  # "the complete trainval set"
    images = full_split(spec.data)
    return [
        Cell(
            row,
            "VOC 2007",
            replace(spec, method=method, data=replace(spec.data, limit=round(fraction * images))),
            x=fraction,
        )
        for row, method in _ROWS.items()
        for fraction in _VOC_FRACTIONS
    ]


LARGE_DATA = (
    Experiment(
        "imagenet",
        "ImageNet with a network's mistakes for labels",
        where="section 4.3, table 4",
        varies="the method, and whether labels are as published or predicted",
        plan=_imagenet,
        published=IMAGENET,
        assumes=(
            "the network whose predictions are the noisy labels is ours trained by SGD on the clean ones, dropout left "
            "on; the share of wrong labels is whatever that gives, 44 % in the paper",
            "groups of 8 x 16, 90 epochs in five phases of equal length, the learning rate from 0.01 down 250-fold",
            OWN_DROPOUT,
        ),
    ),
    Experiment(
        "clothing1m",
        "Clothing1M",
        where="section 4.3, in the text",
        varies="noisy labels alone, or clean ones after them",
        plan=_clothing1m,
        published=CLOTHING1M,
        assumes=(
            "groups of 4 x 8, 5 epochs at 0.001 and 5 at 0.0001, weight decay 0.001, as Patrini et al.; the same again "
            "on the clean labels",
            "SGD is ours, for comparison: the paper has no such row",
        ),
    ),
    Experiment(
        "voc2007",
        "Small training sets: VOC 2007",
        where="section 4.4, the figure of VOC 2007",
        varies="the fraction of the images of trainval",
        plan=_voc2007,
        assumes=(
            "the text does not name the fractions; these are ours",
            "groups of 4 x 16",
            OWN_DROPOUT,
        ),
    ),
)
