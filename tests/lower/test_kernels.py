"""Kernels have the same bits at every call, whether operands are arrays or NumPy's scalars."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.kernels import kernel


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("op", [ag.ops.square, ag.ops.cube])
def test_powers_of_a_complex_number_are_rounded_as_those_of_an_array(op, dtype):
    """NumPy's own `square` of a scalar is not, from its second call on."""
    node = op(ag.Graph().input("x", (), dtype))
    of_number, draw = kernel(node, np, {}), np.random.default_rng(0)
    for _ in range(50):
        number = np.dtype(dtype).type(complex(*draw.standard_normal(2)))
        of_array = of_number(np.full(3, number))
        assert [of_number(number).tobytes() for _ in range(3)] == [of_array[0].tobytes()] * 3
        assert of_number(np.asarray(number)).tobytes() == of_array[0].tobytes()
