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
from actorgraph.source.jumps import own_jumps
from actorgraph.source.names import bound_names, loads
from actorgraph.source.rules import inline
from actorgraph.source.scope import Scope
from actorgraph.source.steps import (
    Branch,
    Compound,
    Insertion,
    Jump,
    LoopStatement,
    Statement,
    Substituted,
    bound,
    index_value,
    load,
    parse,
)

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
        self.indexed: set[str] = set()  # some cotangents of these are lists
        self.tapes: set[str] = set()
        self.tape = "tape" if "tape" not in scope.used else scope.fresh("tape")
        self.uses_tape = False
        self._slots: dict[tuple[int, str], str] = {}

    def b(self, name: str) -> str:
        """Return the name of a cotangent."""
        return self.scope.derived("b", name)

    def prepare(self, steps: list[Any]) -> None:
        """Collect the cotangents that are written in place, which must not be shared."""
        for step in steps:
            if isinstance(step, Statement):
                if step.kind in ("item", "store", "append", "pop"):
                    self.indexed.add(ast.unparse(step.args[0]))
                if step.kind in ("append", "pop") and self.scope.is_generated:
                    name = ast.unparse(step.args[0])
                    self.tapes |= {name} if name.startswith("tape") else set()
            elif isinstance(step, Compound):
                self.prepare(step.body + step.orelse)

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
            step = steps[i]
            after = later | bound(steps[i + 1 :])
            if isinstance(step, (Statement, Insertion)):
                self._step(step, state, after, loop, group)
                continue
            written, reversed_step, needs = self._compound(step, state, after, loop)
            for name in needs:
                if loop and name in after:
                    group.needs[name] = None
            self._close(group, forward, backward, written)
            forward[:0] = written
            backward += reversed_step
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

    def _step(self, step: Any, state: State, after: set[str], loop: bool, group: _Group) -> None:
        if isinstance(step, Insertion):
            primal: list[ast.stmt] = []
            lines = self._inserted(step, state)
            binds: set[str] = set()
        else:
            primal, lines = self._adjoint(step, state)
            binds = bound_names(primal)
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
            kept = self._slot(step, name)
            self.scope.locals.add(kept)
            renamed[name] = ast.Name(kept, ast.Load())
            primal += parse(f"{kept} = {name}")
            if loop:
                group.needs[kept] = None
        if renamed:
            lines = [Substituted(renamed).visit(line) for line in lines]
        group.bound |= binds
        group.forward[:0] = primal
        group.backward += lines

    def _compound(
        self, step: Any, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        if isinstance(step, Jump):
            return parse(f"while True:\n    {step.text}")[0].body, [], []  # type: ignore[attr-defined]
        if isinstance(step, Branch):
            return self._branch(step, state, after, loop)
        if isinstance(step, LoopStatement):
            return self._loop(step, state, after, loop)
        forward, backward = self.sweep(step.body, state, after, loop)
        written = _block(step.header, forward)
        if step.repeats and backward:
            backward = _block(step.header, backward)
        return written, backward, []

    def _branch(
        self, step: Branch, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        other = dict(state)
        body, body_back = self.sweep(step.body, state, after, loop)
        orelse, orelse_back = self.sweep(step.orelse, other, after, loop)
        _join(state, other)
        test, written = step.test, []
        reversed_too = bool(body_back or orelse_back)
        if reversed_too and not step.name and (loop or test in (after | bound([step]))):
            step.name = self.scope.fresh("test")
        if reversed_too and step.name:
            written = parse(f"{step.name} = {test}")
            test = step.name
            self.scope.locals.add(test)
        written += _block(f"if {test}", body, orelse)
        if not reversed_too:
            return written, [], []
        if loop:
            after.add(test)
        return written, _block(f"if {test}", body_back, orelse_back), [test]

    def _loop(
        self, step: LoopStatement, state: State, after: set[str], loop: bool
    ) -> tuple[list[ast.stmt], list[ast.stmt], list[str]]:
        again = after | bound([step])
        if step.over and step.target:
            again = after | (again - {step.target}) | bound(step.body)
        while True:
            before = dict(state)
            forward, backward = self.sweep(step.body, before, set(again), True)
            joined = dict(state)
            _join(joined, before)
            if joined == state:
                break
            state.clear()
            state.update(joined)
        if not backward:
            return _block(step.header, forward), [], []
        if step.over:
            needs = sorted(loads(parse(step.over)) & self.scope.locals)
            over, kept = step.over, []
            if any(name in after for name in needs):
                name = self._slot(step, "range")
                self.scope.locals.add(name)
                kept, over, needs = parse(f"{name} = {over}"), name, [name]
                header = f"for {step.target} in {name}"
                if loop:
                    after.add(name)
            else:
                header = step.header
            written = kept + _block(header, forward)
            return written, _block(f"for {step.target} in reversed({over})", backward), needs
        count = step.count
        self.scope.locals.add(count)
        if loop:
            after.add(count)
        written = parse(f"{count} = 0") + _block(step.header, parse(f"{count} += 1") + forward)
        return written, _block(f"for _ in range({count})", backward), [count]

    # -- steps --------------------------------------------------------------------------------

    def _inserted(self, step: Insertion, state: State) -> list[ast.stmt]:
        ct = self.b(step.x)
        if self.optimized and state.get(step.x, ZERO) == ZERO:
            return []
        lines = parse(f"{step.name} = {ct}") + step.body + parse(f"{ct} = {step.name}")
        return comment(step.origin, "inserted at") + _block(f"if {ct} is not None", lines)

    def _adjoint(self, step: Statement, state: State) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return the forward statements of a step and those that reverse it."""
        primal = parse(step.text)
        active = self.scope.active
        if step.kind == "passive":
            lines: list[ast.stmt] = []
            for name in sorted(bound_names(primal) & active):
                if state.get(name, ZERO) != ZERO or not self.optimized:
                    lines += parse(f"{self.b(name)} = None")
                state[name] = ZERO
            return primal, lines
        if step.kind in ("store", "append"):
            return primal, self._write(step, state)
        known = state.get(step.target, ZERO) if self.optimized else MAYBE
        if step.kind in ("user", "dynamic"):
            primal = self._recorded(step, known != ZERO)
        if step.kind == "pop":  # reversed even for a zero: pops have to match appends
            state[step.target] = ZERO
            lines = self._pop_adjoint(step, known, state) + parse(f"{self.b(step.target)} = None")
            return primal, comment(step.origin, "gradient of") + lines
        if known == ZERO:
            return primal, []
        state[step.target] = ZERO
        before = dict(state)
        lines = getattr(self, f"_{step.kind}_adjoint")(step, state)
        ct = self.b(step.target)
        if known == MAYBE and lines:
            _join(state, before)
            lines = _block(f"if {ct} is not None", lines)
        lines = lines + parse(f"{ct} = None")
        return primal, comment(step.origin, "gradient of") + lines

    def give(
        self, target: ast.expr, part: str, state: State, certain: bool = True, fresh: bool = False,
        is_number: bool = True,
    ) -> list[ast.stmt]:  # fmt: skip
        """Return statements that add a part to the cotangent of an operand."""
        if not isinstance(target, ast.Name) or target.id not in self.scope.active:
            return []
        name, ct = target.id, self.b(target.id)
        known = state.get(name, ZERO) if self.optimized else MAYBE
        held = not fresh and (name in self.owned or name in self.indexed)
        if known == SOME and certain and is_number and name not in self.indexed:
            text = f"{ct} = {ct} + {part}"
        elif known == ZERO and not held:
            text = f"{ct} = {part}"
        else:
            total = "None" if known == ZERO else ct
            add = self.scope.support(support.own if held else support.add)
            text = f"{ct} = {add}({total}, {part})"
        state[name] = SOME if certain or known == SOME else MAYBE
        return parse(text)

    def _copy_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        return self.give(step.args[0], self.b(step.target), state, is_number=False)

    def _call_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        active = [i for i, arg in enumerate(step.args) if self._is_active(arg)]
        rule = inline(step.function, step.args, step.kwargs, active)
        ct = self.b(step.target)
        if rule is None:
            derived = self.session.derived(step.function, tuple(active))
            name = self.scope.help(derived.__name__, derived)
            call = _call(name, [ct, *map(ast.unparse, step.args)], step.kwargs)
            return self._spread(step, call, [step.args[i] for i in active], state)
        names = {**self.session.operands(self.scope, step, rule), "ct": load(ct)}
        lines: list[ast.stmt] = []
        for stem, value in rule.before:
            fresh = self._slot(step, stem, stem.rpartition("_t")[0])
            lines += parse(f"{fresh} = {_substituted(value, names)}")
            names[stem] = load(fresh)
        for i, part in zip(active, rule.parts, strict=True):
            if part is not None:
                fresh_part = isinstance(part, (ast.BinOp, ast.UnaryOp))
                text = _substituted(part, names)
                lines += self.give(step.args[i], text, state, fresh=fresh_part)
        return lines

    def _slot(self, step: Any, purpose: str, stem: str = "") -> str:
        """Return a fresh name for a purpose of a step, the same in each walk of a loop."""
        key = id(step), purpose
        if key not in self._slots:
            self._slots[key] = self.scope.fresh(stem or purpose)
        return self._slots[key]

    def _spread(
        self, step: Statement, call: str, targets: list[ast.expr], state: State
    ) -> list[ast.stmt]:
        """Return statements that add the results of a call to the cotangents of its operands."""
        if len(targets) == 1:
            return self.give(targets[0], call, state, certain=False)
        names = [
            self._slot(step, f"part{i}_t", f"part{i}") if self._is_active(target) else "_"
            for i, target in enumerate(targets)
        ]
        lines = parse(f"{', '.join(names)} = {call}")
        for target, name in zip(targets, names, strict=True):
            lines += self.give(target, name, state, certain=False)
        return lines

    def _rule_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        rule = support.ADJOINTS.get(step.function)
        if rule is None:
            raise self.session.missing(self.scope, step, "adjoint")
        name = self.scope.help(f"{step.function.__name__}_adjoint", rule)
        args = [self.b(step.target), step.target, *map(ast.unparse, step.args)]
        targets = step.args[:1] if step.function in support.LINEAR else step.args
        return self._spread(step, _call(name, args, step.kwargs), targets, state)

    def _item_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        base = ast.unparse(step.args[0])
        known = state.get(base, ZERO) if self.optimized else MAYBE
        total = "None" if known == ZERO else self.b(base)
        state[base] = SOME
        return parse(
            f"{self.b(base)} = {self.scope.support(support.add_at)}({total}, {base}, "
            f"{index_value(step.index)}, {self.b(step.target)})"
        )

    def _build_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        keys = step.kwargs.get("keys")
        places = map(str, range(len(step.args)))
        if isinstance(keys, ast.Tuple):
            places = map(ast.unparse, keys.elts)
        lines: list[ast.stmt] = []
        for place, arg in zip(places, step.args, strict=True):
            part = f"{self.scope.support(support.item_of)}({self.b(step.target)}, {place})"
            lines += self.give(arg, part, state, certain=False)
        return lines

    def _pop_adjoint(self, step: Statement, known: str, state: State) -> list[ast.stmt]:
        base = ast.unparse(step.args[0])
        total = "None" if self.optimized and state.get(base, ZERO) == ZERO else self.b(base)
        part = "None" if known == ZERO else self.b(step.target)
        state[base] = SOME
        tape = base in self.tapes
        undo = [] if tape else parse(f"{base}.append({step.target})")
        value = None if tape else base
        pushed = self.scope.support(support.pushed)
        return undo + parse(f"{self.b(base)} = {pushed}({total}, {part}, {value})")

    def _write(self, step: Statement, state: State) -> list[ast.stmt]:
        """Return statements that undo a write, and add its cotangent to that of the value."""
        name, value = step.target, step.args[1]
        known = state.get(name, ZERO) if self.optimized else MAYBE
        ct = self.b(name)
        if step.kind == "store":
            lines = parse(f"{name}[{step.index}] = {step.slot}")
            place = index_value(step.index)
            part = f"{self.scope.support(support.written_of)}({ct}, {place}, {ast.unparse(value)})"
            cut = f"{ct} = {self.scope.support(support.cleared)}({ct}, {place})"
        else:
            lines = [] if name in self.tapes else parse(f"{name}.pop()")
            part = f"{self.scope.support(support.last_of)}({ct})"
            cut = f"{ct} = {self.scope.support(support.shortened)}({ct})"
        if known != ZERO:
            lines = comment(step.origin, "gradient of") + lines
            lines += self.give(value, part, state, certain=False)
            lines += parse(cut)
            state[name] = MAYBE if known == MAYBE or step.kind == "append" else SOME
            if not self.optimized or name in self.tapes:
                state[name] = MAYBE
        return lines

    # -- calls of functions -------------------------------------------------------------------

    def _is_active(self, arg: ast.expr) -> bool:
        return bool(loads(arg) & self.scope.active)

    def _recorded(self, step: Statement, reversed_too: bool) -> list[ast.stmt]:
        """Return the call that also returns a record for its reversal."""
        if not reversed_too:
            return parse(step.checked)
        tape = step.slot
        if step.kind == "dynamic":
            active = tuple(i for i, arg in enumerate(step.args) if self._is_active(arg))
            recorder = self.scope.help("recorded", self.session.recorded)
            args = [step.function, repr(active), *map(ast.unparse, step.args)]
            return parse(f"{step.target}, {tape} = {_call(recorder, args, {})}")
        call = self.session.bind(self.scope, step)
        forward, _ = self.session.pair(call)
        name = self.scope.help(f"{call.name}_forward", forward)
        return parse(f"{step.target}, {tape} = {_call(name, call.args, call.kwargs)}")

    def _dynamic_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        pulled = self.scope.help("pulled", self.session.pulled)
        targets = [arg for arg in step.args if self._is_active(arg)]
        return self._spread(step, f"{pulled}({step.slot}, {self.b(step.target)})", targets, state)

    def _user_adjoint(self, step: Statement, state: State) -> list[ast.stmt]:
        call = self.session.bind(self.scope, step)
        _, backward = self.session.pair(call)
        name = self.scope.help(f"{call.name}_backward", backward)
        names = [self._slot(step, f"part{i}_t", f"part{i}") for i in range(len(call.active))]
        lines = parse(f"{', '.join(names)}, = {name}({step.slot}, {self.b(step.target)})")
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
            (starred,) = [arg for arg in step.args if isinstance(arg, ast.Starred)]
            text = f"[{', '.join(spread)}]"
            lines += self.give(starred.value, text, state, certain=False)
        return lines


def _call(name: str, args: list[str], kwargs: dict[str, Any]) -> str:
    words = [f"{key}={ast.unparse(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join([*args, *words])})"


def _substituted(value: ast.expr, names: dict[str, ast.expr]) -> str:
    return ast.unparse(Substituted(names).visit(deepcopy(value)))


def _block(
    header: str, body: list[ast.stmt], orelse: list[ast.stmt] | None = None
) -> list[ast.stmt]:
    block: Any = parse(f"{header}:\n    pass")[0]
    block.body = list(body) or block.body
    if orelse:
        block.orelse = list(orelse)
    return [block]


def _join(state: State, other: State) -> None:
    for name in {*state, *other}:
        if state.get(name, ZERO) != other.get(name, ZERO):
            state[name] = MAYBE


def _append_at_ends(block: list[ast.stmt], push: list[ast.stmt]) -> None:
    """Append statements at every end of a block, before a final jump."""
    last = block[-1]
    if isinstance(last, (ast.Break, ast.Continue)):
        block[-1:-1] = push
    elif isinstance(last, ast.If) and own_jumps([last], ast.Break, ast.Continue):
        _append_at_ends(last.body, push)
        if last.orelse:
            _append_at_ends(last.orelse, push)
        else:
            last.orelse = list(push)
    elif isinstance(last, ast.With) and own_jumps([last], ast.Break, ast.Continue):
        _append_at_ends(last.body, push)
    else:
        block += push
