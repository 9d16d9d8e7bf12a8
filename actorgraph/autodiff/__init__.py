"""Differentiation of graphs: reverse (`gradients`) and forward (`tangents`), as graphs."""

from actorgraph.autodiff.forward import tangents
from actorgraph.autodiff.reverse import gradients

__all__ = ["gradients", "tangents"]
