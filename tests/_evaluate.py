"""The evaluator that tests stand on: that of `actorgraph.testing`."""

from actorgraph.testing import evaluate

__all__ = ["evaluate"]
