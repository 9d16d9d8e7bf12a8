"""Reverse mode: the steps of a function, forward and then backward.

The backward sweep is written from the end, with a state of each cotangent: zero, not zero, or
dependent on the path taken (then None is a zero).  A step whose result has a zero cotangent is not
reversed.

Names in the backward sweep have the values that they had at the step reversed.  If a later step
binds a name again, its value is saved: outside loops under a second name, in loops on one list,
`tape`, to which each forward iteration pushes and from which each backward iteration pops.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any

from actorgraph.source import support
from actorgraph.source.rules import inline
from actorgraph.source.scope import Scope, bound_names
from actorgraph.source.steps import (
    Branch,
    Context,
    Insertion,
    Jump,
    LoopStatement,
    Statement,
    Substituted,
    bound,
    index_value,
    loads,
    parse,
)
from actorgraph.source.usual import ADJOINTS, LINEAR

State = dict[str, str]
ZERO, SOME, MAYBE = "zero", "some", "maybe"


def comment(origin: Any, what: str) -> list[ast.stmt]:
    """Return a comment that names the user's line."""
    text = ast.unparse(origin).split("\n")[0]
    line = getattr(origin, "lineno", 0)
    return [ast.Expr(ast.Constant(f"# {what} line {line}: {text}"))]


class _Group:
    """Consecutive steps without blocks, which share one entry of the tape."""

    def __init__(self) -> None:
        self.forward: list[ast.stmt] = []
        self.backward: list[ast.stmt] = []
        self.needs: dict[str, None] = {}
        self.bound: set[str] = set()


