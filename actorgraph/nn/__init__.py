"""Parts of neural networks: initial values of weights."""

from actorgraph.nn import init

__all__ = ["init"]
