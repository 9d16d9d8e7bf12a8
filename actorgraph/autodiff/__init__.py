"""Differentiation of graphs: reverse (`gradients`) and forward (`tangents`), as graphs."""

from actorgraph.autodiff.checkpointing import checkpoint
from actorgraph.autodiff.custom import CustomRule, custom_jvp, custom_vjp
from actorgraph.autodiff.forward import tangents
from actorgraph.autodiff.gradient_tools import hook_gradient, stop_gradient
from actorgraph.autodiff.reverse import gradients

__all__ = [
    "CustomRule", "checkpoint", "custom_jvp", "custom_vjp", "gradients", "hook_gradient",
    "stop_gradient", "tangents",
]  # fmt: skip
