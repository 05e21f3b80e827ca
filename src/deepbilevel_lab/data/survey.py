"""What is known of a set of image files from their names and heads: how many there are, and how large."""

from dataclasses import dataclass
from statistics import median

from deepbilevel_lab.data.decode import image_size
from deepbilevel_lab.data.image_set import ImagesOnDisk

_LOOKED_AT = 50  # heads of files, spread evenly: the median of their sides is known well enough


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        num_images: how many.
        num_classes: in how many classes.
        side: the median of their shorter sides, in pixels; None where no head could be read.
    """

    num_images: int
    num_classes: int
    side: int | None


def survey(data: ImagesOnDisk) -> Survey:
    """Look at a set of image files; files that are damaged are left for training to name."""
    step = max(1, len(data) // _LOOKED_AT)
    sides: list[int] = []
    for path in data.paths[::step][:_LOOKED_AT]:
        try:
            sides.append(min(image_size(path)))
        except (OSError, ValueError):
            continue
    return Survey(len(data), data.num_classes, round(median(sides)) if sides else None)
