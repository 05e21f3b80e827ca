"""Data sets: images with labels, read from the layouts in which they are published."""

from deepbilevel.data.augment import RECIPES, Recipe, find_recipe
from deepbilevel.data.catalog import DATA_SETS, load_data
from deepbilevel.data.digits import Digits, load_digits
from deepbilevel.data.image_set import ImageSet, ImagesInMemory, ImagesOnDisk

__all__ = [
    "DATA_SETS",
    "RECIPES",
    "Digits",
    "ImageSet",
    "ImagesInMemory",
    "ImagesOnDisk",
    "Recipe",
    "find_recipe",
    "load_data",
    "load_digits",
]
