"""Removes dead code, in one backward walk by liveness."""

from __future__ import annotations

import ast

from actorgraph.source.steps import loads

_IMPURE = frozenset({"fitting", "check_inputs", "refuse_array", "refuse_view", "overwritten"})


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
    for one in body:
        for name in ("body", "orelse"):
            if isinstance(getattr(one, name, None), list):
                setattr(one, name, fused(getattr(one, name)))
        part = _added(one)
        if part is not None and out and isinstance(out[-1], ast.Assign):
            before, name = out[-1], ast.unparse(one.targets[0])  # type: ignore[attr-defined]
            value = before.value
            sums = isinstance(value, (ast.BinOp, ast.UnaryOp)) or (
                isinstance(value, ast.Call) and ast.unparse(value.func) == "sum_like"
            )
            same = ast.unparse(before.targets[0]) == name
            if sums and same and name not in loads(part) | loads(value):
                before.value = ast.BinOp(value, ast.Add(), part)
                continue
        out.append(one)
    return out


def _added(one: ast.stmt) -> ast.expr | None:
    """Return y of ``b = b + y``."""
    value = one.value if isinstance(one, ast.Assign) else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        return None
    same = ast.unparse(value.left) == ast.unparse(one.targets[0])  # type: ignore[attr-defined]
    return value.right if same else None


class _Sweep:
    def __init__(self, pure: frozenset[str]) -> None:
        self.pure = pure - _IMPURE

    def block(self, body: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
        """Return the statements that are needed; updates `live` to the names needed before."""
        kept = [self.statement(one, live) for one in reversed(body)]
        return [one for one in reversed(kept) if one is not None]

    def statement(self, one: ast.stmt, live: set[str]) -> ast.stmt | None:
        """Return a statement, or None if nothing needs it."""
        if isinstance(one, ast.Assign):
            names = _names(one.targets)
            if names is not None:
                if not names & live and self.is_pure(one.value):
                    return None
                if names == loads(one.value) == live & names and isinstance(one.value, ast.Name):
                    return None  # x = x
                live -= names
            live |= loads(one)
            return one
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            if one.target.id not in live and isinstance(one.value, ast.Constant):
                return None
            live |= loads(one) | {one.target.id}
            return one
        if isinstance(one, ast.If):
            other = set(live)
            body, orelse = self.block(one.body, live), self.block(one.orelse, other)
            live |= other
            if not _has_effect(body + orelse) and self.is_pure(one.test):
                return None
            live |= loads(one.test)
            return ast.copy_location(ast.If(one.test, body or [ast.Pass()], orelse), one)
        if isinstance(one, (ast.For, ast.While)):
            return self.loop(one, live)
        if isinstance(one, ast.With):
            body = self.block(one.body, live)
            for item in one.items:
                live |= loads(item.context_expr)
            return ast.With(one.items, body, None) if body else None
        if isinstance(one, ast.Return):
            live.clear()
        live |= loads(one)
        return one

    def loop(self, one: ast.For | ast.While, live: set[str]) -> ast.stmt | None:
        """Return a loop with the statements that its iterations or later code need."""
        head = loads(one.iter if isinstance(one, ast.For) else one.test)
        around = live | head
        while True:
            inside = set(around)
            body = self.block(one.body, inside)
            if inside <= around:
                break
            around |= inside
        idle = not _has_effect(body) and isinstance(one, ast.For) and self.is_pure(one.iter)
        if idle and not (_names([one.target]) or set()) & live:  # type: ignore[union-attr]
            return None
        live |= around
        if isinstance(one, ast.For):
            made: ast.stmt = ast.For(one.target, one.iter, body or [ast.Pass()], one.orelse)
        else:
            made = ast.While(one.test, body or [ast.Pass()], one.orelse)
        return ast.copy_location(made, one)

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
    found: set[str] = set()
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, (ast.Subscript, ast.Attribute)):
                return None
            if isinstance(node, ast.Name):
                found.add(node.id)
    return found


def _has_effect(body: list[ast.stmt]) -> bool:
    """Return whether a block has more than comments and ``pass``."""
    return any(
        not isinstance(one, ast.Pass)
        and not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in body
    )
