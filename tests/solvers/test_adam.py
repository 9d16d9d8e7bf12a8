import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.solvers import Adam
from tests._each import each


def test_first_step_has_the_length_of_the_learning_rate():
    weight = Dual(np.zeros(3), np.array([1e-3, -1.0, 1e3]))
    Adam(lr=0.1).step([weight])
    np.testing.assert_allclose(weight.value, [-0.1, 0.1, -0.1], rtol=1e-4)


def test_zero_gradient_leaves_the_parameter():
    weight = Dual(np.ones(3, "float32"), np.zeros(3, "float32"))
    Adam(lr=0.1).step([weight])
    assert np.all(weight.value == 1.0)


@each(
    "options, text",
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
