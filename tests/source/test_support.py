"""What generated functions check of the values that they get, and when the folder is imported."""

import numpy as np
import pytest

from actorgraph import source
from actorgraph.errors import FeedError, GraphError
from tests._child import printed_by
from tests._each import each

KINDS = {
    "a matrix, .* np.asarray": np.ones((2, 2)).view(np.matrix),
    r"a masked array, .* \.filled": np.ma.array(np.ones((2, 2)), mask=np.eye(2)),
}


@each(("kind", "value"), KINDS.items())
def test_arrays_with_an_arithmetic_of_their_own_are_refused(kind, value):
    def by_closure(x):
        return np.sum(x * value)

    def unsummed(x):
        return x * value

    def of_two(x, y):
        return np.sum(x * y)

    def of_a_part(x):
        return (x * value)[0, 1]

    plain, vector = np.ones((2, 2)), {"input_derivative": source.DefaultOnes}
    for function, args, options in (
        (by_closure, [value], {}), (by_closure, [value], {"mode": "forward"}),
        (by_closure, [plain], {}), (of_two, [plain, value], {}), (of_a_part, [plain], {}),
        (unsummed, [plain], vector),
    ):  # fmt: skip
        with pytest.raises(FeedError, match=kind):
            source.grad(function, **options)(*args)


def test_the_package_does_not_import_the_folder():
    text = "import sys, actorgraph; print('actorgraph.source' in sys.modules)"
    assert printed_by(text) == ["False"]


def test_an_augmented_write_into_an_array_of_a_container_is_refused():
    def f(x, v):
        d = {"b": v}
        d["b"] += v
        return x * np.sum(v)

    def of_numbers(x):
        d = [x, 1.0]
        d[0] *= 2.0
        return d[0] * x

    assert source.grad(of_numbers)(3.0) == 12.0
    with pytest.raises(GraphError, match=r"d\['b'\] = d\['b'\] \+ ..."):
        source.grad(f, (0, 1))(0.5, np.ones(2))
