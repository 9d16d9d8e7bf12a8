"""Data sets, how to split them, and loaders that give batches of them."""

from actorgraph.data._digits import digits
from actorgraph.data.dataset import ArrayDataset
from actorgraph.data.loader import DataLoader
from actorgraph.data.splitting import split, train_test_split
from actorgraph.data.toys import moons, spirals

__all__ = [
    "ArrayDataset", "DataLoader", "digits", "moons", "spirals", "split", "train_test_split",
]  # fmt: skip
