"""Arguments and results come apart into leaves, and together again."""

from collections import namedtuple

from actorgraph.autodiff.trees import flatten, map_leaves, unflatten
from tests._each import each

Pair = namedtuple("Pair", "left right")


@each(
    "tree, leaves, text",
    [
        (1.0, [1.0], "*"),
        ((), [], "()"),
        ((1,), [1], "(*,)"),
        ([1, (2, None)], [1, 2], "[*, (*, None)]"),
        ({"b": 1, "a": [2]}, [2, 1], "{'a': [*], 'b': *}"),
        (Pair(1, {"x": 2}), [1, 2], "Pair(*, {'x': *})"),
        (None, [], "None"),
    ],
)
def test_a_tree_comes_apart_and_together(tree, leaves, text):
    found, structure = flatten(tree)
    assert found == leaves
    assert str(structure) == text
    assert unflatten(structure, found) == tree
    assert type(unflatten(structure, found)) is type(tree)
    assert structure == flatten(map_leaves(str, tree))[1]


def test_equal_dicts_have_equal_structures():
    assert flatten({"a": 1, "b": 2})[1] == flatten({"b": 1, "a": 2})[1]
    assert hash(flatten([1, {}])[1]) == hash(flatten([2, {}])[1])
    assert flatten([1])[1] != flatten((1,))[1]
