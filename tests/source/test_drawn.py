"""Drawn programs: `ag.source` and `ag.function` compute what Python does, or refuse clearly."""

import linecache
import sys
from copy import deepcopy
from itertools import count

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.errors import GraphError
from tests._soak import SOAK, drawn
from tests.source._programs import Writer

GIVEN = {
    "x": 0.63,
    "v": np.array([0.31, -0.82, 1.13]),
    "l": [0.45, -0.35],
    "d": {"a": 0.8, "b": np.array([0.2, 0.9, -0.4])},
}
WAYS = [
    ("reverse", "joint", True), ("reverse", "joint", False), ("reverse", "split", True),
    ("forward", "joint", True),
]  # fmt: skip
_numbers = count()


@st.composite
def programs(draw):
    return Writer(lambda options: draw(st.sampled_from(options))).written()


def compiled(text):
    """Return the function of a text, which tracebacks and `ag.source` can read."""
    name = f"<drawn {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names = {"__name__": "drawn"}
    exec(compile(text, name, "exec"), names)
    return names["program"]


def ended(function, args):
    """Call a program, and raise if it goes on and on, such as a loop over a list that grows."""
    lines = count()

    def look(frame, *_):
        assert next(lines) < 10_000, "it has no end"
        return look if frame.f_code.co_filename == function.__code__.co_filename else None

    before = sys.gettrace()
    sys.settrace(look)
    try:
        return function(*args)
    finally:
        sys.settrace(before)


def value_of(function, args):
    """Return the number that a program gives; one that fails, or has no end, is no case."""
    try:
        value = ended(function, deepcopy(args))
    except Exception:
        assume(False)
    assume(np.ndim(value) == 0 and np.isfinite(value) and abs(value) < 1e4)
    return float(value)


def slopes_of(function, args):
    """Return the derivatives by central differences; a kink nearby is no case."""
    leaves, tree = flatten(args)
    middle, found = value_of(function, args), []
    for i, leaf in enumerate(leaves):
        slopes = np.zeros(np.shape(leaf))
        for at in np.ndindex(slopes.shape):
            values = []
            for step in (1e-5, -1e-5, 5e-6, -5e-6):
                moved = np.array(leaf, float)
                moved[at] += step
                given = [*leaves]
                given[i] = moved if moved.shape else float(moved)
                values.append(value_of(function, unflatten(tree, given)))
            wide, narrow = (values[0] - values[1]) / 2e-5, (values[2] - values[3]) / 1e-5
            right, left = (values[0] - middle) / 1e-5, (middle - values[1]) / 1e-5
            size = 1.0 + abs(wide)
            assume(abs(wide - narrow) < 1e-6 * size and abs(right - left) < 5e-3 * size)
            slopes[at] = narrow
        found.append(slopes)
    return found


def assert_slopes(found, wanted):
    leaves, _ = flatten(found)
    for one, other in zip(leaves, wanted, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_program_without_an_end_is_no_case():
    endless = "def program(l):\n    for a in l:\n        l.append(a)\n    return l[0]\n"
    with pytest.raises(AssertionError, match="it has no end"):
        ended(compiled(endless), [[1.0]])
    assert ended(compiled("def program(x):\n    return x + 1.0\n"), [1.0]) == 2.0


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 60)
@settings(drawn(quick=6, soak=3000), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(programs(), st.sampled_from(WAYS))
def test_a_drawn_program_has_the_gradient_of_finite_differences_or_is_refused(program, way):
    text, kinds = program
    function, args = compiled(text), [GIVEN[name] for name in kinds]
    with np.errstate(all="ignore"):
        value, slopes = value_of(function, args), slopes_of(function, args)
        mode, motion, optimized = way
        try:
            derivative = ag.source.grad(
                function, tuple(range(len(args))), mode=mode, motion=motion, optimized=optimized,
                preserve_result=True,
            )  # fmt: skip
            *found, result = derivative(*deepcopy(args))
        except GraphError:
            return
    np.testing.assert_allclose(result, value, rtol=1e-9)
    assert_slopes(found, slopes)


@pytest.mark.soak
@pytest.mark.timeout(3600 if SOAK else 60)
@settings(drawn(quick=6, soak=3000), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(programs())
def test_a_drawn_program_of_nodes_gives_what_numbers_give_or_is_refused(program):
    text, kinds = program
    function, args = compiled(text), [GIVEN[name] for name in kinds]
    graph, (leaves, tree) = ag.Graph(), flatten(args)
    nodes = [graph.input(f"x{i}", np.shape(leaf), "float64") for i, leaf in enumerate(leaves)]
    with np.errstate(all="ignore"):
        value, slopes = value_of(function, args), slopes_of(function, args)
        try:
            y = ag.function(function)(*unflatten(tree, nodes))
        except GraphError:
            return
        except (AttributeError, NameError) as error:  # unbound in a branch that Python leaves out
            if not any(text in str(error) for text in ("a node has no", "is not associated with")):
                raise
            return
        if not isinstance(y, ag.Node):
            assert y == pytest.approx(value)
            return
        found = ag.gradients(y, nodes) if y.dtype.kind == "f" else []
        with ag.LispMachine([y, *found], wrt=[]) as machine:
            run = machine.run_sync({f"x{i}": leaf for i, leaf in enumerate(leaves)})
            assert run[y].value == pytest.approx(value)
            assert_slopes([run[slope].value for slope in found], slopes if found else [])
