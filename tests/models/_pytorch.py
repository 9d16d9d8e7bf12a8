"""Comparison of a whole model with the same model in PyTorch, weights and all."""

import numpy as np
import pytest

import actorgraph as ag

RTOL = {"float32": 1e-4, "float64": 1e-9}


def parameters_of(graph, module):
    """Return parameters of `graph` with the values and names of those of a PyTorch module."""
    return {
        name: graph.parameter(name, value.detach().numpy())
        for name, value in module.named_parameters()
    }


def results_of(module, outputs, loss):
    """Return arrays of what PyTorch computed: outputs, loss and gradients of the parameters."""
    loss.backward()
    found = {name: value.detach().numpy() for name, value in outputs.items()}
    found["loss"] = loss.detach().numpy()
    for name, parameter in module.named_parameters():
        found[name] = parameter.grad.numpy()
        assert np.abs(found[name]).max() > 0, f"nothing is tested by the gradient of {name}"
    return found


def assert_machine_agrees(kind, outputs, parameters, feeds, wanted, **options):
    """Run the machine once and compare outputs, loss (the first output) and all gradients."""
    with kind(outputs, wrt=parameters, **options) as machine:
        run = machine.run_sync(feeds, backward=True)
    for name in outputs:
        assert_close(run[name].value, wanted[name], name)
    for name, parameter in parameters.items():
        assert_close(run[parameter].grad, wanted[name], name)


def assert_close(got, wanted, name):
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    rtol = RTOL[wanted.dtype.name]
    atol = rtol * np.abs(wanted).max(initial=0)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol, err_msg=name)


MACHINES = {
    "lisp": (ag.LispMachine, {}),
    "actors": (ag.ActorMachine, {"workers": 2}),
    "one actor per node": (ag.ActorMachine, {"workers": 2, "fuse": "none"}),
    "rewritten": (ag.ActorMachine, {"workers": 2, "exact": False}),
}
every_machine = pytest.mark.parametrize(
    ("machine", "dtype"), [*((name, "float32") for name in MACHINES), ("actors", "float64")]
)
