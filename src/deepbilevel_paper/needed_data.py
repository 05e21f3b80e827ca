"""Which data an experiment needs, what of it is not there, and how to get it.

It looks for the files that give a data set away and opens none of them; what is damaged shows when it is loaded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100, CifarRelease
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_paper.experiment import Experiment
from deepbilevel_paper.large_data import PRETRAINED


@dataclass(frozen=True)
class Requirement:
    """Something that has to be in the data folder.

    Attributes:
        name: of the data set, or what else it is.
        signs: places under the data folder; every group of alternatives must have one that exists.
        remedy: how to get it; ``{dir}`` stands for the data folder.
    """

    name: str
    signs: tuple[tuple[str, ...], ...]
    remedy: str

    def is_met(self, data_dir: Path) -> bool:
        """Whether it is there."""
        return all(any((data_dir / place).exists() for place in places) for places in self.signs)


@dataclass(frozen=True)
class Missing:
    """What is not there, and what to do about it."""

    name: str
    remedy: str


def _cifar(release: CifarRelease) -> Requirement:
    signs = ((f"{release.folder}/{release.meta_file}", release.meta_file),)
    return Requirement(release.name, signs, f"deepbilevel data fetch {release.name} --dir {{dir}}")


_VOC_SERVER = "http://host.robots.ox.ac.uk/pascal/VOC/voc2007"

_DATA_SETS: Mapping[str, Requirement] = MappingProxyType(
    {
        "cifar10": _cifar(CIFAR10),
        "cifar100": _cifar(CIFAR100),
        "voc2007": Requirement(
            "voc2007",
            (tuple(f"{root}ImageSets/Main/dog_test.txt" for root in ("VOCdevkit/VOC2007/", "VOC2007/", "")),),
            f"fetch VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar from {_VOC_SERVER}; unpack both in {{dir}}",
        ),
        "imagenet": Requirement(
            "imagenet",
            (("train",), ("val",)),
            "fetch ILSVRC2012 from https://image-net.org, which asks for an account; unpack the training images into "
            "{dir}/train/<wnid>/ and sort the validation images into {dir}/val/<wnid>/",
        ),
        "clothing1m": Requirement(
            "clothing1m",
            (("noisy_train_key_list.txt",), ("clean_test_key_list.txt",), ("images",)),
            "its authors give it out on request (https://github.com/Cysu/noisy_label); unpack its lists and images in "
            "{dir}",
        ),
    }
)

_PRETRAINED_FILE = PRETRAINED.removeprefix("data:")
_WEIGHTS: Mapping[str, Requirement] = MappingProxyType(
    {
        PRETRAINED: Requirement(
            "ResNet-50 trained on ImageNet",
            ((_PRETRAINED_FILE,),),
            f"fetch https://download.pytorch.org/models/{_PRETRAINED_FILE} into {{dir}}",
        )
    }
)


def specs_of(experiment: Experiment) -> list[RunSpec]:
    """Return the runs of an experiment as in the paper, those that others need included."""
    return [spec for cell in experiment.cells() for spec in (*cell.before, cell.spec)]


def data_sets_of(experiment: Experiment) -> list[str]:
    """Return the names of the data sets an experiment uses."""
    return list(dict.fromkeys(spec.data.name for spec in specs_of(experiment)))


def missing_data(specs: Iterable[RunSpec], data_dir: Path) -> list[Missing]:
    """Return what runs at the scales ``paper`` and ``compact`` need and a folder lacks, with the remedy."""
    required: dict[str, Requirement] = {}
    for spec in specs:
        required[spec.data.name] = _DATA_SETS[spec.data.name]
        weights = spec.network.weights
        if weights is not None and weights in _WEIGHTS:
            required[weights] = _WEIGHTS[weights]
    return [
        Missing(each.name, each.remedy.format(dir=data_dir)) for each in required.values() if not each.is_met(data_dir)
    ]
