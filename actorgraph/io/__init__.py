"""Checkpoints: the state of a training, in files that hold no code."""

from actorgraph.io.arrays import read_arrays, write_arrays
from actorgraph.io.checkpoints import load, save
from actorgraph.keywords import all_answering

__all__ = ["load", "read_arrays", "save", "write_arrays"]
__dir__ = __all__.copy

all_answering(globals())
