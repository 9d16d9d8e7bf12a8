"""Forward mode: each step with its tangent beside it; control flow stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from actorgraph.source import support
from actorgraph.source.names import bound_names, loads
from actorgraph.source.reverse import _block, _call, _substituted
from actorgraph.source.rules import inline
from actorgraph.source.scope import Scope
from actorgraph.source.steps import (
    Compound,
    Insertion,
    Jump,
    Statement,
    index_value,
    load,
    parse,
)


class Forward:
    """Writes a function that computes values and tangents."""

    def __init__(self, scope: Scope, session: Any) -> None:
        self.scope, self.session = scope, session

    def t(self, name: str) -> str:
        """Return the name of a tangent."""
        return self.scope.derived("d", name)

    def zero(self, text: str) -> str:
        """Return the zero tangent of a value."""
        return f"{self.scope.support(support.zero_of)}({text})"

    def of(self, arg: ast.expr) -> str:
        """Return the tangent of an operand."""
        if isinstance(arg, ast.Name) and arg.id in self.scope.active:
            return self.t(arg.id)
        return self.zero(ast.unparse(arg))

    def zeros(self, names: Iterable[str]) -> list[ast.stmt]:
        """Return statements that give names zero tangents."""
        return [line for name in names for line in parse(f"{self.t(name)} = {self.zero(name)}")]

    def sweep(self, steps: list[Any]) -> list[ast.stmt]:
        """Return the statements of a block and of its tangents."""
        out: list[ast.stmt] = []
        for step in steps:
            if isinstance(step, Statement):
                out += self._step(step)
            elif isinstance(step, Compound):
                out += _block(step.header, self.sweep(step.body), self.sweep(step.orelse))
            elif isinstance(step, Jump):
                out += parse(f"while True:\n    {step.text}")[0].body  # type: ignore[attr-defined]
            else:
                assert isinstance(step, Insertion)  # forward mode has no gradient
        return out

    def _step(self, step: Statement) -> list[ast.stmt]:
        primal = parse(step.text)
        if step.kind == "passive":
            return primal + self.zeros(sorted(bound_names(primal) & self.scope.active))
        return getattr(self, f"_{step.kind}")(step, primal)  # type: ignore[no-any-return]

    def _copy(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        return parse(f"{self.t(step.target)} = {self.of(step.args[0])}") + primal

    def _call(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        active = [i for i, arg in enumerate(step.args) if loads(arg) & self.scope.active]
        text = inline(step.function, step.args, step.kwargs, active, forward=True)
        tan = self.t(step.target)
        if text is None:
            derived = self.session.derived(step.function, tuple(active), True)
            name = self.scope.help(derived.__name__, derived)
            tans = [self.of(step.args[i]) for i in active]
            seeds = tans[0] if len(tans) == 1 else f"({', '.join(tans)})"
            call = _call(name, [seeds, *map(ast.unparse, step.args)], step.kwargs)
            zero = self.zero(step.target)
            return primal + parse(f"{tan} = {call}\nif {tan} is None:\n    {tan} = {zero}")
        names = self.session.operands(self.scope, step, text)
        names |= {f"t{i}": load(self.of(step.args[i])) for i in active}
        for stem, value in text.before:
            fresh = self.scope.fresh(stem.rpartition("_t")[0])
            primal += parse(f"{fresh} = {_substituted(value, names)}")
            names[stem] = load(fresh)
        (part,) = text.parts
        moved = self.zero(step.target) if part is None else _substituted(part, names)
        return primal + parse(f"{tan} = {moved}")

    def _rule(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        rule = support.TANGENTS.get(step.function)
        if rule is None:
            raise self.session.missing(self.scope, step, "tangent")
        name = self.scope.help(f"{step.function.__name__}_tangent", rule)
        tans = ", ".join(map(self.of, step.args))
        args = [f"({tans},)", step.target, *map(ast.unparse, step.args)]
        return primal + parse(f"{self.t(step.target)} = {_call(name, args, step.kwargs)}")

    def _item(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        item, base = self.scope.support(support.item_of), self.of(step.args[0])
        return parse(f"{self.t(step.target)} = {item}({base}, {index_value(step.index)})") + primal

    def _build(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        tans = ", ".join(map(self.of, step.args))
        keys = step.kwargs.get("keys")
        if isinstance(keys, ast.Tuple):
            pairs = zip(map(ast.unparse, keys.elts), map(self.of, step.args), strict=True)
            value = f"{{{', '.join(f'{key}: {tan}' for key, tan in pairs)}}}"
        else:
            value = f"[{tans}]"
        return parse(f"{self.t(step.target)} = {value}") + primal

    def _store(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        return primal + parse(f"{self.t(step.target)}[{step.index}] = {self.of(step.args[1])}")

    def _append(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        return primal + parse(f"{self.t(step.target)}.append({self.of(step.args[1])})")

    def _pop(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        return primal + parse(f"{self.t(step.target)} = {self.of(step.args[0])}.pop()")

    def _user(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        call = self.session.bind(self.scope, step)
        name = self.scope.help(f"{call.name}_tangent", self.session.tangent(call))
        tans = []
        for parameter in call.active:
            given = call.given[parameter]
            if isinstance(given, list):
                tans.append(f"[{', '.join(map(self.of, given))}]")
            elif isinstance(given, ast.Starred):
                place = list(call.given).index(parameter)
                part = f"{place}:" if parameter == call.vararg else str(place)
                tans.append(f"{self.of(given.value)}[{part}]")
            else:
                tans.append(self.of(given))
        keyed = [
            f"{call.scope.derived('d', parameter)}={tan}"
            for parameter, tan in zip(call.active, tans, strict=True)
        ]
        words = [f"{key}={ast.unparse(value)}" for key, value in call.kwargs.items()]
        text = _call(name, [*call.args, *words, *keyed], {})
        return parse(f"{step.target}, {self.t(step.target)} = {text}")

    def _dynamic(self, step: Statement, primal: list[ast.stmt]) -> list[ast.stmt]:
        active = tuple(i for i, arg in enumerate(step.args) if loads(arg) & self.scope.active)
        pushed = self.scope.help("pushed_through", self.session.pushed_through)
        tans = "".join(f"{self.of(step.args[i])}, " for i in active)
        args = [step.function, repr(active), f"({tans})", *map(ast.unparse, step.args)]
        return parse(f"{step.target}, {self.t(step.target)} = {_call(pushed, args, {})}")
