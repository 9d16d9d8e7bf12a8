"""Early returns, break and continue: code after them moves into the branches that go on.

Afterwards break and continue stand last in their branch and skip nothing, and the only return is
the last statement.  So a function is reversed by reversing its blocks.
"""

from __future__ import annotations

import ast
from copy import deepcopy

from actorgraph.source.scope import Scope, walk_own
from actorgraph.source.steps import parse_one

_JUMPS = (ast.Return, ast.Break, ast.Continue)


def jumps(node: ast.AST) -> bool:
    """Return whether a statement may leave its block."""
    if isinstance(node, _JUMPS):
        return True
    if isinstance(node, (ast.For, ast.While)):
        return any(isinstance(one, ast.Return) for one in walk_own([node]))
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
        return not _own_breaks(last.body)
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
        for i, one in enumerate(body):
            rest = body[i + 1 :]
            if isinstance(one, ast.Match):
                return out + self.block([*self._chain(one), *rest], in_loop)
            if isinstance(one, ast.Return):
                return out + self._returned(one, in_loop)
            if isinstance(one, (ast.Break, ast.Continue)):
                return [*out, *getattr(one, "before", []), one]
            if isinstance(one, (ast.For, ast.While)):
                out += self._loop_parts(one, rest, in_loop)
                if getattr(one, "moved", False):
                    return out
                continue
            if not jumps(one):
                if isinstance(one, (ast.If, ast.With)):
                    one.body = self.block(one.body, in_loop)
                if isinstance(one, ast.If):
                    one.orelse = self.block(one.orelse, in_loop)
                out.append(one)
                continue
            if isinstance(one, ast.If):
                if always_leaves(one.body):
                    one.orelse = one.orelse + rest
                elif always_leaves(one.orelse):
                    one.body = one.body + rest
                else:
                    one.body, one.orelse = one.body + deepcopy(rest), one.orelse + rest
                one.body = self.block(one.body, in_loop) or [ast.Pass()]
                one.orelse = self.block(one.orelse, in_loop)
                return [*out, one]
            if isinstance(one, ast.With):
                one.body = self.block(one.body + rest, in_loop)
                return [*out, one]
            out.append(one)  # a try: refused later, if active
        return out

    def _returned(self, one: ast.Return, in_loop: bool) -> list[ast.stmt]:
        same = isinstance(one.value, ast.Name) and one.value.id == self.result
        value = one.value or ast.Constant(None)
        made = ast.copy_location(ast.Assign([ast.Name(self.result, ast.Store())], value), one)
        ast.fix_missing_locations(made)
        if not in_loop:
            return [made]
        leave = [parse_one(f"{self.flag} = True", one), ast.copy_location(ast.Break(), one)]
        return [*([] if same else [made]), *leave]

    def _loop_parts(
        self, loop: ast.For | ast.While, rest: list[ast.stmt], in_loop: bool
    ) -> list[ast.stmt]:
        """Return a loop with its flags, and the code after it if that depends on them."""
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
            for one in _own_breaks(loop.body):
                one.before = [parse_one(f"{broke} = True", one)]  # type: ignore[attr-defined]
            test = f"not {broke}" + (f" and not {self.flag}" if returns else "")
            guard = parse_one(f"if {test}: pass", loop)
            guard.body = orelse
            after = [guard, *rest]
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
                loop.moved = True  # type: ignore[union-attr]
                return [*before, loop, leave]
        if after is not rest:
            loop.moved = True  # type: ignore[union-attr]
            return [*before, loop, *self.block(after, in_loop)]
        return [*before, loop]

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
            made = parse_one(f"if {test.removeprefix('True and ')}: pass", case.body[0])
            made.body, made.orelse = body, chain
            chain = [made]
        return out + chain


def _own_breaks(body: list[ast.stmt]) -> list[ast.Break]:
    breaks = []
    for one in body:
        if isinstance(one, ast.Break):
            breaks.append(one)
        elif isinstance(one, ast.If):
            breaks += _own_breaks(one.body + one.orelse)
        elif isinstance(one, ast.With):
            breaks += _own_breaks(one.body)
    return breaks


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
        return " or ".join([_test_of(one, subject)[0] for one in pattern.patterns]), []
    if isinstance(pattern, ast.MatchAs):
        inner = ("True", []) if pattern.pattern is None else _test_of(pattern.pattern, subject)
        return inner[0], [*inner[1], *([pattern.name] if pattern.name else [])]
    raise UnsupportedPattern(pattern)
