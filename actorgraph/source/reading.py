"""The syntax tree of a function, with the lines and columns of its file."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from actorgraph.errors import GraphError


class UnsupportedSyntax(GraphError, SyntaxError):
    """A construct without a derivative; Python shows its line with a caret.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def lazily(x):
    ...     yield x
    >>> try:
    ...     ag.source.grad(lazily)
    ... except ag.source.UnsupportedSyntax as error:
    ...     print(error.reference)
    AG110
    """

    reference = "AG110"
    __str__ = SyntaxError.__str__


def refuse(node: Any, message: str, function: FunctionType) -> UnsupportedSyntax:
    """Return the error for a construct, with its location and what to write instead."""
    file = function.__code__.co_filename
    line = getattr(node, "lineno", function.__code__.co_firstlineno)
    column = getattr(node, "col_offset", 0)
    end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column) + 1
    place = (file, line, column + 1, linecache.getline(file, line), *end)
    return UnsupportedSyntax(f"{message} (line {line} of {function.__name__})", place)


def read(function: FunctionType) -> ast.FunctionDef:
    """Return the definition of a function or lambda; it is cached, so copy it to change it."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise refuse(
            None, f"{function.__qualname__} has no source to differentiate; define it in a file, "
            "or wrap it with ag.source.trace", function,
        )  # fmt: skip
    text = "".join(lines)
    candidates = [
        node for name, line, node in _functions(text)
        if (name, line) == (code.co_name, code.co_firstlineno)
    ]  # fmt: skip
    if len(candidates) > 1:
        candidates = [node for node in candidates if _holds(node, code)] or candidates
    if len(candidates) > 1 and isinstance(candidates[0], ast.Lambda):
        raise refuse(
            candidates[0], "several lambdas of one line fit; give each a line of its own", function
        )
    if not candidates:
        raise refuse(None, f"the source of {function.__qualname__} has changed", function)
    node: Any = candidates[-1]
    if isinstance(node, ast.Lambda):
        body = ast.copy_location(ast.Return(node.body), node.body)
        wrapped = ast.FunctionDef("lambda_", node.args, [body], [], None, None)
        wrapped.type_params = []  # type: ignore[attr-defined]
        return ast.copy_location(wrapped, node)
    if isinstance(node, ast.AsyncFunctionDef):
        raise refuse(
            node, "a coroutine has no derivative; differentiate the part between two awaits",
            function,
        )  # fmt: skip
    definition: ast.FunctionDef = node
    return definition


@lru_cache(64)
def _functions(text: str) -> list[tuple[str, int, ast.AST]]:
    """Return name and first line, as their code has them, of all functions and lambdas."""
    found: list[tuple[str, int, ast.AST]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda):
            found.append(("<lambda>", node.lineno, node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = [node.lineno, *[one.lineno for one in node.decorator_list]]
            found.append((node.name, min(lines), node))
    return found


def _holds(node: Any, code: CodeType) -> bool:
    """Return whether the code was compiled from exactly the body of a lambda."""
    if not isinstance(node, ast.Lambda):
        return True
    body = node.body
    names = [arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [
        place
        for place in code.co_positions()
        if None not in place and place[2:] != (0, 0) and place[0] != place[2]
    ]
    inside = [
        ((line, column), (last, stop))
        for line, last, column, stop in places
        if (line, column) != (node.lineno, node.col_offset)
    ]
    starts, ends = min(one for one, _ in inside), max(one for _, one in inside)
    return (starts, ends) == (start, end) and set(names) <= set(code.co_varnames)
