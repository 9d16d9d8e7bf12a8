"""From a function to its derivative; a `Session` makes all functions that one derivative needs."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError
from actorgraph.source import support
from actorgraph.source.emitting import Late, emit
from actorgraph.source.fence import check_everywhere, reason
from actorgraph.source.forward import Forward
from actorgraph.source.liveness import annotate, without_dead_code
from actorgraph.source.names import bound_names, defaults, loads
from actorgraph.source.normalising import Normaliser
from actorgraph.source.reading import read, refuse
from actorgraph.source.reverse import ReverseWriter
from actorgraph.source.rules import Derived, InlineRule
from actorgraph.source.scope import UNKNOWN, Scope, is_numpy
from actorgraph.source.steps import bound, load, parse


@dataclass(frozen=True)
class Options:
    """The options of `autodiff`."""

    motion: str
    preserve_result: bool
    check_dims: bool
    input_derivative: str


@dataclass
class BoundCall:
    """A call of a function that is differentiated too, with its arguments by parameter."""

    name: str
    scope: Scope
    key: Any
    kwargs: dict[str, ast.expr] = field(default_factory=dict)
    args: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    active: tuple[str, ...] = ()
    vararg: str = ""


class Session:
    """The functions of one derivative, each made once for its active arguments."""

    def __init__(self, optimized: bool) -> None:
        self.optimized = optimized
        self._halves: dict[Any, tuple[Late, Late]] = {}
        self._tangents: dict[Any, Any] = {}
        self.derived = cache(Derived)

    # -- for the writers of sweeps ------------------------------------------------------------

    def numpy(self, scope: Scope) -> str:
        """Return the name of NumPy in the text."""
        same = scope.resolve(ast.Name("np", ast.Load())) is np
        return "np" if same else scope.help("np", np)

    def operands(self, scope: Scope, step: Any, rule: InlineRule) -> dict[str, ast.expr]:
        """Return the expressions for the names in the text of a call's derivative."""
        names: dict[str, ast.expr] = {f"x{i}": arg for i, arg in enumerate(step.args)}
        given = {"y": step.target, "np": self.numpy(scope)}
        given |= {stem: scope.help(stem, helper) for stem, helper in rule.helpers.items()}
        return names | {name: ast.Name(text, ast.Load()) for name, text in given.items()}

    def missing(self, scope: Scope, step: Any, kind: str) -> Exception:
        """Return the error for a function that has a rule for the other mode only."""
        name = step.function.__name__
        text = f"{name} has no {kind}; give it one with @ag.source.{kind}({name})"
        return refuse(step.origin, text, scope.function)

    def bind(self, scope: Scope, step: Any) -> BoundCall:
        """Return the call of a step with its arguments bound to parameters."""
        function, args = step.function, list(step.args)
        owner: Any = function
        first: list[ast.expr] = []
        if isinstance(function, MethodType):
            of = ast.parse(step.text).body[0].value.func
            named = isinstance(of, ast.Attribute)
            first = [of.value if named else load(scope.help("receiver", function.__self__))]
            owner = function.__func__
        if isinstance(function, Scope):
            inner = Scope(scope.function, function.tree, function.captured, function.nested)
        else:
            inner = Scope(owner, read(owner))
        call = BoundCall(inner.tree.name, inner, owner, dict(step.kwargs))
        self._bind_all(call, [*first, *args], scope, step)
        moved = [name for name, given in call.given.items() if loads(given) & scope.active]
        call.active = tuple(name for name in inner.args if name in moved)
        return call

    def _bind_all(self, call: BoundCall, args: list[ast.expr], scope: Scope, step: Any) -> None:
        spec = call.scope.tree.args
        plain = _plain(spec)
        call.vararg = spec.vararg.arg if spec.vararg else ""
        named = {*plain, *[arg.arg for arg in spec.kwonlyargs]}
        if spec.kwarg is not None and call.kwargs.keys() - named:
            raise refuse(step.origin, "** of active functions is not supported", scope.function)
        starred = [arg for arg in args if isinstance(arg, ast.Starred)]
        if starred:
            if defaults(spec):
                text = "give starred arguments one by one to a function with defaults"
                raise refuse(step.origin, text, scope.function)
            if len(args) > 1 or call.kwargs.keys() - set(call.scope.captured):
                raise refuse(step.origin, "give starred arguments alone", scope.function)
            call.given = dict.fromkeys(_plain(spec, "") if call.vararg else plain, starred[0])
        else:
            call.given = dict(zip(plain, args, strict=False))
            if call.vararg:
                call.given[call.vararg] = args[len(plain) :]
        call.given |= call.kwargs
        call.args = [ast.unparse(arg) for arg in args]
        if isinstance(step.function, Scope):
            left = {one: value for one, value in defaults(spec).items() if one not in call.given}
            call.kwargs |= left
            call.given |= left

    def pair(self, call: BoundCall) -> tuple[Late, Late]:
        """Return the forward function of a callee, which returns a record too, and its backward."""
        key = call.key, call.active
        if key not in self._halves:
            halves = self._halves[key] = Late(), Late()  # before they are made: it may be recursive
            for late, function in zip(halves, self.halves(call.scope, call.active), strict=True):
                late.cell.cell_contents = function
        return self._halves[key]

    def tangent(self, call: BoundCall) -> Any:
        """Return the forward-mode function of a callee."""
        key = call.key, call.active
        if key not in self._tangents:
            self._tangents[key] = Late()
            function = self.pushed(call.scope, call.active)
            self._tangents[key].cell.cell_contents = function
        return self._tangents[key]

    # -- calls of functions known only at run time -----------------------------------------------

    def recorded(self, function: Any, active: tuple[int, ...], *args: Any) -> tuple[Any, Any]:
        """Call a function known only at run time; return its value and a record for `pulled`."""
        if not isinstance(function, (FunctionType, MethodType)):
            if not is_numpy(function):
                raise GraphTypeError(f"{function!r} is called on active values but has no source")
            value = function(*args)
            return value, (self.derived(function, active), args)
        forward, backward = self.pair(self._at_run_time(function, active, args))
        value, record = forward.cell.cell_contents(*args)
        return value, (backward.cell.cell_contents, record)

    def pulled(self, record: Any, ct: Any) -> Any:
        """Return the cotangents of the arguments of a recorded call."""
        backward, kept = record
        if isinstance(backward, Derived):
            return backward(ct, *kept)
        parts = backward(kept, ct)
        return parts[0] if len(parts) == 1 else parts

    def pushed_through(self, function: Any, active: tuple[int, ...], tans: Any, *args: Any) -> Any:
        """Call a function known only at run time; return its value and tangent."""
        if not isinstance(function, (FunctionType, MethodType)):
            value = function(*args)
            seeds = tans[0] if len(active) == 1 else tans
            return value, self.derived(function, active, True)(seeds, *args)
        call = self._at_run_time(function, active, args)
        named = {
            call.scope.derived("d", name): tan for name, tan in zip(call.active, tans, strict=True)
        }
        return self.tangent(call).cell.cell_contents(*args, **named)

    def _at_run_time(self, function: Any, active: Any, args: Any) -> BoundCall:
        owner = getattr(function, "__func__", function)
        if owner is not function:
            raise GraphError(f"{function!r} is a method; call it on an object of the module")
        scope = Scope(function, read(function))
        names = tuple(scope.args[i] for i in active)
        given = dict.fromkeys(scope.args[: len(args)])
        return BoundCall(scope.tree.name, scope, function, given=given, active=names)

    # -- functions ----------------------------------------------------------------------------

    def steps(self, scope: Scope, active: tuple[str, ...]) -> tuple[list[Any], str]:
        """Return the steps of a function, and the name of its result."""
        refused = check_everywhere(scope.tree)
        if refused is not None:
            text = reason(refused)
            if isinstance(refused, ast.Call):
                text = "code made at run time cannot be differentiated; write it out"
            raise refuse(refused, text, scope.function)
        scope.spread(set(active))
        normaliser = Normaliser(scope)
        return normaliser.steps(), normaliser.jumps.result

    def sweeps(self, scope: Scope, active: tuple[str, ...], owned: bool = False) -> Any:
        """Return the writer, the result's name, both sweeps, the saved arguments, if it writes."""
        steps, result = self.steps(scope, active)
        sweep = ReverseWriter(scope, self, self.optimized)
        sweep.prepare(steps)
        if owned:  # gradients are the caller's own
            sweep.owned |= set(active)
        state = {result: "some"}
        forward, backward = sweep.sweep(steps, state, set(), False)
        rebound = bound(steps)
        kept = {name: scope.fresh(name) if name in rebound else name for name in active}
        first = _lines(f"{kept[name]} = {name}" for name in active if kept[name] != name)
        if sweep.uses_tape:
            first += parse(f"{sweep.tape} = []")
            scope.locals.add(sweep.tape)
        scope.locals |= set(kept.values())
        read = loads(backward)
        inits = _lines(
            f"{sweep.b(name)} = None"
            for name in sorted(scope.active - {result})
            if sweep.b(name) in read or name in active
        )
        if result in sweep.owned:
            inits += _owned(scope, sweep.b(result), sweep.b(result))
        written = any("overwritten" in name for name in scope.helpers) or "append" in str(
            [getattr(step, "kind", "") for step in steps]
        )
        return sweep, result, first + forward, inits + backward, kept, written

    def cleaned(self, scope: Scope, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return a body without dead code, if optimized."""
        if not self.optimized:
            return body
        helpers = {name for name, value in scope.helpers.items() if not isinstance(value, Late)}
        return without_dead_code(body, frozenset(helpers))

    def halves(self, scope: Scope, active: tuple[str, ...]) -> tuple[Any, Any]:
        """Return a forward function that also returns a record, and the backward of the record."""
        name = scope.tree.name
        forward_name = scope.reserve(f"{name}_forward")
        backward_name = scope.reserve(f"{name}_backward")
        sweep, result, first, backward, _, written = self.sweeps(scope, active)
        answer = scope.fresh(result) if written else result
        if written:
            first += _owned(scope, answer, result)
        backward += parse(f"return ({', '.join(map(sweep.b, active))},)")
        names, value = (forward_name, backward_name), f"{answer}, "
        definitions = self._with_record(scope, names, first, value, backward, sweep.b(result))
        functions = emit(scope, definitions, f"halves of {name}")
        _with_defaults(functions[forward_name], scope)
        return functions[forward_name], functions[backward_name]

    def _with_record(
        self, scope: Scope, names: tuple[str, str], first: list[ast.stmt], value: str,
        backward: list[ast.stmt], seed: str,
    ) -> list[ast.stmt]:  # fmt: skip
        """Return a function of value and record, and one that goes backward from the record."""
        backward = self.cleaned(scope, backward)
        cells = {name for name in scope.cells if scope.resolve(load(name)) is not UNKNOWN}
        own = scope.locals.union(scope.args, cells)  # cells may have other values later
        needs = [name for name in sorted(annotate(backward)) if name in own]
        sure = bound_names([stmt for stmt in first if isinstance(stmt, ast.Assign)]) | {*scope.args}
        # Some paths through the function may leave the others unbound.
        first = _lines(f"{name} = None" for name in needs if name not in sure | cells) + first
        first += parse(f"return {value}({''.join(f'{name}, ' for name in needs)})")
        unpack = parse(f"{', '.join(needs)}, = record") if needs else []
        other: Any = parse(f"def {names[1]}(record, {seed}): pass")[0]
        other.body = unpack + backward
        return [_function(names[0], scope, [], self.cleaned(scope, first)), other]

    def forward(self, scope: Scope, active: tuple[str, ...]) -> tuple[Forward, Any, str, str]:
        """Return the writer, the statements that it wrote, the result and its tangent."""
        steps, result = self.steps(scope, active)
        sweep = Forward(scope, self)
        later = [name for name in scope.args if name in scope.active - {*active}]
        body = sweep.zeros(later) + sweep.sweep(steps)
        return sweep, body, result, sweep.of(ast.Name(result, ast.Load()))

    def pushed(self, scope: Scope, active: tuple[str, ...]) -> Any:
        """Return a function of arguments and their tangents that returns value and tangent."""
        for argument in active:
            scope.derived("d", argument)  # the keyword that callers use
        name = scope.reserve(f"{scope.tree.name}_tangent")
        sweep, body, result, tangent = self.forward(scope, active)
        body = self.cleaned(scope, body + parse(f"return {result}, {tangent}"))
        function = _function(name, scope, [sweep.t(argument) for argument in active], body)
        tangent_function = emit(scope, [function], f"tangent of {scope.tree.name}")[name]
        _with_defaults(tangent_function, scope)
        return tangent_function

    def gradient(self, function: FunctionType, wrt: tuple[int, ...], options: Options) -> Any:
        """Return the gradient function of a user's function."""
        scope, active, name = _opened(function, wrt)
        halves = [scope.reserve(f"{scope.tree.name}_{one}") for one in ("forward", "backward")]
        sweep, result, first, backward, kept, written = self.sweeps(scope, active, owned=True)
        seed, checks, value = sweep.b(result), _checks(scope, active), result
        if options.preserve_result and (written or result in bound_names(backward)):
            value = scope.fresh(result)
            first += _owned(scope, value, result)
            scope.locals.add(value)
        what = f"seed derivative {seed} of the result of {scope.tree.name}"
        start = _fitted(scope, seed, result, what, options)
        finish = scope.support(support.finished)
        parts = [f"{finish}({sweep.b(one)}, {kept[one]})" for one in active]
        parts += [value] if options.preserve_result else []
        end = parse(f"return {', '.join(parts)}")
        if options.motion == "split":
            body = start + backward + end
            functions = self._with_record(
                scope, (halves[0], halves[1]), checks + first, "", body, f"{seed}=None"
            )
            call = f"{halves[0]}({', '.join(_passed(scope))})"
            functions.append(
                _function(name, scope, [seed], parse(f"return {halves[1]}({call}, {seed})"), "None")
            )
        else:
            body = self.cleaned(scope, checks + first + start + backward + end)
            functions = [_function(name, scope, [seed], body, "None")]
        made = emit(scope, functions, f"gradient of {scope.tree.name}")
        for one in made.values():
            _with_defaults(one, scope, int(one.__name__ == name))
        if options.motion == "split":
            made[halves[1]].__defaults__ = (None,)
            made[name].forward, made[name].backward = (made[one] for one in halves)  # type: ignore[attr-defined]
        return made[name]

    def push(self, function: FunctionType, wrt: tuple[int, ...], options: Options) -> Any:
        """Return the forward-mode derivative of a user's function."""
        scope, active, name = _opened(function, wrt)
        sweep, body, result, tangent = self.forward(scope, active)
        tans, first = [sweep.t(argument) for argument in active], _checks(scope, active)
        for tan, argument in zip(tans, active, strict=True):
            first += _fitted(scope, tan, argument, f"tangent {tan}", options)
        finish = scope.support(support.finished)
        parts = [f"{finish}({tangent}, {result})"] + ([result] if options.preserve_result else [])
        body = self.cleaned(scope, first + body + parse(f"return {', '.join(parts)}"))
        made = _function(name, scope, tans, body, "None")
        pushed = emit(scope, [made], f"tangent of {scope.tree.name}")[name]
        _with_defaults(pushed, scope, len(tans))
        return pushed


def _opened(function: FunctionType, wrt: tuple[int, ...]) -> tuple[Scope, tuple[str, ...], str]:
    """Return the scope of a function, the names of its wrt, and a name for its derivative."""
    scope = Scope(function, read(function))
    active = _chosen(scope, wrt)
    return scope, active, scope.reserve(f"d{scope.tree.name}d{''.join(active)}")


def _checks(scope: Scope, active: tuple[str, ...]) -> list[ast.stmt]:
    check = scope.support(support.check_inputs)
    return parse(f"{check}({', '.join(f'{one}={one}' for one in active)})")


def _fitted(scope: Scope, seed: str, value: str, what: str, options: Options) -> list[ast.stmt]:
    fit, default = scope.support(support.fitting), options.input_derivative
    return parse(f"{seed} = {fit}({seed}, {value}, {what!r}, {default!r}, {options.check_dims})")


def _lines(texts: Iterable[str]) -> list[ast.stmt]:
    return [line for text in texts for line in parse(text)]


def _owned(scope: Scope, name: str, value: str) -> list[ast.stmt]:
    """Return statements that bind a name to a value that nobody else refers to."""
    return parse(f"{name} = {scope.support(support.own)}(None, {value})")


def _plain(spec: ast.arguments, stars: str | None = None) -> list[str]:
    """Return the names of positional parameters, and with `stars` that of ``*args``."""
    names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    several = stars is not None and spec.vararg is not None
    return [*names, f"{stars}{spec.vararg.arg}"] if several and spec.vararg else names


def _chosen(scope: Scope, wrt: tuple[int, ...]) -> tuple[str, ...]:
    spec = scope.tree.args
    names = _plain(spec, "")
    for place in wrt:
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(names):
            raise GraphError(
                f"wrt has to name positional arguments of {scope.tree.name} from 0 to "
                f"{len(names) - 1} ({', '.join(names)}), got {place!r}"
            )
    return tuple(names[place] for place in wrt)


def _passed(scope: Scope) -> list[str]:
    spec = scope.tree.args
    names = _plain(spec, "*")
    names += [f"{arg.arg}={arg.arg}" for arg in spec.kwonlyargs]
    return names + ([f"**{spec.kwarg.arg}"] if spec.kwarg else [])


def _function(
    name: str, scope: Scope, more: list[str], body: list[ast.stmt], default: str = ""
) -> ast.stmt:
    """Return a function with the parameters of the user's, and further ones."""
    args = deepcopy(scope.tree.args)
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if arg is not None:
            arg.annotation = None
    behind = args.vararg or args.kwonlyargs or args.kwarg
    for parameter in more:
        if behind or (args.defaults and not default):
            args.kwonlyargs.append(ast.arg(parameter))
            args.kw_defaults.append(ast.Constant(None) if default else None)
        else:
            args.args.append(ast.arg(parameter))
            args.defaults += [ast.Constant(None)] if default else []
    for parameter in scope.captured:
        args.kwonlyargs.append(ast.arg(parameter))
        args.kw_defaults.append(None)
    definition: Any = parse(f"def {name}(): pass")[0]
    definition.args, definition.body = args, body or [ast.Pass()]
    ast.fix_missing_locations(definition)
    return definition  # type: ignore[no-any-return]


def _with_defaults(generated: FunctionType, scope: Scope, optional: int = 0) -> None:
    """Give a generated function the defaults of the user's; the `optional` last default to None."""
    function, code = scope.function, generated.__code__
    if scope.tree.name not in (function.__name__, "lambda_"):
        return  # a nested function: each call passes its defaults
    generated.__defaults__ = function.__defaults__
    generated.__kwdefaults__ = dict(function.__kwdefaults__ or {})
    if code.co_kwonlyargcount > function.__code__.co_kwonlyargcount:
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        generated.__kwdefaults__ |= dict.fromkeys(keywords[len(keywords) - optional :])
    elif optional:
        generated.__defaults__ = (*(function.__defaults__ or ()), *[None] * optional)
