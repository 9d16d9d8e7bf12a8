"""Generated functions: their text, and code with which tracebacks and debuggers show it.

The code uses the globals and the cells of the user's function; helpers are in further cells.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable
from itertools import count
from types import CellType, CodeType, FunctionType
from typing import Any
from weakref import finalize

from actorgraph.source.scope import Scope

_numbers = count(1)


class Late:
    """A helper that is filled in after its use was compiled, for recursive functions."""

    def __init__(self) -> None:
        self.cell = CellType()


def text_of(functions: list[ast.stmt]) -> str:
    """Return the text of functions; string statements that begin with ``#`` become comments."""
    tree = ast.fix_missing_locations(ast.Module(functions, []))
    text = ast.unparse(tree)
    lines: list[str] = []
    last_comment = ""
    for line in text.split("\n"):
        comment = re.match(r"^(\s*)(['\"])(# .*)\2$", line)
        if comment:
            line = comment[1] + ast.literal_eval(line.strip()).replace("\n", " ")
            while lines and lines[-1].startswith(f"{comment[1]}# ") and "gradient of" in lines[-1]:
                lines.pop()  # no statement of that line is left
            if line == last_comment:
                continue
            last_comment = line
        elif line.lstrip() == line or line.rstrip().endswith(":"):
            last_comment = ""
        lines.append(line)
    return "\n".join(lines) + "\n"


def codes_in(code: CodeType) -> list[CodeType]:
    """Return the code of the functions that a code defines."""
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def compiled(body: list[ast.stmt], cells: Iterable[str], filename: str) -> dict[str, CodeType]:
    """Return the code of functions by name; `cells` are further names that it finds in cells."""
    outer: Any = ast.parse(f"def made({', '.join(cells)}): pass").body[0]
    outer.body = body
    module = ast.fix_missing_locations(ast.Module([outer], []))
    (factory,) = codes_in(compile(module, filename, "exec"))
    return {one.co_name: one for one in codes_in(factory)}


def emit(scope: Scope, functions: list[ast.stmt], title: str) -> dict[str, FunctionType]:
    """Compile functions and return them by name."""
    text = text_of(functions)
    filename = f"<ag {title} {next(_numbers)}>"
    inner = ast.parse(text).body
    cells: dict[str, CellType] = dict(scope.cells)
    for name, value in scope.helpers.items():
        cells[name] = value.cell if isinstance(value, Late) else CellType(value)
    codes = compiled(inner, cells, filename)
    for name in codes:
        cells.setdefault(name, CellType())
    by_name: dict[str, FunctionType] = {}
    for node in inner:
        assert isinstance(node, ast.FunctionDef)
        body = codes[node.name]
        closure = tuple(cells[name] for name in body.co_freevars)
        function = FunctionType(body, scope.function.__globals__, node.name, None, closure)
        cells[node.name].cell_contents = by_name[node.name] = function
        function.__module__ = scope.function.__module__
        function.__source__ = text  # type: ignore[attr-defined]
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    last = by_name[next(reversed(by_name))]
    finalize(last, linecache.cache.pop, filename, None)
    return by_name
