"""Comparison of matrix functions with PyTorch to second order, complex too."""

import numpy as np

import actorgraph as ag

DTYPES = ["float64", "complex128"]


def matrices(*shape, dtype, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(shape)
    if dtype == "complex128":
        value = value + 1j * rng.standard_normal(shape)
    return value + shift * np.eye(*shape[-2:]) if len(shape) > 1 else value


def square_of(x):
    return ag.ops.real(x * ag.ops.conj(x))
