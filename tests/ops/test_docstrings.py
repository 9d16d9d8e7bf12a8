"""What `help` and editors show of the functions of `ag.ops`, and how docstrings share text."""

from __future__ import annotations

import re
from inspect import getdoc, signature
from typing import Any

import actorgraph as ag
from actorgraph.graph import Node
from actorgraph.ops._rules import as_of, complete, raises, returns
from tests._each import each

FUNCTIONS = sorted(set(ag.ops.__all__) - {"Sample", "Together"})
SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


def section(text, title):
    found = re.search(rf"(?ms)^{title}\n-+\n(.*?)(?:\n\n|\Z)", text)
    return found[1] if found else ""


def heads(text):
    return re.findall(r"(?m)^(?=\S)(.+)$", section(text, "Parameters"))


def listed(text):
    return [name for head in heads(text) for name in re.split(" :|\n", head)[0].split(", ")]


@each("name", FUNCTIONS)
def test_a_docstring_that_lists_parameters_lists_all_of_them_and_says_their_types(name):
    function = getattr(ag.ops, name)
    names = listed(getdoc(function))
    if names and "values" not in signature(function).parameters:
        assert {one.strip("*") for one in names} == signature(function).parameters.keys()
        assert len(names) == len(set(names))
    assert not [head for head in heads(getdoc(function)) if re.search(r" : .*\bAny\b", head)]


@each("name", FUNCTIONS)
def test_each_section_stands_once_and_in_its_order(name):
    found = re.findall(rf"(?m)^({'|'.join(SECTIONS)})\n-+$", getdoc(getattr(ag.ops, name)))
    assert found == [one for one in SECTIONS if one in found]


def first(x: Node, axis: Any = None, *, scale: int | None = None) -> Node:
    """Do something.

    Parameters
    ----------
    x : node
        Float.
    scale : int, optional
        Not 0.
    """


def test_a_function_takes_from_another_what_its_docstring_leaves_out():
    raises(types="`x` is no float.")(first)

    @returns("Node: of one dim")
    @as_of(first)
    def second(x, more, *, scale=None):
        """Do it once more.

        Parameters
        ----------
        scale : int
            At least 1.
        """

    assert getdoc(second) == (
        "Do it once more.\n\nParameters\n----------\nx : node\n    Float.\nscale : int\n"
        "    At least 1.\n\nReturns\n-------\nNode: of one dim\n\n"
        "Raises\n------\nGraphTypeError\n    `x` is no float."
    )


def test_errors_of_its_own_replace_those_of_another_function():
    raises(types="`x` is no float.")(first)

    @raises(shapes="`x` is a scalar.")
    @as_of(first)
    def second(x):
        """Do it once more."""

    assert section(getdoc(second), "Raises") == "ShapeError\n    `x` is a scalar."


def test_parameters_of_which_the_signature_says_all_are_listed_with_their_types():
    def third(x: Node, axis: Any = None, n: int | None = None, keepdims: bool = False):
        """Do it along axes."""

    assert heads(complete(third, getdoc(third))) == [
        "x : node", "axis : int, tuple of int, or None for all", "n : int, optional",
        "keepdims : bool",
    ]  # fmt: skip
