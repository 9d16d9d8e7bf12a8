"""Early returns, break and continue: code after them moves into the branches that go on.

Afterwards break and continue stand last in their branch and skip nothing, and the only return is
the last statement.  So a function is reversed by reversing its blocks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from actorgraph.source.names import walk_own
from actorgraph.source.scope import Scope
from actorgraph.source.steps import parse_one

_JUMPS = (ast.Return, ast.Break, ast.Continue)


def jumps(node: ast.AST) -> bool:
    """Return whether a statement may leave its block."""
    if isinstance(node, _JUMPS):
        return True
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(part, ast.Return) for part in walk_own([node]))
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return False
    return any(map(jumps, ast.iter_child_nodes(node)))


def always_leaves(block: list[ast.stmt]) -> bool:
    """Return whether control never reaches the end of a block."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.If):
        return always_leaves(last.body) and always_leaves(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not own_jumps(last.body, ast.Break)
    return isinstance(last, (*_JUMPS, ast.Raise))


class Jumps:
    """Rewrites the body of a function."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.flag = scope, ""
        self.body = [*scope.tree.body]
        if not always_leaves(self.body):  # as in Python, the end of the body returns None
            end = ast.Return(ast.Constant(None))
            self.body.append(ast.fix_missing_locations(ast.copy_location(end, self.body[-1])))
        returns = [one for one in walk_own(self.body) if isinstance(one, ast.Return)]
        value = returns[0].value if len(returns) == 1 else None
        named = isinstance(value, ast.Name) and value.id in scope.locals
        self.result = value.id if named else ""  # type: ignore[union-attr]
        if not self.result:
            self.result = "result" if "result" not in scope.used else scope.fresh("result")
            scope.used.add(self.result)

    def rewritten(self) -> list[ast.stmt]:
        """Return the body with assignments to the name `result` in place of returns."""
        return self.block(deepcopy(self.body), in_loop=False)

    def block(self, body: list[ast.stmt], in_loop: bool) -> list[ast.stmt]:
        """Return the block with the code after a jump moved into the other branch."""
        out: list[ast.stmt] = []
        for i, stmt in enumerate(body):
            rest = body[i + 1 :]
            if isinstance(stmt, ast.Match):
                return out + self.block([*self._chain(stmt), *rest], in_loop)
            if isinstance(stmt, ast.Return):
                return out + self._returned(stmt, in_loop)
            if isinstance(stmt, (ast.Break, ast.Continue)):
                return [*out, *getattr(stmt, "before", []), stmt]
            if isinstance(stmt, (ast.For, ast.While)):
                parts, took_rest = self._loop_parts(stmt, rest, in_loop)
                out += parts
                if took_rest:
                    return out
                continue
            if not jumps(stmt):
                if isinstance(stmt, (ast.If, ast.With)):
                    stmt.body = self.block(stmt.body, in_loop)
                if isinstance(stmt, ast.If):
                    stmt.orelse = self.block(stmt.orelse, in_loop)
                out.append(stmt)
                continue
            if isinstance(stmt, ast.If):
                if always_leaves(stmt.body):
                    stmt.orelse = stmt.orelse + rest
                elif always_leaves(stmt.orelse):
                    stmt.body = stmt.body + rest
                else:
                    stmt.body, stmt.orelse = stmt.body + deepcopy(rest), stmt.orelse + rest
                stmt.body = self.block(stmt.body, in_loop) or [ast.Pass()]
                stmt.orelse = self.block(stmt.orelse, in_loop)
                return [*out, stmt]
            if isinstance(stmt, ast.With):
                stmt.body = self.block(stmt.body + rest, in_loop)
                return [*out, stmt]
            out.append(stmt)  # a try: refused later, if active
        return out

    def _returned(self, stmt: ast.Return, in_loop: bool) -> list[ast.stmt]:
        same = isinstance(stmt.value, ast.Name) and stmt.value.id == self.result
        value = stmt.value or ast.Constant(None)
        bound = ast.copy_location(ast.Assign([ast.Name(self.result, ast.Store())], value), stmt)
        ast.fix_missing_locations(bound)
        if not in_loop:
            return [bound]
        leave = [parse_one(f"{self.flag} = True", stmt), ast.copy_location(ast.Break(), stmt)]
        return [*([] if same else [bound]), *leave]

    def _loop_parts(
        self, loop: ast.For | ast.While, rest: list[ast.stmt], in_loop: bool
    ) -> tuple[list[ast.stmt], bool]:
        """Return a loop with its flags, with the rest if that needs them, and whether it does."""
        before: list[ast.stmt] = []
        after = rest
        returns = jumps(loop)
        if returns:
            outer = self.flag
            self.flag = self.scope.fresh("returned")
            before.append(parse_one(f"{self.flag} = False", loop))
        orelse, loop.orelse = loop.orelse, []
        if orelse:
            broke = self.scope.fresh("broke")
            before.append(parse_one(f"{broke} = False", loop))
            for jump in own_jumps(loop.body, ast.Break):
                jump.before = [parse_one(f"{broke} = True", jump)]
            test = f"not {broke}" + (f" and not {self.flag}" if returns else "")
            guard = parse_one(f"if {test}: pass", loop)
            guard.body = orelse
            after = [guard, *rest]
        if isinstance(loop, ast.While) and has_walrus(loop.test):
            leave = parse_one(f"if not ({ast.unparse(loop.test)}): break", loop)
            loop.test, loop.body = ast.Constant(True), [leave, *loop.body]
        loop.body = self.block(loop.body, in_loop=True)
        if returns:
            flag, self.flag = self.flag, outer
            leave = parse_one(f"if {flag}: pass", loop)
            if in_loop:
                left = [parse_one(f"{outer} = True", loop), ast.copy_location(ast.Break(), loop)]
                leave.body = left
                after = [leave, *after]
            else:
                leave.orelse = self.block(after, in_loop)
                return [*before, loop, leave], True
        if after is rest:
            return [*before, loop], False
        return [*before, loop, *self.block(after, in_loop)], True

    def _chain(self, node: ast.Match) -> list[ast.stmt]:
        """Return a match on plain values as ifs; raises `UnsupportedPattern` for structures."""
        subject = self.scope.fresh("subject")
        text = f"{subject} = {ast.unparse(node.subject)}"
        out = [parse_one(text, node)]
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            test, names = _test_of(case.pattern, subject)
            body = [parse_one(f"{name} = {subject}", case.body[0]) for name in names] + case.body
            if case.guard is not None:
                guard = ast.unparse(case.guard)
                for name in names:
                    guard = f"(lambda {name}: {guard})({subject})"
                test = f"{test} and ({guard})"
            if test == "True":
                chain = body
                continue
            branch = parse_one(f"if {test.removeprefix('True and ')}: pass", case.body[0])
            branch.body, branch.orelse = body, chain
            chain = [branch]
        return out + chain


def has_walrus(node: ast.AST) -> bool:
    """Return whether an expression binds names."""
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))


def own_jumps(nodes: Iterable[ast.AST], *kinds: type[ast.stmt]) -> list[Any]:
    """Return the breaks (or continues) of the loop around these nodes, by `kinds`."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, kinds):
            found.append(node)
        elif isinstance(node, (ast.For, ast.While)):
            found += own_jumps(node.orelse, *kinds)
        elif not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found += own_jumps(ast.iter_child_nodes(node), *kinds)
    return found


class UnsupportedPattern(Exception):
    """A pattern that destructures its subject; `fence` has the text of the refusal."""

    def __init__(self, pattern: ast.pattern) -> None:
        self.pattern = pattern
        super().__init__()


def _test_of(pattern: ast.pattern, subject: str) -> tuple[str, list[str]]:
    if isinstance(pattern, ast.MatchValue):
        return f"{subject} == {ast.unparse(pattern.value)}", []
    if isinstance(pattern, ast.MatchSingleton):
        return f"{subject} is {pattern.value!r}", []
    if isinstance(pattern, ast.MatchOr):
        return " or ".join([_test_of(choice, subject)[0] for choice in pattern.patterns]), []
    if isinstance(pattern, ast.MatchAs):
        inner = ("True", []) if pattern.pattern is None else _test_of(pattern.pattern, subject)
        return inner[0], [*inner[1], *([pattern.name] if pattern.name else [])]
    raise UnsupportedPattern(pattern)
