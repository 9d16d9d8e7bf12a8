import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.solvers import SGD
from tests._each import each


def test_plain_step_is_lr_times_gradient():
    weight = Dual(np.array([1.0, 2.0]), np.array([1.0, -4.0]))
    SGD(lr=0.5).step([weight])
    assert weight.value.tolist() == [0.5, 4.0]


@each(
    "options, text",
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"nesterov": True}, "nesterov=True has no effect"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"l1": float("nan")}, "l1 is nan"),
    ],
)
def test_bad_settings_raise(options, text):
    with pytest.raises(ValueError, match=text):
        SGD(**options)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("option", ["weight_decay", "l1"])
def test_known_defect_gorgonia_momentum_takes_penalties_of_the_velocity(option, momentum):
    """Regression: of the parameter, so that one without a gradient moves from the first step."""
    value = np.array([2.0, -4.0, 0.0])
    weight = Dual(value.copy(), np.zeros(3))
    SGD(lr=0.5, momentum=momentum, **{option: 0.1}).step([weight])
    penalty = 0.1 * (value if option == "weight_decay" else np.sign(value))
    np.testing.assert_allclose(weight.value, value - 0.5 * penalty, rtol=1e-15)


def test_penalty_of_lengths_draws_complex_parameters_towards_0_by_one_length():
    weight = Dual(np.array([3.0 + 4.0j, 0.0]), np.zeros(2, complex))
    SGD(lr=1.0, l1=0.5).step([weight])
    np.testing.assert_allclose(weight.value, [(3.0 + 4.0j) * 0.9, 0.0])
