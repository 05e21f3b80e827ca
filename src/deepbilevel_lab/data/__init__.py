"""Data sets: images with labels, read from the layouts in which they are published."""

from deepbilevel_lab.data.catalog import DATA_SETS, load_data
from deepbilevel_lab.data.digits import Digits, load_digits
from deepbilevel_lab.data.image_set import ImageSet, ImagesInMemory, ImagesOnDisk
from deepbilevel_lab.data.labelled_set import LabelledSet
from deepbilevel_lab.data.own_items import OwnData
from deepbilevel_lab.data.recipes import RECIPES, Recipe, find_recipe

__all__ = [
    "DATA_SETS",
    "RECIPES",
    "Digits",
    "ImageSet",
    "ImagesInMemory",
    "ImagesOnDisk",
    "LabelledSet",
    "OwnData",
    "Recipe",
    "find_recipe",
    "load_data",
    "load_digits",
]
