"""What users of NumPy and PyTorch type on a node works, or names what does."""

import inspect
import pickle

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._evaluate import evaluate

VALUE = np.array([[3.0, -1.0, 2.0], [0.5, 5.0, -4.0]])

METHODS = {
    "flatten": lambda x: x.flatten(), "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x[:1].squeeze(0), "clip": lambda x: x.clip(-1, 2),
    "dot": lambda x: x.dot(np.ones((3, 2))), "copy": lambda x: x.copy(),
    "mT": lambda x: x.mT, "real": lambda x: x.real, "imag": lambda x: x.imag,
    "take": lambda x: x.take(np.array([2, 0]), axis=1), "repeat": lambda x: x.repeat(2, axis=0),
    "swapaxes": lambda x: x.swapaxes(0, 1), "sort": lambda x: np.sort(x, axis=-1),
    "argsort": lambda x: x.argsort(axis=1), "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace(),
}  # fmt: skip


@each("name", METHODS)
def test_methods_of_arrays_are_methods_of_nodes(name):
    node = METHODS[name](ag.Graph().input("x", (2, 3), "float64"))
    np.testing.assert_array_equal(
        evaluate([node], {node.graph["x"]: VALUE})[0], METHODS[name](VALUE)
    )


def test_size_is_the_number_of_entries():
    graph = ag.Graph()
    assert graph.input("x", (2, 3)).size == 6
    assert graph.input("y", ("n", 3)).size == 3 * graph["y"].shape[0]
    assert graph.input("z", (None, 3)).size is None


@each("typed, works", [
        ("grad", r"run\[node\]\.grad"), ("item", r"float\(run\[node\]\.value\)"),
        ("detach", "ag.stop_gradient"), ("backward", "backward=True"), ("unsqueeze", "expand_dims"),
        ("view", r"node\.reshape"), ("numpy", r"run\[node\]\.value"), ("softmax", "ag.ops.softmax"),
        ("reshap", "'reshape'"),
    ])  # fmt: skip
def test_other_words_name_what_works(typed, works):
    with pytest.raises(AttributeError, match=f"a node has no '{typed}': .*{works}"):
        getattr(ag.Graph().input("x", (2,)), typed)


def test_assignment_to_entries_names_the_ops_that_return_a_new_node():
    x = ag.Graph().input("x", (2,))
    with pytest.raises(ag.GraphTypeError, match=r"ag\.ops\.index_put"):
        x[0] = 0.0


def test_a_misspelt_name_of_the_package_names_the_nearest():
    with pytest.raises(AttributeError, match="'Grph'; did you mean 'Graph'"):
        ag.Grph  # noqa: B018
    assert {"Graph", "ops", "trace"} <= set(dir(ag)) <= set(ag.__all__)


def test_a_misspelt_or_foreign_op_names_the_one_here():
    with pytest.raises(AttributeError, match="it is ag.ops.concatenate"):
        ag.ops.cat  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'quantile'"):
        ag.ops.quantil  # noqa: B018
    assert set(dir(ag.ops)) == set(ag.ops.__all__)


@pytest.mark.parametrize("given", [None, 3.0])
def test_a_solver_that_is_given_no_list_says_what_it_takes(given):
    with pytest.raises(TypeError, match=r"step takes a list of duals, \[run\[W\], run\[b\]\]"):
        ag.solvers.SGD(0.1).step(given)


def functions_with(argument):
    return [
        name
        for name in ag.ops.__all__
        if inspect.isfunction(getattr(ag.ops, name))
        and argument in inspect.signature(getattr(ag.ops, name)).parameters
    ]


@pytest.mark.parametrize(("theirs", "ours"), [("dim", "axis"), ("keepdim", "keepdims")])
def test_every_function_names_its_own_word_for_an_argument_of_pytorch(theirs, ours):
    x = ag.Graph().input("x", (2, 3))
    names = functions_with(ours)
    assert len(names) > 10
    for name in names:
        with pytest.raises(ag.GraphTypeError, match=rf"{name}.*no {theirs}=: it is {ours}= here"):
            getattr(ag.ops, name)(x, **{theirs: 0})


def test_several_foreign_arguments_are_told_at_once_and_a_misspelt_one_is_named():
    x = ag.Graph().input("x", (2, 3))
    with pytest.raises(ag.GraphTypeError, match=r"no dim=: it is axis= here; no keepdim=: .*keepd"):
        x.sum(dim=1, keepdim=True)
    with pytest.raises(ag.GraphTypeError, match=r"no axs=: did you mean 'axis'"):
        ag.ops.softmax(x, axs=1)


def test_what_is_not_given_is_told_and_what_goes_wrong_inside_of_an_op_is_told_as_it_is():
    x = ag.Graph().input("x", (2, 3))
    with pytest.raises(ag.GraphTypeError, match=r"broadcast_to\(\) got .*; it takes x, shape"):
        ag.ops.broadcast_to(x)
    with pytest.raises(ag.ShapeError, match="axis 7"):
        ag.ops.sum(x, axis=7)


def test_functions_are_pickled_by_name_and_aliases_are_the_same_function():
    for name in ag.ops.__all__:
        function = getattr(ag.ops, name)
        assert pickle.loads(pickle.dumps(function)) is function
    assert ag.ops.expit is ag.ops.sigmoid
