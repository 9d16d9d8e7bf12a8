import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.solvers import AdamW


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
