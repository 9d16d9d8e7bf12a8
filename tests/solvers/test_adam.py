import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.solvers import Adam


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize(
    "options",
    [{}, {"betas": (0.5, 0.9)}, {"betas": (0.0, 0.9)}, {"eps": 1e-2}, {"weight_decay": 0.1}],
)
def test_steps_are_those_of_pytorch(options, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start, *grads = rng.normal(size=(21, 3, 4)) + 1j * rng.normal(size=(21, 3, 4))
    if dtype.startswith("float"):
        start, grads = start.real, [grad.real for grad in grads]
    ours = Dual(start.astype(dtype), None)
    theirs = torch.tensor(start.astype(dtype), requires_grad=True)
    solver, oracle = Adam(lr=0.05, **options), torch.optim.Adam([theirs], lr=0.05, **options)
    for grad in grads:
        ours.grad = grad.astype(dtype)
        theirs.grad = torch.tensor(ours.grad)
        solver.step([ours])
        oracle.step()
    rtol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(ours.value, theirs.detach().numpy(), rtol=rtol, atol=rtol)


def test_first_step_has_the_length_of_the_learning_rate():
    weight = Dual(np.zeros(3), np.array([1e-3, -1.0, 1e3]))
    Adam(lr=0.1).step([weight])
    np.testing.assert_allclose(weight.value, [-0.1, 0.1, -0.1], rtol=1e-4)


def test_zero_gradient_leaves_the_parameter():
    weight = Dual(np.ones(3, "float32"), np.zeros(3, "float32"))
    Adam(lr=0.1).step([weight])
    assert np.all(weight.value == 1.0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"eps": -1.0}, "eps is -1.0"),
        ({"betas": (0.9, 1.0)}, r"betas\[1\] is 1.0"),
        ({"betas": (0.9,)}, r"betas are \(0.9,\)"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
    ],
)
def test_bad_settings_raise(options, text):
    with pytest.raises(ValueError, match=text):
        Adam(**options)
