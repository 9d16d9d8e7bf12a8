"""Forward mode: each step with its tangent beside it; control flow stays as it is."""

from __future__ import annotations

import ast
from typing import Any

from actorgraph.source import support
from actorgraph.source.reverse import _block, _call, _name, _substituted
from actorgraph.source.rules import inline
from actorgraph.source.scope import Scope, bound_names
from actorgraph.source.steps import (
    Branch,
    Context,
    Insertion,
    Jump,
    LoopStatement,
    Statement,
    index_value,
    loads,
    parse,
)
from actorgraph.source.usual import TANGENTS


class Forward:
    """Writes a function that computes values and tangents."""

    def __init__(self, scope: Scope, session: Any) -> None:
        self.scope, self.session = scope, session

    def t(self, name: str) -> str:
        """Return the name of a tangent."""
        return self.scope.derived("d", name)

    def of(self, arg: ast.expr) -> str:
        """Return the tangent of an operand."""
        active = isinstance(arg, ast.Name) and arg.id in self.scope.active
        if active:
            return self.t(arg.id)  # type: ignore[attr-defined]
        return f"{self.scope.support(support.zero_of)}({ast.unparse(arg)})"

    def start(self, given: tuple[str, ...]) -> list[ast.stmt]:
        """Return zero tangents for arguments that become active later."""
        names = [name for name in self.scope.args if name in self.scope.active - {*given}]
        zero = self.scope.support(support.zero_of)
        return [line for name in names for line in parse(f"{self.t(name)} = {zero}({name})")]

    def sweep(self, steps: list[Any]) -> list[ast.stmt]:
        """Return the statements of a block and of its tangents."""
        out: list[ast.stmt] = []
        for one in steps:
            if isinstance(one, Statement):
                out += self._step(one)
            elif isinstance(one, Branch):
                test = f"if {one.test}"
                out += _block(test, self.sweep(one.body), self.sweep(one.orelse))
            elif isinstance(one, Jump):
                out += parse(f"while True:\n    {one.text}")[0].body  # type: ignore[attr-defined]
            elif isinstance(one, (LoopStatement, Context)):
                out += _block(one.header, self.sweep(one.body))
            else:
                assert isinstance(one, Insertion)  # forward mode has no gradient
        return out

    def _step(self, one: Statement) -> list[ast.stmt]:
        made = parse(one.text)
        if one.kind == "passive":
            names = sorted(bound_names(made) & self.scope.active)
            for name in names:
                made += parse(f"{self.t(name)} = {self.scope.support(support.zero_of)}({name})")
            return made
        return getattr(self, f"_{one.kind}")(one, made)  # type: ignore[no-any-return]

    def _copy(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        return parse(f"{self.t(one.target)} = {self.of(one.args[0])}") + made

    def _call(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        active = [i for i, arg in enumerate(one.args) if loads(arg) & self.scope.active]
        text = inline(one.function, one.args, one.kwargs, active, forward=True)
        tan = self.t(one.target)
        if text is None:
            derived = self.session.derived(one.function, tuple(active), True)
            name = self.scope.help(derived.__name__, derived)
            tans = [self.of(one.args[i]) for i in active]
            seeds = tans[0] if len(tans) == 1 else f"({', '.join(tans)})"
            call = _call(name, [seeds, one.target, *map(ast.unparse, one.args)], one.kwargs)
            zero = f"{self.scope.support(support.zero_of)}({one.target})"
            return made + parse(f"{tan} = {call}\nif {tan} is None:\n    {tan} = {zero}")
        names = self.session.operands(self.scope, one, text)
        names |= {f"t{i}": _name(self.of(one.args[i])) for i in active}
        for stem, value in text.before:
            fresh = self.scope.fresh(stem.rpartition("_t")[0])
            made += parse(f"{fresh} = {_substituted(value, names)}")
            names[stem] = _name(fresh)
        (part,) = text.parts
        zero = f"{self.scope.support(support.zero_of)}({one.target})"
        moved = zero if part is None else _substituted(part, names)
        return made + parse(f"{tan} = {moved}")

    def _rule(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        rule = TANGENTS.get(one.function)
        if rule is None:
            raise self.session.missing(self.scope, one, "tangent")
        name = self.scope.help(f"{one.function.__name__}_tangent", rule)
        tans = ", ".join(map(self.of, one.args))
        args = [f"({tans},)", one.target, *map(ast.unparse, one.args)]
        return made + parse(f"{self.t(one.target)} = {_call(name, args, one.kwargs)}")

    def _item(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        item, base = self.scope.support(support.item_of), self.of(one.args[0])
        return parse(f"{self.t(one.target)} = {item}({base}, {index_value(one.index)})") + made

    def _build(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        tans = ", ".join(map(self.of, one.args))
        keys = one.kwargs.get("keys")
        if isinstance(keys, ast.Tuple):
            pairs = zip(map(ast.unparse, keys.elts), map(self.of, one.args), strict=True)
            value = f"{{{', '.join(f'{key}: {tan}' for key, tan in pairs)}}}"
        else:
            value = f"[{tans}]"
        return parse(f"{self.t(one.target)} = {value}") + made

    def _store(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        return made + parse(f"{self.t(one.target)}[{one.index}] = {self.of(one.args[1])}")

    def _append(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        return made + parse(f"{self.t(one.target)}.append({self.of(one.args[1])})")

    def _pop(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        return made + parse(f"{self.t(one.target)} = {self.of(one.args[0])}.pop()")

    def _user(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        call = self.session.bind(self.scope, one)
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
        return parse(f"{one.target}, {self.t(one.target)} = {text}")

    def _dynamic(self, one: Statement, made: list[ast.stmt]) -> list[ast.stmt]:
        active = tuple(i for i, arg in enumerate(one.args) if loads(arg) & self.scope.active)
        pushed = self.scope.help("pushed_through", self.session.pushed_through)
        tans = "".join(f"{self.of(one.args[i])}, " for i in active)
        args = [one.function, repr(active), f"({tans})", *map(ast.unparse, one.args)]
        return parse(f"{one.target}, {self.t(one.target)} = {_call(pushed, args, {})}")
