"""`Graph(convert=)`: which dtypes a graph converts without being asked, and dims as numbers."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._evaluate import evaluate

MIXED = [("int64", "float32"), ("bool", "float64"), ("float32", "float64"), ("int8", "int32")]


def mixed(convert, left, right):
    graph = ag.Graph("mixed", convert=convert)
    return graph.input("x", (3,), left), graph.input("y", (3,), right)


def test_no_graph_converts_operands_unasked_and_the_error_names_the_switch():
    x, y = mixed(None, "int64", "float32")
    with pytest.raises(ag.GraphTypeError, match=r"x\.astype\('float32'\).*convert=\"safe\""):
        x * y


@pytest.mark.parametrize(("left", "right"), MIXED)
def test_safe_conversion_promotes_operands_as_numpy_does(left, right):
    x, y = mixed("safe", left, right)
    feeds = {"x": np.array([1, 0, 1], left), "y": np.array([2, 3, 4], right)}
    result = evaluate([x + y], {x: feeds["x"], y: feeds["y"]})[0]
    assert result.dtype == (feeds["x"] + feeds["y"]).dtype
    np.testing.assert_array_equal(result, feeds["x"] + feeds["y"])


@pytest.mark.parametrize(("left", "right"), MIXED)
def test_conversion_of_the_same_kind_gives_what_the_highest_kind_has(left, right):
    x, y = mixed("same_kind", left, right)
    kinds = {x.dtype.kind, y.dtype.kind}
    expected = y.dtype if len(kinds) == 2 else np.result_type(left, right)
    assert (x * y).dtype == (y * x).dtype == expected


def test_the_gradient_of_a_converted_operand_has_the_operands_dtype():
    x, y = mixed("safe", "float32", "float64")
    (dx,) = ag.gradients((x * y).sum(), [x])
    assert dx.dtype == "float32"


def test_advice_for_operands_of_one_kind_converts_the_array_not_the_node():
    x = ag.Graph().input("x", (3,), "float32")
    with pytest.raises(ag.GraphTypeError, match=r"as array\.astype\('float32'\)"):
        x * np.ones(3)


@each("convert, fed, fits", [
        (None, np.ones(3), False), ("safe", np.ones(3), False), ("same_kind", np.ones(3), True),
        ("safe", np.ones(3, "int8"), True), ("same_kind", [1, 2, 3], True),
        ("same_kind", np.ones(3, complex), False),
    ])  # fmt: skip
def test_feeds_are_converted_by_the_same_word(convert, fed, fits):
    graph = ag.Graph(convert=convert)
    machine = ag.TapeMachine([graph.input("x", (3,), "float32") * 2])
    if fits:
        value = machine.run_sync({"x": fed})["multiply_2"].value
        assert value.dtype == "float32"
        np.testing.assert_array_equal(value, 2 * np.asarray(fed, "float32"))
    else:
        with pytest.raises(ag.FeedError, match="not float32"):
            machine.run_sync({"x": fed})


def test_an_unknown_word_of_conversion_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'safe', 'same_kind', got 'unsafe'"):
        ag.Graph(convert="unsafe")


def test_copies_of_a_graph_convert_as_it_does():
    graph = ag.Graph(convert="safe")
    graph.input("x", (3,))
    assert graph.clone().convert == "safe"


# -- dims as numbers --------------------------------------------------------------------------


def test_a_symbolic_dim_is_a_number_in_arithmetic():
    x = ag.Graph().input("x", ("batch", 3), "float32")
    mean, scaled = x.sum() / x.shape[0], x * (2 * x.size + 1)
    values = evaluate([mean, scaled], {x: np.ones((4, 3), "float32")})
    assert values[0] == 3
    np.testing.assert_array_equal(values[1], np.full((4, 3), 25, "float32"))
    assert mean.dtype == scaled.dtype == "float32"


def test_a_dim_that_no_input_has_is_refused_with_what_counts():
    x = ag.Graph().input("x", ("batch",), "float32")
    with pytest.raises(ag.GraphTypeError, match=r"no input has the dim .*ag\.ops\.size_of"):
        x * (x.shape[0] // 2)


def test_a_fraction_of_a_dim_is_no_dim():
    x = ag.Graph().input("x", ("batch",), "float32")
    with pytest.raises(TypeError):
        x.shape[0] * 0.5
