"""The constructs of Python without a derivative, why, and what to write instead.

A statement that binds nothing active is kept, whatever it contains; `WHERE_ACTIVE` is for those
that active values pass through.  `ALWAYS` is refused everywhere.
"""

from __future__ import annotations

import ast

_COROUTINE = "a coroutine has no derivative", "differentiate the part between two awaits"
_GENERATOR = "a generator has no derivative", "return a list"
_EXCEPTION = (
    "control flow by exceptions has no derivative",
    "move the try out of the function, or around passive code",
)
_MODULE = "a name of an outer scope must not change", "return the value instead"

ALWAYS: dict[str, tuple[str, str]] = {
    "Await": _COROUTINE,
    "AsyncFor": _COROUTINE,
    "AsyncWith": _COROUTINE,
    "AsyncFunctionDef": _COROUTINE,
    "Yield": _GENERATOR,
    "YieldFrom": _GENERATOR,
    "Global": _MODULE,
    "Nonlocal": _MODULE,
}
"""Refused everywhere, by class name: why, and what to write instead."""
WHERE_ACTIVE: dict[str, tuple[str, str]] = {
    "Try": _EXCEPTION,
    "TryStar": _EXCEPTION,
    "Delete": ("an active name must not be deleted", "leave it; it ends with the function"),
    "ClassDef": ("a class that holds active values has no derivative", "use a dict"),
    "Import": ("an import binds no active name", "rename one of the two"),
    "ImportFrom": ("an import binds no active name", "rename one of the two"),
    "GeneratorExp": ("a generator has no derivative", "write a list comprehension"),
    "SetComp": ("a set of active values has no order", "write a list comprehension"),
    "Set": ("a set of active values has no order", "write a list"),
    "Starred": ("a starred display of active values is not supported", "use np.concatenate"),
    "Slice": ("a slice has no derivative", "write it inside brackets"),
    "MatchSequence": ("a pattern cannot take active values apart", "assign them to names first"),
    "MatchMapping": ("a pattern cannot take active values apart", "assign them to names first"),
    "MatchClass": ("a pattern cannot take active values apart", "assign them to names first"),
    "MatchStar": ("a pattern cannot take active values apart", "assign them to names first"),
    "TypeAlias": ("a type alias binds no active name", "move it out of the function"),
    "TemplateStr": ("a template has no derivative", "write an f-string"),
    "Interpolation": ("a template has no derivative", "write an f-string"),
}
"""Refused for active values, likewise."""


def reason(node: ast.AST) -> str:
    """Return why a construct is refused, and what to write instead."""
    name = type(node).__name__
    what, advice = {**ALWAYS, **WHERE_ACTIVE}.get(
        name, (f"{name} of active values is not supported", "compute it in a statement of its own")
    )
    return f"{what}; {advice}"


def check_everywhere(tree: ast.FunctionDef) -> ast.AST | None:
    """Return the first construct that is refused everywhere, or None."""
    for node in ast.walk(tree):
        if type(node).__name__ in ALWAYS:
            return node
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("exec", "eval"):
            return node
    return None
