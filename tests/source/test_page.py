"""docs/source.md shows functions and what is generated of them: both are executed."""

import linecache
import re
from pathlib import Path

import numpy as np

import actorgraph as ag
from tests._each import each
from tests.source.test_catalogue import differences

PAGE = Path(__file__).parents[2] / "docs" / "source.md"
SHOWN = re.findall(
    r"```python\n(def (\w+)\(.*?)```\n\n`(.*?)` writes:\n\n```python\n(.*?)```",
    PAGE.read_text(),
    re.DOTALL,
)


def test_ten_functions_are_shown():
    assert len(SHOWN) == 10


@each("shown", SHOWN)
def test_what_is_shown_is_what_is_generated_and_it_is_right(shown):
    text, name, call, generated = shown
    filename = f"<shown {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    space = {"np": np, "ag": ag}
    exec(compile(text, filename, "exec"), space)
    function = space[name]
    wrt, args = re.fullmatch(rf"ag\.source\.grad\({name}(?:, (.*?))?\)\((.*)\)", call).groups()
    args = eval(f"({args},)", space)
    places = eval(wrt) if wrt else (0,)
    derivative = ag.source.grad(function, places)
    assert derivative.__source__ == generated
    found = derivative(*args)
    for place, one in zip(places, found if len(places) > 1 else [found], strict=True):
        leaves, _ = ag.autodiff.trees.flatten(one)
        for leaf, other in zip(leaves, differences(function, args, place), strict=True):
            np.testing.assert_allclose(leaf, other, rtol=1e-6, atol=1e-6)
    del linecache.cache[filename]
