"""Liveness: which names a branch or a loop has to pass on because they are read later.

Blocks have no jumps any more (see `jumps`), so one backward walk is enough; a loop is walked until
nothing is added.
"""

from __future__ import annotations

import ast
from typing import Any

from actorgraph.source.scope import bound_names, walk_own
from actorgraph.source.steps import loads

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""They have names of their own."""
_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def assigned(block: Any) -> set[str]:
    """Return the names that statements may bind or delete."""
    deleted = {
        node.id
        for node in walk_own(block)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
    }
    return bound_names(block, _COMPREHENSIONS) | deleted


def _read(node: Any) -> set[str]:
    """Return the names that an expression, or a simple statement, reads."""
    names = loads(node)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.add(node.target.id)
    return names


def annotate(body: list[ast.stmt]) -> None:
    """Set the live names on each branch and loop, as sets.

    Attribute ``after`` has those read after it, ``head`` (of loops) also those read in its next
    iteration.
    """
    nested = [node for node in walk_own(body) if isinstance(node, ast.FunctionDef)]
    closed = {name for node in nested for name in _read(node)}  # read when they are called
    _block(body, closed, closed)


def _block(body: list[ast.stmt], after: set[str], closed: set[str]) -> set[str]:
    """Return the names that are live before a block, from those live after it."""
    live = set(after)
    for stmt in reversed(body):
        live = _statement(stmt, live, closed) | closed
    return live


def _statement(node: Any, after: set[str], closed: set[str]) -> set[str]:
    if isinstance(node, ast.If):
        node.after = set(after)  # type: ignore[attr-defined]
        branches = _block(node.body, after, closed) | _block(node.orelse, after, closed)
        return branches | _read(node.test)
    if isinstance(node, (ast.While, ast.For)):
        return _loop(node, after, closed)
    if isinstance(node, ast.With):
        inner = _block(node.body, after, closed)
        bound = bound_names([one.optional_vars for one in node.items if one.optional_vars])
        return (inner - bound).union(*[_read(one.context_expr) for one in node.items])
    if isinstance(node, (ast.Try, ast.TryStar)):
        live = set(after)
        for block in (node.finalbody, node.orelse, *[h.body for h in node.handlers], node.body):
            live |= _block(block, live | after, closed)
        return live.union(*[_read(h.type) for h in node.handlers if h.type is not None])
    if isinstance(node, _OWN):
        return (after - {getattr(node, "name", "")}) | _read(node)
    return (after - bound_names([node], _COMPREHENSIONS)) | _read(node)


def _loop(node: Any, after: set[str], closed: set[str]) -> set[str]:
    stopped = {node.stopped} if node.stopped else set()
    entering = _read(node.test) if isinstance(node, ast.While) else set()
    targets = bound_names([node.target]) if isinstance(node, ast.For) else set()
    node.after = set(after)
    head = after | entering | stopped
    while True:
        inside = (_block(node.body, head, closed) - targets) | head
        if inside == head:
            break
        head = inside
    node.head = head
    return head if isinstance(node, ast.While) else head | _read(node.iter)
