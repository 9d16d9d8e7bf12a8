"""Small data sets that ship with the package, and how to split them."""

from actorgraph.data._digits import digits, split

__all__ = ["digits", "split"]
