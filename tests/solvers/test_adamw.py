import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.solvers import AdamW


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(
    "options", [{}, {"betas": (0.5, 0.9)}, {"weight_decay": 0.5}, {"weight_decay": 0.0}]
)
def test_steps_are_those_of_pytorch(options, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start, *grads = rng.normal(size=(21, 3, 4)) + 1j * rng.normal(size=(21, 3, 4))
    if dtype.startswith("float"):
        start, grads = start.real, [grad.real for grad in grads]
    ours = Dual(start.astype(dtype), None)
    theirs = torch.tensor(start.astype(dtype), requires_grad=True)
    solver, oracle = AdamW(lr=0.05, **options), torch.optim.AdamW([theirs], lr=0.05, **options)
    for grad in grads:
        ours.grad = grad.astype(dtype)
        theirs.grad = torch.tensor(ours.grad)
        solver.step([ours])
        oracle.step()
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(ours.value, theirs.detach().numpy(), rtol=rtol, atol=rtol)


def test_known_defect_gorgonia_adamw_never_changes_the_weights():
    """Regression: it multiplies into an array of its own, and takes 1 - beta**t for beta."""
    weight = Dual(np.array([1.0, -2.0]), np.array([0.3, -0.3]))
    AdamW(lr=0.1, weight_decay=0.5).step([weight])
    # The first step has the length of the learning rate, from the decayed parameter.
    np.testing.assert_allclose(weight.value, [0.95 - 0.1, -1.9 + 0.1], rtol=1e-6)


def test_decay_does_not_go_through_the_moments():
    weight = Dual(np.array([4.0]), np.zeros(1))
    AdamW(lr=0.1, weight_decay=0.5).step([weight])
    np.testing.assert_allclose(weight.value, [3.8], rtol=1e-15)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"betas": (1.0, 0.9)}, r"betas\[0\] is 1.0"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
    ],
)
def test_bad_settings_raise(options, text):
    with pytest.raises(ValueError, match=text):
        AdamW(**options)
