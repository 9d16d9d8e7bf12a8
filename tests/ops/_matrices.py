"""Matrices and runs that tests of decompositions share."""

import numpy as np

import actorgraph as ag


def square(*shape, dtype="float64", shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        value = value + 1j * rng.standard_normal(shape)
    return (value + shift * np.eye(shape[-2], shape[-1])).astype(dtype)


def hermitian(value):
    return (value + value.conj().swapaxes(-1, -2)) / 2


def input_for(value, *lead):
    dims = (*lead, *value.shape[len(lead) :])
    return ag.Graph().input("x", dims, value.dtype)


def run_backward(output, x, value, machine=ag.ActorMachine):
    with machine([output], wrt=[x]) as running:
        return running.run_sync({"x": value}, backward=True)[x].grad