class ReverseWriter:
    """Writes the forward and the backward sweep of one function."""

    def __init__(self, scope: Scope, session: Any, optimized: bool) -> None:
        self.scope, self.session, self.optimized = scope, session, optimized
        self.owned: set[str] = set()
        self.tapes: set[str] = set()
        self.tape = "tape" if "tape" not in scope.used else scope.fresh("tape")
        self.uses_tape = False
        self._slots: dict[tuple[int, str], str] = {}

    def b(self, name: str) -> str:
        """Return the name of a cotangent."""
        return self.scope.derived("b", name)

    def prepare(self, steps: list[Any]) -> None:
        """Collect the cotangents that are written in place, which must not be shared."""
        for one in steps:
            if isinstance(one, Statement):
                if one.kind in ("item", "store", "append", "pop"):
                    self.owned.add(ast.unparse(one.args[0]))
                if one.kind in ("append", "pop") and self.scope.is_generated:
                    name = ast.unparse(one.args[0])
                    self.tapes |= {name} if name.startswith("tape") else set()
            elif isinstance(one, Branch):
                self.prepare(one.body + one.orelse)
            elif isinstance(one, (LoopStatement, Context)):
                self.prepare(one.body)

    # -- blocks -------------------------------------------------------------------------------

    def sweep(
        self, steps: list[Any], state: State, later: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return both sweeps of a block; updates `state` to the one before the block.

        `later` are the names that may be bound again after the block.
        """
        forward: list[ast.stmt] = []
        backward: list[ast.stmt] = []
        group = _Group()
        for i in range(len(steps) - 1, -1, -1):
            one = steps[i]
            after = later | bound(steps[i + 1 :])
            if isinstance(one, (Statement, Insertion)):
                self._step(one, state, after, loop, group)
                continue
            made, turned, needs = self._compound(one, state, after, loop)
            for name in needs:
                if loop and name in after:
                    group.needs[name] = None
            self._close(group, forward, backward, made)
            forward[:0] = made
            backward += turned
            group = _Group()
        self._close(group, forward, backward, None)
        return forward, backward

    def _close(
        self, group: _Group, forward: list[ast.stmt], backward: list[ast.stmt], before: Any
    ) -> None:
        push: list[ast.stmt] = []
        if group.needs:
            self.uses_tape = True
            names = ", ".join(group.needs)
            entry = f"({names})" if len(group.needs) > 1 else names
            push = parse(f"{self.tape}.append({entry})")
            backward += parse(f"{names} = {self.tape}.pop()")
        backward += group.backward
        if push and not group.forward and before:
            _append_at_ends(before, push)
        else:
            forward[:0] = group.forward + push

    def _step(self, one: Any, state: State, after: set[str], loop: bool, group: _Group) -> None:
        if isinstance(one, Insertion):
            made: list[ast.stmt] = []
            lines = self._inserted(one, state)
            binds: set[str] = set()
        else:
            made, lines = self._adjoint(one, state)
            binds = bound_names(made)
        inside = bound_names(lines)
        needed = [
            name
            for name in sorted(loads(lines))
            if name in self.scope.locals and name in (after | group.bound) and (
                name not in inside or name in binds
            )
        ]  # fmt: skip
        renamed: dict[str, ast.expr] = {}
        for name in needed:
            if loop and name not in group.bound:
                group.needs[name] = None
                continue
            kept = self._slot(one, name)
            self.scope.locals.add(kept)
            renamed[name] = ast.Name(kept, ast.Load())
            made += parse(f"{kept} = {name}")
            if loop:
                group.needs[kept] = None
        if renamed:
            lines = [Substituted(renamed).visit(line) for line in lines]
        group.bound |= binds
        group.forward[:0] = made
        group.backward += lines

    def _compound(
        self, one: Any, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        if isinstance(one, Jump):
            return parse(f"while True:\n    {one.text}")[0].body, [], []  # type: ignore[attr-defined]
        if isinstance(one, Branch):
            return self._branch(one, state, after, loop)
        if isinstance(one, LoopStatement):
            return self._loop(one, state, after, loop)
        forward, backward = self.sweep(one.body, state, after, loop)
        made = _block(one.header, forward)
        if one.repeats and backward:
            backward = _block(one.header, backward)
        return made, backward, []

    def _branch(
        self, one: Branch, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        other = dict(state)
        body, body_back = self.sweep(one.body, state, after, loop)
        orelse, orelse_back = self.sweep(one.orelse, other, after, loop)
        _join(state, other)
        test, made = one.test, []
        reversed_too = bool(body_back or orelse_back)
        if reversed_too and not one.name and (loop or test in (after | bound([one]))):
            one.name = self.scope.fresh("test")
        if reversed_too and one.name:
            made = parse(f"{one.name} = {test}")
            test = one.name
            self.scope.locals.add(test)
        made += _block(f"if {test}", body, orelse)
        if not reversed_too:
            return made, [], []
        if loop:
            after.add(test)
        return made, _block(f"if {test}", body_back, orelse_back), [test]

    def _loop(
        self, one: LoopStatement, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        again = after | bound([one])
        if one.over and one.target:
            again = after | (again - {one.target}) | bound(one.body)
        while True:
            before = dict(state)
            forward, backward = self.sweep(one.body, before, set(again), True)
            joined = dict(state)
            _join(joined, before)
            if joined == state:
                break
            state.clear()
            state.update(joined)
        if not backward:
            return _block(one.header, forward), [], []
        if one.over:
            needs = sorted(loads(parse(one.over)) & self.scope.locals)
            over, kept = one.over, []
            if any(name in after for name in needs):
                name = self._slot(one, "range")
                self.scope.locals.add(name)
                kept, over, needs = parse(f"{name} = {over}"), name, [name]
                header = f"for {one.target} in {name}"
                if loop:
                    after.add(name)
            else:
                header = one.header
            made = kept + _block(header, forward)
            return made, _block(f"for {one.target} in reversed({over})", backward), needs
        count = one.count
        self.scope.locals.add(count)
        if loop:
            after.add(count)
        made = parse(f"{count} = 0") + _block(one.header, parse(f"{count} += 1") + forward)
        return made, _block(f"for _ in range({count})", backward), [count]

    # -- steps --------------------------------------------------------------------------------

    def _inserted(self, one: Insertion, state: State) -> list[ast.stmt]:
        ct = self.b(one.x)
        if self.optimized and state.get(one.x, ZERO) == ZERO:
            return []
        lines = parse(f"{one.name} = {ct}") + one.body + parse(f"{ct} = {one.name}")
        return comment(one.origin, "inserted at") + _block(f"if {ct} is not None", lines)

    def _adjoint(self, one: Statement, state: State) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return the forward statements of a step and those that reverse it."""
        made = parse(one.text)
        active = self.scope.active
        if one.kind == "passive":
            lines: list[ast.stmt] = []
            for name in sorted(bound_names(made) & active):
                if state.get(name, ZERO) != ZERO or not self.optimized:
                    lines += parse(f"{self.b(name)} = None")
                state[name] = ZERO
            return made, lines
        if one.kind in ("store", "append"):
            return made, self._write(one, state)
        known = state.get(one.target, ZERO) if self.optimized else MAYBE
        if one.kind in ("user", "dynamic"):
            made = self._recorded(one, known != ZERO)
        if one.kind == "pop":  # reversed even for a zero: pops have to match appends
            state[one.target] = ZERO
            lines = self._pop_adjoint(one, known, state) + parse(f"{self.b(one.target)} = None")
            return made, comment(one.origin, "gradient of") + lines
        if known == ZERO:
            return made, []
        state[one.target] = ZERO
        before = dict(state)
        lines = getattr(self, f"_{one.kind}_adjoint")(one, state)
        ct = self.b(one.target)
        if known == MAYBE and lines:
            _join(state, before)
            lines = _block(f"if {ct} is not None", lines)
        lines = lines + parse(f"{ct} = None")
        return made, comment(one.origin, "gradient of") + lines

    def give(
        self, target: ast.expr, part: str, state: State, certain: bool = True, fresh: bool = False
    ) -> list[ast.stmt]:
        """Return statements that add a part to the cotangent of an operand."""
        if not isinstance(target, ast.Name) or target.id not in self.scope.active:
            return []
        name, ct = target.id, self.b(target.id)
        known = state.get(name, ZERO) if self.optimized else MAYBE
        held = name in self.owned and not fresh
        if known == SOME and certain:
            text = f"{ct} = {ct} + {part}"
        elif known == ZERO and not held:
            text = f"{ct} = {part}"
        else:
            total = "None" if known == ZERO else ct
            add = self.scope.support(support.own if held else support.add)
            text = f"{ct} = {add}({total}, {part})"
        state[name] = SOME if certain or known == SOME else MAYBE
        return parse(text)

    def _copy_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        return self.give(one.args[0], self.b(one.target), state)

    def _call_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        active = [i for i, arg in enumerate(one.args) if self._is_active(arg)]
        made = inline(one.function, one.args, one.kwargs, active)
        ct = self.b(one.target)
        if made is None:
            derived = self.session.derived(one.function, tuple(active))
            name = self.scope.help(derived.__name__, derived)
            call = _call(name, [ct, one.target, *map(ast.unparse, one.args)], one.kwargs)
            return self._spread(one, call, [one.args[i] for i in active], state)
        names = {**self.session.operands(self.scope, one, made), "ct": _name(ct)}
        lines: list[ast.stmt] = []
        for stem, value in made.before:
            fresh = self._slot(one, stem, stem.rpartition("_t")[0])
            lines += parse(f"{fresh} = {_substituted(value, names)}")
            names[stem] = _name(fresh)
        for i, part in zip(active, made.parts, strict=True):
            if part is not None:
                fresh_part = isinstance(part, (ast.BinOp, ast.UnaryOp))
                text = _substituted(part, names)
                lines += self.give(one.args[i], text, state, fresh=fresh_part)
        return lines

    def _slot(self, one: Any, purpose: str, stem: str = "") -> str:
        """Return a fresh name for a purpose of a step, the same in each walk of a loop."""
        key = id(one), purpose
        if key not in self._slots:
            self._slots[key] = self.scope.fresh(stem or purpose)
        return self._slots[key]

    def _spread(
        self, one: Statement, call: str, targets: list[ast.expr], state: State
    ) -> list[ast.stmt]:
        """Return statements that add the results of a call to the cotangents of its operands."""
        if len(targets) == 1:
            return self.give(targets[0], call, state, certain=False)
        names = [self._slot(one, f"part{i}_t", f"part{i}") for i in range(len(targets))]
        lines = parse(f"{', '.join(names)} = {call}")
        for target, name in zip(targets, names, strict=True):
            lines += self.give(target, name, state, certain=False)
        return lines

    def _rule_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        rule = ADJOINTS.get(one.function)
        if rule is None:
            raise self.session.missing(self.scope, one, "adjoint")
        name = self.scope.help(f"{one.function.__name__}_adjoint", rule)
        args = [self.b(one.target), one.target, *map(ast.unparse, one.args)]
        call = _call(name, args, one.kwargs)
        if len(one.args) == 1 or one.function in LINEAR:
            return self.give(one.args[0], call, state, certain=False)
        names = [
            self._slot(one, f"part{i}_t", f"part{i}") if self._is_active(arg) else "_"
            for i, arg in enumerate(one.args)
        ]
        lines = parse(f"{', '.join(names)} = {call}")
        for name, arg in zip(names, one.args, strict=True):
            lines += self.give(arg, name, state, certain=False)
        return lines

    def _item_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        base = ast.unparse(one.args[0])
        known = state.get(base, ZERO) if self.optimized else MAYBE
        total = "None" if known == ZERO else self.b(base)
        state[base] = SOME
        return parse(
            f"{self.b(base)} = {self.scope.support(support.add_at)}({total}, {base}, "
            f"{index_value(one.index)}, {self.b(one.target)})"
        )

    def _build_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        keys = one.kwargs.get("keys")
        places = map(str, range(len(one.args)))
        if isinstance(keys, ast.Tuple):
            places = map(ast.unparse, keys.elts)
        lines: list[ast.stmt] = []
        for place, arg in zip(places, one.args, strict=True):
            part = f"{self.scope.support(support.item_of)}({self.b(one.target)}, {place})"
            lines += self.give(arg, part, state, certain=False)
        return lines

    def _pop_adjoint(self, one: Statement, known: str, state: State) -> list[ast.stmt]:
        base = ast.unparse(one.args[0])
        total = "None" if self.optimized and state.get(base, ZERO) == ZERO else self.b(base)
        part = "None" if known == ZERO else self.b(one.target)
        state[base] = SOME
        tape = base in self.tapes
        undo = [] if tape else parse(f"{base}.append({one.target})")
        value = None if tape else base
        pushed = self.scope.support(support.pushed)
        return undo + parse(f"{self.b(base)} = {pushed}({total}, {part}, {value})")

    def _write(self, one: Statement, state: State) -> list[ast.stmt]:
        """Return statements that undo a write, and add its cotangent to that of the value."""
        name, value = one.target, one.args[1]
        known = state.get(name, ZERO) if self.optimized else MAYBE
        ct = self.b(name)
        if one.kind == "store":
            lines = parse(f"{name}[{one.index}] = {one.slot}")
            place = index_value(one.index)
            part = f"{self.scope.support(support.item_of)}({ct}, {place})"
            cut = f"{ct} = {self.scope.support(support.cleared)}({ct}, {place})"
        else:
            lines = [] if name in self.tapes else parse(f"{name}.pop()")
            part = f"{self.scope.support(support.last_of)}({ct})"
            cut = f"{ct} = {self.scope.support(support.shortened)}({ct})"
        if known != ZERO:
            lines = comment(one.origin, "gradient of") + lines
            lines += self.give(value, part, state, certain=False)
            lines += parse(cut)
            state[name] = MAYBE if known == MAYBE or one.kind == "append" else SOME
            if not self.optimized or name in self.tapes:
                state[name] = MAYBE
        return lines

    # -- calls of functions -------------------------------------------------------------------

    def _is_active(self, arg: ast.expr) -> bool:
        return bool(loads(arg) & self.scope.active)

    def _recorded(self, one: Statement, reversed_too: bool) -> list[ast.stmt]:
        """Return the call that also returns a record for its reversal."""
        if not reversed_too:
            return parse(one.text)
        tape = one.slot
        if one.kind == "dynamic":
            active = tuple(i for i, arg in enumerate(one.args) if self._is_active(arg))
            recorder = self.scope.help("recorded", self.session.recorded)
            args = [one.function, repr(active), *map(ast.unparse, one.args)]
            return parse(f"{one.target}, {tape} = {_call(recorder, args, {})}")
        call = self.session.bind(self.scope, one)
        forward, _ = self.session.pair(call)
        name = self.scope.help(f"{call.name}_forward", forward)
        return parse(f"{one.target}, {tape} = {_call(name, call.args, call.kwargs)}")

    def _dynamic_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        pulled = self.scope.help("pulled", self.session.pulled)
        targets = [arg for arg in one.args if self._is_active(arg)]
        return self._spread(one, f"{pulled}({one.slot}, {self.b(one.target)})", targets, state)

    def _user_adjoint(self, one: Statement, state: State) -> list[ast.stmt]:
        call = self.session.bind(self.scope, one)
        _, backward = self.session.pair(call)
        name = self.scope.help(f"{call.name}_backward", backward)
        names = [self._slot(one, f"part{i}_t", f"part{i}") for i in range(len(call.active))]
        lines = parse(f"{', '.join(names)}, = {name}({one.slot}, {self.b(one.target)})")
        spread: list[str] = []
        for parameter, part in zip(call.active, names, strict=True):
            given = call.given[parameter]
            if isinstance(given, list):
                for i, arg in enumerate(given):
                    place = f"{self.scope.support(support.item_of)}({part}, {i})"
                    lines += self.give(arg, place, state, certain=False)
            elif isinstance(given, ast.Starred):
                spread.append(f"*({part} or ())" if parameter == call.vararg else part)
            else:
                lines += self.give(given, part, state, certain=False)
        if spread:
            (starred,) = [arg for arg in one.args if isinstance(arg, ast.Starred)]
            text = f"[{', '.join(spread)}]"
            lines += self.give(starred.value, text, state, certain=False)
        return lines


def _name(text: str) -> ast.expr:
    return ast.Name(text, ast.Load())


def _call(name: str, args: list[str], kwargs: dict[str, Any]) -> str:
    words = [f"{key}={ast.unparse(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join([*args, *words])})"


def _substituted(value: ast.expr, names: dict[str, ast.expr]) -> str:
    return ast.unparse(Substituted(names).visit(deepcopy(value)))


def _block(
    header: str, body: list[ast.stmt], orelse: list[ast.stmt] | None = None
) -> list[ast.stmt]:
    made: Any = parse(f"{header}:\n    pass")[0]
    made.body = list(body) or made.body
    if orelse:
        made.orelse = list(orelse)
    return [made]


def _join(state: State, other: State) -> None:
    for name in {*state, *other}:
        if state.get(name, ZERO) != other.get(name, ZERO):
            state[name] = MAYBE


def _append_at_ends(block: list[ast.stmt], push: list[ast.stmt]) -> None:
    """Append statements at every end of a block, before a final jump."""
    last = block[-1]
    if isinstance(last, (ast.Break, ast.Continue)):
        block[-1:-1] = push
    elif isinstance(last, ast.If) and _leaves(last):
        _append_at_ends(last.body, push)
        if last.orelse:
            _append_at_ends(last.orelse, push)
        else:
            last.orelse = list(push)
    elif isinstance(last, ast.With) and _leaves(last):
        _append_at_ends(last.body, push)
    else:
        block += push


def _leaves(node: ast.AST) -> bool:
    if isinstance(node, (ast.Break, ast.Continue)):
        return True
    if isinstance(node, (ast.For, ast.While, ast.FunctionDef)):
        return False
    return any(map(_leaves, ast.iter_child_nodes(node)))
