"""The names that code reads and binds, by Python's scopes.

Functions, lambdas and comprehensions have names of their own.  Defaults, decorators, annotations
and what a comprehension goes over first belong to the scope around; functions in a class do not see
its names; ``:=`` in a comprehension binds a name of the function around.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = frozenset({*COMPREHENSIONS, *FUNCTIONS, ast.ClassDef})
"""The nodes that have names of their own."""


def _around(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a function or class that belong to the scope around."""
    fields = [value for name, value in ast.iter_fields(node) if name != "body"]
    parts = [part for value in fields for part in (value if type(value) is list else [value])]
    return [part for part in parts if isinstance(part, ast.AST)]


_Parts = dict[type[ast.AST], Callable[[Any], list[ast.AST]]]
_OWN: _Parts = dict.fromkeys((*FUNCTIONS, ast.ClassDef), _around)
"""The parts of what is not all in its scope."""
_SURE: _Parts = {
    ast.BoolOp: lambda node: node.values[:1],
    ast.IfExp: lambda node: [node.test],
    ast.Compare: lambda node: [node.left, node.comparators[0]],
    **dict.fromkeys(COMPREHENSIONS, lambda node: [node.generators[0].iter]),
    **_OWN,
}
"""The parts that are computed whenever an expression is, of those that may leave some out."""


def split(node: Any) -> tuple[list[ast.AST], list[ast.AST], set[str]]:
    """Return the parts of one of `SCOPES` that are in the scope around, those inside, its names."""
    if isinstance(node, COMPREHENSIONS):
        names = set().union(*[stored(one.target) for one in node.generators])
        first, *rest = node.generators
        results = [one for one in ast.iter_child_nodes(node) if type(one) is not ast.comprehension]
        return [first.iter], [*results, first.target, *first.ifs, *rest], names
    inside = node.body if isinstance(node.body, list) else [node.body]
    names = bound_names(inside)
    if isinstance(node, FUNCTIONS):
        names |= {*parameters(node.args)}
    names |= {name for one in walk_own(inside) if type(one) is ast.Global for name in one.names}
    return _around(node), inside, names


def parameters(args: ast.arguments) -> list[str]:
    """Return the names of all parameters."""
    rest = [parameter for parameter in (args.vararg, args.kwarg) if parameter is not None]
    return [parameter.arg for parameter in (*args.posonlyargs, *args.args, *args.kwonlyargs, *rest)]


def defaults(args: ast.arguments) -> dict[str, ast.expr]:
    """Return the defaults of parameters."""
    plain = [one.arg for one in (*args.posonlyargs, *args.args)]
    given = dict(zip(plain[::-1], args.defaults[::-1], strict=False))
    only = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return given | {one.arg: value for one, value in only if value is not None}


def stored(target: ast.AST) -> set[str]:
    """Return the names that a target binds."""
    nodes = [one for one in ast.walk(target) if isinstance(one, ast.Name)]
    return {one.id for one in nodes if type(one.ctx) is ast.Store}


def walk_own(body: Any, sure: bool = False) -> list[ast.AST]:
    """Return the nodes of a body in order, without those inside functions and classes.

    If `sure`, the parts of expressions are left out that may not be computed.
    """
    nodes: list[ast.AST] = []

    known = _SURE if sure else _OWN

    def visit(node: ast.AST) -> None:
        nodes.append(node)
        for part in known.get(type(node), ast.iter_child_nodes)(node):
            visit(part)

    for stmt in body:
        visit(stmt)
    return nodes


def bound_names(body: Any, sure: bool = False) -> set[str]:
    """Return the names of their scope that statements bind or delete; if `sure`, always do."""
    names, others = set[str](), set[str]()
    nodes = walk_own(body, sure)
    theirs = {
        id(part) for node in nodes if isinstance(node, ast.comprehension)
        for part in ast.walk(node.target)
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.Name):
            loaded = type(node.ctx) is ast.Load
            names |= set() if loaded or id(node) in theirs else {node.id}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.MatchAs, ast.MatchStar, ast.ExceptHandler)) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            others.update(node.names)
    return names - others


def loads(body: Any) -> set[str]:
    """Return the names of their scope, or of one around it, that code reads or deletes.

    Of a function these are its free names, and what its defaults and decorators read.
    """
    here, deeper = _loads(list(body) if isinstance(body, list) else [body])
    return here | deeper


def free_names(node: ast.AST) -> set[str]:
    """Return the names of scopes around that the inside of a function reads."""
    _, inside, own = split(node)
    return loads(inside) - own


def _loads(todo: list[Any]) -> tuple[set[str], set[str]]:
    """Return the names that nodes read themselves, and those that scopes inside of them read."""
    here, deeper = set[str](), set[str]()
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Store:
                here.add(node.id)
        elif kind in SCOPES:
            outside, inside, own = split(node)
            todo += outside
            read, inner = _loads([*inside])
            deeper |= (read - own) | (inner if kind is ast.ClassDef else inner - own)
        elif kind is ast.Nonlocal:
            here.update(node.names)
        else:
            for name in node._fields:
                part = getattr(node, name, None)
                if isinstance(part, ast.AST):
                    todo.append(part)
                elif type(part) is list:
                    todo += [item for item in part if isinstance(item, ast.AST)]
    return here, deeper
