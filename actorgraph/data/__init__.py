"""Data sets, splitting, and loaders of batches."""

from actorgraph.data import transforms
from actorgraph.data.dataset import ArrayDataset
from actorgraph.data.files import from_csv, from_folder
from actorgraph.data.loader import DataLoader
from actorgraph.data.sets import book, digits, iris, moons, spirals
from actorgraph.data.splitting import split, train_test_split
from actorgraph.keywords import all_answering

__all__ = [
    "ArrayDataset", "DataLoader", "book", "digits", "from_csv", "from_folder", "iris", "moons",
    "spirals", "split", "train_test_split", "transforms",
]  # fmt: skip
__dir__ = __all__.copy

all_answering(globals())
