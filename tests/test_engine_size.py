"""How large the engine is: a table of docs/design.md; `python -m` of this module writes it."""

import ast
import inspect
import re
import sys
import threading
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path

import numpy as np

import actorgraph as ag
from tests.test_architecture import (
    FILES,
    MOST_ATTRIBUTES,
    PACKAGE,
    ROOT,
    ancestors,
    attributes,
    circles,
    classes,
    duplicated_names,
    part,
)

PAGE = ROOT / "docs" / "design.md"
BEFORE = {
    "autodiff/": 1_333, "data/": 91, "devices/": 600, "lower/": 5_101, "machines/": 6_120,
    "nn/": 361, "ops/": 17_322, "pipeline/": 2_441, "rewrite/": 1_111, "schedules/": 1_813,
    "solvers/": 799, "trace/": 2_103, "transforms/": 934, "files beside them": 5_289,
}  # fmt: skip
"""Lines of commit e48776c, by folder: before loops, modules, training, serving, machine code."""
TABLE = re.compile(r"(?<=<!-- size -->\n).*?(?=<!-- end of size -->)", re.DOTALL)
ROUGHLY = 0.1
"""How far lines may be from what the table says: it is written now and then, not at each change."""


def lines():
    """Return how many lines each folder has, and the files beside the folders."""
    found = Counter()
    for module, path in FILES.items():
        folder = f"{part(module)}/" if path.parent != PACKAGE else "files beside them"
        found[folder] += len(path.read_text().splitlines())
    return dict(sorted(found.items(), key=lambda item: (item[0] == "files beside them", item)))


def large_classes():
    """Return the classes of many attributes, with how many."""
    found = [
        (len(attributes(cls).union(*map(attributes, ancestors(cls)))), name)
        for name, places in classes().items()
        for _, cls in places
    ]
    return [
        f"{name} {count}" for count, name in sorted(found, reverse=True) if count > MOST_ATTRIBUTES
    ]


def path_of_a_warm_run():
    """Return the files of the package that a warm `run_sync` passes, one after the other."""
    x = ag.Graph().input("x", (4,), "float64")
    feeds, passed = {"x": np.ones(4)}, []

    def note(frame, event, _):
        place = frame.f_back if event == "return" else frame
        if place is not None and event in ("call", "return"):
            passed.append(place.f_code.co_filename)

    with ag.ActorMachine([np.tanh(x) * 2.0]) as machine:
        for _ in range(20):
            machine.run_sync(feeds)
        outer = sys.getprofile()
        sys.setprofile(note)
        machine.run_sync(feeds)
        sys.setprofile(outer)
    ours = [name for name in passed if name.startswith(str(PACKAGE))]
    return [name for place, name in enumerate(ours) if ours[place - 1 : place] != [name]]


def files_of_actor_runs():
    """Return the files, without those of ops, whose functions an actor run calls, compiled anew."""
    x, called = ag.Graph().input("x", (8, 4)), set()
    w = x.graph.parameter("w", np.ones((4, 4), "float32"))
    feeds = {"x": np.ones((8, 4), "float32")}

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED:  # no body of a module or class
            called.add(frame.f_code.co_filename)

    outer, outer_of_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        loss, settings = np.tanh(x @ w).sum(), {"workers": 2, "fuse": "none", "native": False}
        with ag.ActorMachine([loss], wrt=[w], **settings) as machine:
            for _ in range(3):
                machine.run_sync(feeds, backward=True)
            machine.start(feeds, backward=True).result()
    finally:
        sys.setprofile(outer)
        threading.setprofile(outer_of_threads)
    ours = [Path(name) for name in called if name.startswith(str(PACKAGE))]
    return [path for path in ours if path.parent.name != "ops"]


def table():
    now = lines()
    rows = [
        (f"lines of `{folder}`" if folder[-1] == "/" else f"lines of {folder}",
         BEFORE.get(folder, 0), count)
        for folder, count in now.items()
    ]  # fmt: skip
    path, called = path_of_a_warm_run(), files_of_actor_runs()
    of_runs = sum(len(path.read_text().splitlines()) for path in called)
    rows += [
        ("lines together", sum(BEFORE.values()), sum(now.values())),
        ("lines of the files that actor runs call, without ops", 12_279, of_runs),
        ("files that a warm `run_sync` passes", 12, len(set(path))),
        ("times that it goes from one to another", 50, len(path) - 1),
        ("files that know one another, at most", 13, max(map(len, circles()))),
        ("names of classes that stand in two files", 15, len(duplicated_names())),
        (f"classes of more than {MOST_ATTRIBUTES} attributes", 5, len(large_classes())),
    ]
    head = ["| what | before | now |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {a} | {b:,} | {c:,} |" for a, b, c in rows), ""])


def rows(text):
    return dict(re.findall(r"^\| (.*?) \| [\d,]+ \| ([\d,]+) \|$", text, re.MULTILINE))


def close(written, counted):
    one, other = (int(number.replace(",", "")) for number in (written, counted))
    return abs(one - other) <= (ROUGHLY * other if other > 100 else 0)


def test_the_table_of_the_design_says_how_large_the_engine_is():
    written, counted = rows(TABLE.search(PAGE.read_text())[0]), rows(table())
    assert written.keys() == counted.keys(), f"run: python -m {__name__}"
    wrong = {what: (written[what], n) for what, n in counted.items() if not close(written[what], n)}
    assert wrong == {}, f"run: python -m {__name__}"


LINES_OF_AN_OP = 26


def lines_of_code(path):
    """Return how many lines are neither blank, nor comment, nor of a docstring.

    What a function returns is said by a decorator, which writes that section of its docstring.
    """
    source = path.read_text()
    text = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    return sum(
        bool(line.strip()) and not line.lstrip().startswith(("#", "@returns("))
        for number, line in enumerate(source.splitlines(), 1)
        if number not in text
    )


def test_what_one_can_call_is_declared_in_few_lines_on_average():
    """Of the public functions of `ag.ops`, all the code of `ops/` counts, and that of `ops.ABOVE`.

    Imports, checks, samples, kernels, rules of gradients, and what NumPy's names and operators need
    count; blank lines, comments and docstrings do not.
    """
    functions = [name for name in ag.ops.__all__ if inspect.isfunction(getattr(ag.ops, name))]
    above = {Path(inspect.getfile(getattr(ag.ops, name).__wrapped__)) for name in ag.ops.ABOVE}
    total = sum(lines_of_code(path) for path in {*(PACKAGE / "ops").glob("*.py"), *above})
    assert total <= LINES_OF_AN_OP * len(functions)


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(table(), PAGE.read_text()))
