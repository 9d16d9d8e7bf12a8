"""Removes dead code, in one backward walk by liveness."""

from __future__ import annotations

import ast

from actorgraph.source.steps import loads

_IMPURE = frozenset(
    "fitting check_inputs refuse_array refuse_list refuse_same refuse_view overwritten".split()
)


def without_dead_code(body: list[ast.stmt], pure: frozenset[str]) -> list[ast.stmt]:
    """Return the body without statements that have no effect; calls of `pure` names have none."""
    return fused(_Sweep(pure).block(body, set()))


def needed_before(body: list[ast.stmt]) -> set[str]:
    """Return the names that a body reads before it binds them."""
    live: set[str] = set()
    _Sweep(frozenset()).block(body, live)
    return live


def fused(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the body with ``b = one`` and ``b = b + other`` as one statement."""
    out: list[ast.stmt] = []
    for stmt in body:
        for name in ("body", "orelse"):
            if isinstance(getattr(stmt, name, None), list):
                setattr(stmt, name, fused(getattr(stmt, name)))
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


class _Sweep:
    def __init__(self, pure: frozenset[str]) -> None:
        self.pure = pure - _IMPURE

    def block(self, body: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
        """Return the statements that are needed; updates `live` to the names needed before."""
        kept = [self.statement(stmt, live) for stmt in reversed(body)]
        left = [stmt for stmt in reversed(kept) if stmt is not None]
        return left if _has_effect(left) else []

    def statement(self, stmt: ast.stmt, live: set[str]) -> ast.stmt | None:
        """Return a statement, or None if nothing needs it."""
        if isinstance(stmt, ast.Assign):
            names = _names(stmt.targets)
            if names is not None:
                if not names & live and self.is_pure(stmt.value):
                    return None
                if names == loads(stmt.value) == live & names and isinstance(stmt.value, ast.Name):
                    return None  # x = x
                live -= names
            live |= loads(stmt)
            return stmt
        if isinstance(stmt, ast.AugAssign) and isinstance(stmt.target, ast.Name):
            if stmt.target.id not in live and isinstance(stmt.value, ast.Constant):
                return None
            live |= loads(stmt) | {stmt.target.id}
            return stmt
        if isinstance(stmt, ast.If):
            other = set(live)
            body, orelse = self.block(stmt.body, live), self.block(stmt.orelse, other)
            live |= other
            if not body + orelse and self.is_pure(stmt.test):
                return None
            live |= loads(stmt.test)
            return ast.copy_location(ast.If(stmt.test, body or [ast.Pass()], orelse), stmt)
        if isinstance(stmt, (ast.For, ast.While)):
            return self.loop(stmt, live)
        if isinstance(stmt, ast.With):
            body = self.block(stmt.body, live)
            for item in stmt.items:
                live |= loads(item.context_expr)
            return ast.With(stmt.items, body, None) if body else None
        if isinstance(stmt, ast.FunctionDef):
            if stmt.name not in live:
                return None
            live -= {stmt.name}
        if isinstance(stmt, ast.Return):
            live.clear()
        live |= loads(stmt)
        return stmt

    def loop(self, loop: ast.For | ast.While, live: set[str]) -> ast.stmt | None:
        """Return a loop with the statements that its iterations or later code need."""
        head = loads(loop.iter if isinstance(loop, ast.For) else loop.test)
        around = live | head
        while True:
            inside = set(around)
            body = self.block(loop.body, inside)
            if inside <= around:
                break
            around |= inside
        idle = not body and isinstance(loop, ast.For) and self.is_pure(loop.iter)
        if idle and not (_names([loop.target]) or set()) & live:  # type: ignore[union-attr]
            return None
        live |= around
        if isinstance(loop, ast.For):
            needed: ast.stmt = ast.For(loop.target, loop.iter, body or [ast.Pass()], loop.orelse)
        else:
            needed = ast.While(loop.test, body or [ast.Pass()], loop.orelse)
        return ast.copy_location(needed, loop)

    def is_pure(self, node: ast.AST) -> bool:
        """Return whether computing an expression has no effect."""
        for part in ast.walk(node):
            if isinstance(part, (ast.Yield, ast.Await, ast.NamedExpr)):
                return False
            if isinstance(part, ast.Call):
                name = ast.unparse(part.func)
                if name not in self.pure and not name.startswith("np."):
                    return False
        return True


def _names(targets: list[ast.expr]) -> set[str] | None:
    """Return the names that targets bind, None if they write into an object."""
    names: set[str] = set()
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, (ast.Subscript, ast.Attribute)):
                return None
            if isinstance(node, ast.Name):
                names.add(node.id)
    return names


def _has_effect(body: list[ast.stmt]) -> bool:
    """Return whether a block has more than comments and ``pass``."""
    return any(
        not isinstance(stmt, ast.Pass)
        and not (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))
        for stmt in body
    )
