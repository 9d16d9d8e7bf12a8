"""Liveness: which names are read later, for converted functions and for generated ones.

A branch or a loop passes on the live names that it sets; a statement that only sets others is dead
code.  Blocks have jumps at their ends only (see `jumps`), so one backward walk is enough; a loop is
walked until nothing is added.
"""

from __future__ import annotations

import ast
from copy import copy
from typing import Any

from actorgraph.source.names import bound_names, loads, walk_own

_IMPURE = frozenset(
    "fitting check_inputs refuse_array refuse_element refuse_list refuse_same refuse_view "
    "overwritten".split()
)


def annotate(body: list[ast.stmt]) -> set[str]:
    """Return the names that a body reads before it binds them; sets those that are live inside.

    Attribute ``after`` of a branch or a loop has the names that are read after it, ``head`` of a
    loop also those that its next iteration reads.
    """
    live: set[str] = set()
    _Backward(body, None).block(body, live)
    return live


def without_dead_code(body: list[ast.stmt], pure: frozenset[str]) -> list[ast.stmt]:
    """Return the body without statements that have no effect; calls of `pure` names have none."""
    return _fused(_Backward(body, pure - _IMPURE).block(body, set()))


class _Backward:
    """The backward walk; it leaves out what is dead, but for `pure` None."""

    def __init__(self, body: list[ast.stmt], pure: frozenset[str] | None) -> None:
        named, nested = loads(body), [one for one in walk_own(body) if type(one) is ast.FunctionDef]
        # Read when these functions are called, which the text does not show.
        self.closed = {name for one in nested if one.name in named for name in loads(one)}
        self.pure = pure

    def block(self, body: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
        """Return the statements that are needed; updates `live` to the names needed before."""
        live |= self.closed
        left: list[ast.stmt] = []
        for stmt in reversed(body):
            kept = self.statement(stmt, live)
            left += [] if kept is None else [kept]
            live |= self.closed
        return left[::-1] if any(map(_has_effect, left)) else []

    def statement(self, stmt: Any, live: set[str]) -> Any:
        """Return a statement, or None if nothing needs it."""
        if isinstance(stmt, ast.If):
            stmt.after, other = set(live), set(live)  # type: ignore[attr-defined]
            body, orelse = self.block(stmt.body, live), self.block(stmt.orelse, other)
            live |= other
            if not body + orelse and self.is_pure(stmt.test):
                return None
            live |= loads(stmt.test)
            return _with_blocks(stmt, body, orelse)
        if isinstance(stmt, (ast.For, ast.While)):
            return self.loop(stmt, live)
        if isinstance(stmt, ast.With):
            after = set(live) if self.pure is not None else set()  # it may end by an exception
            body = self.block(stmt.body, live)
            live -= bound_names([one.optional_vars for one in stmt.items if one.optional_vars])
            live |= after.union(loads([one.context_expr for one in stmt.items]))
            return _with_blocks(stmt, body) if body else None
        if isinstance(stmt, (ast.Try, ast.TryStar)) and self.pure is None:
            after = set(live)
            for block in (stmt.finalbody, stmt.orelse, *[h.body for h in stmt.handlers], stmt.body):
                inside = live | after
                self.block(block, inside)
                live |= inside
            live |= loads([one.type for one in stmt.handlers if one.type is not None])
            return stmt
        if isinstance(stmt, ast.Return):
            live.clear()
        bound = (
            set() if isinstance(stmt, (ast.Try, ast.TryStar)) else bound_names([stmt], sure=True)
        )
        same = isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Name)
        if self.pure is not None and (
            (same and bound == {stmt.value.id}) or (not bound & live and self._only_binds(stmt))
        ):
            return None
        live -= bound
        live |= loads(stmt)
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
            live.add(stmt.target.id)
        return stmt

    def _only_binds(self, stmt: ast.stmt) -> bool:
        """Return whether a statement has no effect but on the names that it binds."""
        if isinstance(stmt, ast.Assign):
            return not _writes(stmt.targets) and self.is_pure(stmt.value)
        if isinstance(stmt, ast.AugAssign):
            return isinstance(stmt.target, ast.Name) and isinstance(stmt.value, ast.Constant)
        return isinstance(stmt, ast.FunctionDef)

    def loop(self, loop: Any, live: set[str]) -> ast.stmt | None:
        """Return a loop with the statements that its iterations or later code need."""
        over = getattr(loop, "iter", None)
        targets = set() if over is None else bound_names([loop.target])
        loop.after, head = set(live), live | ({getattr(loop, "stopped", "")} - {""})
        head |= loads(loop.test) if over is None else set()
        while True:
            inside = set(head)
            body = self.block(loop.body, inside)
            if inside - targets <= head:
                break
            head |= inside - targets
        loop.head = head
        if not body and over is not None and self.is_pure(over) and not targets & live:
            return None
        live |= head if over is None else head | loads(over)
        return _with_blocks(loop, body, loop.orelse)

    def is_pure(self, node: ast.AST) -> bool:
        """Return whether computing an expression has no effect."""
        if self.pure is None:
            return False
        for part in ast.walk(node):
            if isinstance(part, (ast.Yield, ast.Await, ast.NamedExpr)):
                return False
            if isinstance(part, ast.Call):
                name = ast.unparse(part.func)
                if name not in self.pure and not name.startswith("np."):
                    return False
        return True


def _with_blocks(stmt: Any, body: list[ast.stmt], orelse: list[ast.stmt] | None = None) -> ast.stmt:
    made = copy(stmt)
    made.body = body or [ast.Pass()]
    if orelse is not None:
        made.orelse = orelse
    return made  # type: ignore[no-any-return]


def _writes(targets: list[ast.expr]) -> bool:
    """Return whether an assignment writes into an object."""
    parts = [part for target in targets for part in ast.walk(target)]
    return any(isinstance(part, (ast.Subscript, ast.Attribute)) for part in parts)


def _has_effect(stmt: ast.stmt) -> bool:
    """Return whether a statement is more than a comment or ``pass``."""
    comment = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
    return not (comment or isinstance(stmt, ast.Pass))


def _fused(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the body with ``b = one`` and ``b = b + other`` as one statement."""
    out: list[ast.stmt] = []
    for stmt in body:
        for name in ("body", "orelse"):
            if isinstance(getattr(stmt, name, None), list):
                setattr(stmt, name, _fused(getattr(stmt, name)))
        part = _added(stmt)
        if part is not None and out and isinstance(out[-1], ast.Assign):
            before, name = out[-1], ast.unparse(stmt.targets[0])  # type: ignore[attr-defined]
            value = before.value
            sums = isinstance(value, (ast.BinOp, ast.UnaryOp)) or (
                isinstance(value, ast.Call) and ast.unparse(value.func) == "sum_like"
            )
            same = ast.unparse(before.targets[0]) == name
            if sums and same and name not in loads(part) | loads(value):
                before.value = ast.BinOp(value, ast.Add(), part)
                continue
        out.append(stmt)
    return out


def _added(stmt: ast.stmt) -> ast.expr | None:
    """Return y of ``b = b + y``."""
    value = stmt.value if isinstance(stmt, ast.Assign) else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    same = ast.unparse(value.left) == ast.unparse(stmt.targets[0])  # type: ignore[attr-defined]
    return value.right if same else None
