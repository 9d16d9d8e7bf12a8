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


def test_an_augmented_write_into_an_array_of_a_container_is_refused_where_others_may_see_it():
    def of_an_argument(x):
        d = {"b": x}
        d["b"] += x
        return np.sum(x)

    def of_a_view(x):
        y = x * 1.0
        d = {"a": np.sum(y), "b": y.reshape(2)}
        d["a"] += 1.0
        d["b"] += d["b"]
        return np.sum(y * d["b"]) + d["a"]

    def named_later(x):
        d = [x * 2.0, x]
        y = d[0]
        d[0] += x
        return np.sum(y)

    def own(x):
        d = {"b": x * 2.0}
        d["b"] += x
        return np.sum(d["b"])

    for function in (of_an_argument, of_a_view, named_later):
        with pytest.raises(GraphError, match="is an array that an argument or another name"):
            source.grad(function)(np.ones(2))
    assert source.grad(own)(np.ones(2)).tolist() == [3.0, 3.0]
