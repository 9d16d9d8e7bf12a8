"""Turns expressions of active values into steps: each intermediate value gets a name."""

from __future__ import annotations

import ast
import math
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any, cast

import numpy as np

from actorgraph.source import support
from actorgraph.source.aliases import Aliases, changes_global
from actorgraph.source.fence import reason
from actorgraph.source.names import bound_names, loads
from actorgraph.source.reading import refuse
from actorgraph.source.rules import OPERATORS, Derived, Kernel, is_literal, on_nodes, trace
from actorgraph.source.scope import (
    UNKNOWN,
    WRITING,
    Scope,
    changes_nothing,
    is_hashable,
    is_numpy,
    writes_out,
)
from actorgraph.source.steps import Statement, Substituted, load

_CHANGEABLE = (np.ndarray, list, dict, set)


class Expressions(ABC):
    """Makes the steps of expressions; `Normaliser` those of statements."""

    def __init__(self, scope: Scope, result: str) -> None:
        self.scope = scope
        self.origin: Any = scope.tree
        self.out: list[Any] = []
        self.aliases = Aliases(scope, result)
        self.names = [one.id for one in ast.walk(scope.tree) if isinstance(one, ast.Name)]

    @abstractmethod
    def rewritten(self, text: str, node: ast.AST) -> None:
        """Add the steps of statements that replace an expression."""

    def refused(self, node: Any, text: str = "") -> Exception:
        """Return the error for a construct."""
        if not hasattr(node, "lineno"):
            node = self.origin
        return refuse(node, text or reason(node), self.scope.function)

    def refuse_shared(self, base: ast.expr) -> None:
        """Raise if another name may see a write into the value of an expression."""
        name = ast.unparse(base)
        if self.scope.is_generated:
            return
        if not isinstance(base, ast.Name):
            raise self.refused(
                self.origin, f"a change of {name}, a part of a container, is not differentiated; "
                "change a list of its own name, then put it into the container",
            )  # fmt: skip
        if not self.aliases.is_fresh(name):
            raise self.refused(
                self.origin, f"a write into {name}, which is an argument or may show memory of "
                f"another name, is not differentiated; copy it first: {name} = {name}.copy()",
            )  # fmt: skip
        alias = self.aliases.alias_of(name)
        if alias:
            raise self.refused(
                self.origin, f"a write into {name} may change {alias}, which shares its memory; "
                f"copy it: {alias} = {name}.copy()",
            )  # fmt: skip

    def guarded(self, call: Any, text: Any) -> ast.expr:
        """Return the `text` of a call whose result has no gradient.

        It raises if the call changes what other statements read.
        """
        scope, called = self.scope, self.scope.resolve(call.func)
        captured = [load(name) for name in getattr(called, "captured", ())]
        given = [*call.args, *[word.value for word in call.keywords], *captured]
        given += [call.func.value] if isinstance(call.func, ast.Attribute) else []
        if changes_nothing(called, call) or not any(map(scope.is_active, given)):
            return text  # type: ignore[no-any-return]
        if called is setattr:
            raise self.refused(call, "an attribute has no gradient; use a dict")
        code = getattr(called, "__code__", None)
        found = loads([call, *captured]) - bound_names([call])
        found |= {*code.co_names, *code.co_freevars} - scope.locals if code else set()
        inside = [one.id for one in ast.walk(call) if isinstance(one, ast.Name)]
        names = [
            name
            for name in sorted(found - scope.nested.keys())
            if (name in scope.locals or isinstance(scope.resolve(load(name)), _CHANGEABLE))
            and (  # a function that calls this one may read a global
                self.names.count(name) > inside.count(name)
                or (is_numpy(called) and name not in scope.locals)
            )
        ]
        if names:
            line = ast.unparse(call).split("\n")[0]
            if is_numpy(called):
                out = [word.value for word in call.keywords if word.arg == "out"]
                place = 0 if called in WRITING else -1
                written = sorted(loads([*out, call.args[place]][:1]) & {*names})
            else:
                written = [name for name in names if changes_global(called, name)]
            if written:  # even if what it writes is there already
                raise self.refused(call, support.CHANGES.format(line, written[0]))
            if is_numpy(called):
                return text  # type: ignore[no-any-return]
            given = [ast.parse(repr(one), mode="eval").body for one in (line, names)]
            values = [text.func, *given, *map(load, names)]
            text.func = ast.Call(load(scope.support(support.unchanged)), values, [])
        return text  # type: ignore[no-any-return]

    def emit(self, kind: str, text: str, **more: Any) -> None:
        """Add a step."""
        self.out.append(Statement(kind, text, origin=self.origin, **more))

    def atom(self, node: ast.expr) -> ast.expr:
        """Return a name or literal for a value, with the steps that compute it."""
        if isinstance(node, (ast.Name, ast.Constant)) or is_literal(node):
            return node
        if not self.scope.is_active(node):
            return self.passive(node)
        name = self.scope.fresh(self._stem(node))
        self.assign(name, node)
        return load(name)

    def _stem(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            stem = ast.unparse(node.func).split(".")[-1]
            return stem if stem.isidentifier() else "value"
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return getattr(OPERATORS.get(type(node.op)), "__name__", "value")
        kind = type(node).__name__.lower()
        return {"subscript": "item", "listcomp": "items", "dictcomp": "items"}.get(kind, kind)

    def passive(self, node: ast.expr) -> ast.expr:
        """Return a passive expression that is safe to compute twice: calls get a name."""
        simple = (ast.Name, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp, ast.expr_context,
                  ast.USub, ast.UAdd, ast.Invert, ast.operator, ast.BinOp)  # fmt: skip
        if all(isinstance(one, simple) for one in ast.walk(node)) or is_literal(node):
            return node
        if isinstance(node, ast.Slice):
            parts = [one and self.passive(one) for one in (node.lower, node.upper, node.step)]
            return cast(ast.expr, ast.Slice(*parts))
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.passive(one) for one in node.elts], ast.Load())
        stem = "index" if isinstance(node, ast.Subscript) else "fixed"
        return self.fixed(stem, ast.unparse(node))

    def fixed(self, stem: str, text: str) -> ast.expr:
        """Return a new name for the value that a passive expression has here."""
        name = self.scope.fresh(stem)
        self.emit("passive", f"{name} = {text}")
        self.scope.locals.add(name)
        return load(name)

    def assign(self, target: str, node: ast.expr) -> None:
        """Add the steps that bind a name to the value of an expression."""
        scope = self.scope
        if not scope.is_active(node):
            self.emit("passive", f"{target} = {ast.unparse(node)}")
            if isinstance(node, ast.Call) and self.aliases.changed(target):
                called = scope.resolve(node.func)
                if not isinstance(called, type) and not is_numpy(called):
                    for given in sorted(loads([*node.args, *node.keywords]) & scope.own):
                        self.refuse_same(target, given, target, ast.unparse(node))
            return
        scope.active.add(target)
        scope.locals.add(target)
        method = getattr(self, f"_as_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refused(node)
        method(target, node)

    def step(
        self, kind: str, target: str, value: str, args: list[ast.expr],
        reads: list[ast.expr] | None = None, checked: str = "", given: Any = (), **more: Any,
    ) -> None:  # fmt: skip
        """Add a step that binds a name; through a second name if its reversal reads the first."""
        names = loads([*(reads or args), *more.get("kwargs", {}).values()])
        bound = self.scope.fresh(target) if target in names else target
        self.scope.active.add(bound)
        self.scope.locals.add(bound)
        if kind in ("user", "dynamic"):
            more["slot"], more["checked"] = self.scope.fresh("record"), f"{bound} = {checked}"
            self.scope.locals.add(more["slot"])
        self.emit(kind, f"{bound} = {value}", target=bound, args=args, **more)
        if more.get("function") in (list, tuple) and self.aliases.written(ast.unparse(args[0])):
            source = ast.unparse(args[0])
            helper = self.scope.support(support.refuse_view)
            self.emit("passive", f"{helper}({bound}, {target!r}, {source!r})")
        if kind in ("user", "dynamic"):
            for name in sorted(loads([*args, *more.get("kwargs", {}).values(), *given])):
                if self.aliases.changed(name):
                    self.refuse_same(bound, name, name, value)
        if bound != target:
            self.emit("copy", f"{target} = {bound}", target=target,
                      args=[ast.Name(bound, ast.Load())])  # fmt: skip

    def refuse_same(self, result: str, other: str, changed: str, call: str) -> None:
        """Raise when it runs if the result of a call shares memory with another value."""
        helper = self.scope.support(support.refuse_same)
        self.emit("passive", f"{helper}({result}, {other}, {changed!r}, {call!r})")

    def _as_name(self, target: str, node: ast.Name) -> None:
        if target != node.id:
            self.emit("copy", f"{target} = {node.id}", target=target, args=[node])

    def _as_binop(self, target: str, node: ast.BinOp) -> None:
        function = OPERATORS.get(type(node.op))
        if function is None:
            raise self.refused(node)
        lists = any(map(self.aliases.may_be_list, (node.left, node.right)))
        args = [self.atom(node.left), self.atom(node.right)]
        value = ast.unparse(ast.BinOp(args[0], node.op, args[1]))
        if lists and function is np.add:
            self.step("rule", target, value, args, function=support.concatenated)
            return
        if lists:
            value = f"{self.scope.support(support.refuse_list)}({value})"
        self.step("call", target, value, args, function=function)

    def _as_unaryop(self, target: str, node: ast.UnaryOp) -> None:
        args = [self.atom(node.operand)]
        value = ast.unparse(ast.UnaryOp(node.op, args[0]))
        self.step("call", target, value, args, function=OPERATORS[type(node.op)])

    def _as_ifexp(self, target: str, node: ast.IfExp) -> None:
        self.rewritten(f"if {ast.unparse(node.test)}:\n    {target} = {ast.unparse(node.body)}\n"
                       f"else:\n    {target} = {ast.unparse(node.orelse)}", node)  # fmt: skip

    def _as_boolop(self, target: str, node: ast.BoolOp) -> None:
        first, *rest = map(ast.unparse, node.values)
        name = self.scope.fresh("operand")
        negated = "" if isinstance(node.op, ast.And) else "not "
        sign = " and " if isinstance(node.op, ast.And) else " or "
        self.rewritten(f"{name} = {first}\nif {negated}{name}:\n    {target} = {sign.join(rest)}\n"
                       f"else:\n    {target} = {name}", node)  # fmt: skip

    def _as_namedexpr(self, target: str, node: ast.NamedExpr) -> None:
        self.assign(node.target.id, node.value)
        self._as_name(target, ast.Name(node.target.id, ast.Load()))

    def _as_attribute(self, target: str, node: ast.Attribute) -> None:
        if node.attr in ("T", "mT"):
            name = {"T": "transpose", "mT": "matrix_transpose"}[node.attr]
            base = self.atom(node.value)
            self.step("call", target, f"{ast.unparse(base)}.{node.attr}", [base],
                      function=getattr(np, name))  # fmt: skip
            return
        raise self.refused(
            node, f"the attribute .{node.attr} of an active value has no gradient; use a NumPy "
            "function, or give the attribute as an argument",
        )  # fmt: skip

    def _as_subscript(self, target: str, node: ast.Subscript) -> None:
        base, index = self.atom(node.value), index_text(self.passive(node.slice))
        value = f"{ast.unparse(base)}[{index}]"
        viewed = getattr(node, "viewed", "")
        if viewed and not self.scope.is_generated:
            helper = self.scope.support(support.refuse_view)
            value = f"{helper}({value}, {target!r}, {viewed!r})"
        # The reversal also reads the names of the index.
        reads = [base, *[ast.Name(one, ast.Load()) for one in loads(ast.parse(f"_[{index}]").body)]]
        self.step("item", target, value, [base], reads, index=index)

    def _as_tuple(self, target: str, node: ast.Tuple | ast.List) -> None:
        for part in node.elts:
            if isinstance(part, ast.Starred):
                raise self.refused(part)
        args = [self.atom(part) for part in node.elts]
        for part in args:
            if isinstance(part, ast.Name) and self.aliases.written(part.id):
                raise self.refused(node, f"{part.id} is written to; put a copy into the container")
        display = type(node)(args, ast.Load())
        self.step("build", target, ast.unparse(display), args)

    _as_list = _as_tuple

    def _as_dict(self, target: str, node: ast.Dict) -> None:
        if None in node.keys:
            raise self.refused(
                node, "** in a dict of active values is not supported; name its keys"
            )
        known = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        if 1 < len(node.keys) != len(known):  # two may be equal: the last value stays
            items, lines = self.scope.fresh("items"), list[str]()
            for key, one in zip(cast(Any, node.keys), node.values, strict=True):
                lines.append(f"{items}[{ast.unparse(key)}] = {ast.unparse(one)}")
            self.rewritten("\n".join([f"{items} = {{}}", *lines, f"{target} = {items}"]), node)
            return
        keys = [self.passive(cast(ast.expr, key)) for key in node.keys]
        args = [self.atom(one) for one in node.values]
        value = ast.unparse(ast.Dict(cast(Any, keys), args))
        self.step("build", target, value, args, kwargs={"keys": ast.Tuple(keys, ast.Load())})

    def _as_listcomp(self, target: str, node: ast.ListComp) -> None:
        items = self.scope.fresh("items")
        renamed, head = self._generators(node, node.elt)
        self.rewritten(f"{items} = []\n{head}{items}.append({renamed})\n{target} = {items}", node)

    def _as_dictcomp(self, target: str, node: ast.DictComp) -> None:
        items = self.scope.fresh("items")
        pair = ast.Tuple([node.key, node.value], ast.Load())
        renamed, head = self._generators(node, pair)
        key, value = (ast.unparse(one) for one in cast(Any, ast.parse(renamed).body[0]).value.elts)
        self.rewritten(f"{items} = {{}}\n{head}{items}[{key}] = {value}\n{target} = {items}", node)

    def _generators(self, node: Any, result: ast.expr) -> tuple[str, str]:
        """Return the element and the loops of a comprehension, its own names renamed."""
        names = {name for generator in node.generators for name in bound_names([generator.target])}
        turn = Substituted({
            name: ast.Name(self.scope.fresh(name), ast.Load()) for name in names
        })  # fmt: skip
        head, depth = "", 0
        for i, generator in enumerate(node.generators):
            over = generator.iter if i == 0 else turn.visit(deepcopy(generator.iter))
            target = turn.visit(deepcopy(generator.target))
            head += f"{'    ' * depth}for {ast.unparse(target)} in {ast.unparse(over)}:\n"
            depth += 1
            for test in generator.ifs:
                head += f"{'    ' * depth}if {ast.unparse(turn.visit(deepcopy(test)))}:\n"
                depth += 1
        return ast.unparse(turn.visit(deepcopy(result))), head + "    " * depth

    def _as_call(self, target: str, node: ast.Call) -> None:
        scope = self.scope
        if scope.reads_text(node):
            raise self.refused(
                node, f"a number read from a text has no gradient, and {ast.unparse(node)} is one; "
                "take the number that the text shows",
            )  # fmt: skip
        function = scope.resolve(node.func)
        text, extra = ast.unparse(node.func), []
        if isinstance(node.func, ast.Attribute) and function is UNKNOWN:
            base = node.func.value
            if not scope.is_active(base):
                self._dynamic(target, node, text)
                return
            method = node.func.attr
            if method == "pop" and not node.args:
                self.refuse_shared(base)
                self.step("pop", target, f"{ast.unparse(base)}.pop()", [base])
                return
            if method == "get" and node.args:
                self._as_get(target, node)
                return
            function = support.METHODS.get(method, getattr(np, method, UNKNOWN))
            if function is UNKNOWN or method == "fill":
                raise self.refused(node, f"the method .{method} of an active value has no gradient")
            extra = [self.atom(base)]
            text = f"{ast.unparse(extra[0])}.{method}"
            if method in ("reshape", "transpose") and len(node.args) > 1:
                node = ast.Call(node.func, [ast.Tuple(node.args, ast.Load())], node.keywords)
        if function is UNKNOWN:
            self._dynamic(target, node, text)
            return
        self._known(target, node, function, text, extra)

    def _as_get(self, target: str, node: ast.Call) -> None:
        """Bind a name to ``d.get(key, default)``."""
        of, key = map(ast.unparse, (self.atom(node.func.value), self.passive(node.args[0])))  # type: ignore[attr-defined]
        other = ast.unparse(node.args[1]) if len(node.args) > 1 else "None"
        self.rewritten(f"if {key} in {of}:\n    {target} = {of}[{key}]\n"
                       f"else:\n    {target} = {other}", node)  # fmt: skip

    def _known(
        self, target: str, node: ast.Call, function: Any, text: str, extra: list[ast.expr]
    ) -> None:
        scope, kind = self.scope, "user"
        hashable = is_hashable(function)
        if hashable:
            if function in (max, min) and node.keywords:
                raise self.refused(node, f"{text} with keywords has no derivative; write a loop")
            function = support.SOURCES.get(function, function)
        if hashable and function in support.PURE:
            function = support.PURE[function]
            text = scope.help(function.__name__, function)
        if hashable and (function in support.ADJOINTS or function in support.TANGENTS):
            kind = "rule"
        elif (
            (is_numpy(function) and on_nodes(function) is not None)
            or isinstance(function, (Derived, Kernel, trace))
            or function in (abs, pow)
        ):
            kind = "call"
        elif isinstance(function, type) or not (
            isinstance(function, Scope) or hasattr(function, "__code__")
            or hasattr(getattr(function, "__func__", None), "__code__")
        ):  # fmt: skip
            name = getattr(function, "__name__", type(function).__name__)
            raise self.refused(
                node, f"{name} has no derivative; give it one with @ag.source.adjoint({name}) and "
                f"@ag.source.tangent({name})",
            )  # fmt: skip
        if function is math.log and len(node.args) == 2:
            both = [f"{text}({ast.unparse(one)})" for one in node.args]
            self.assign(target, ast.parse(" / ".join(both), mode="eval").body)
            return
        ufunc = on_nodes(function) if kind == "call" else None
        if isinstance(ufunc, np.ufunc) and ufunc is not function and len(node.args) > ufunc.nin:
            raise self.refused(node, f"{text} of {len(node.args)} arguments has no derivative")
        if kind == "call" and writes_out(function, node):
            raise self.refused(node, "out= has no gradient; assign the result to a name")
        if kind != "user" and any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refused(node, "give starred arguments one by one")
        args = [
            ast.Starred(self.operand(one.value, kind), ast.Load())
            if isinstance(one, ast.Starred)
            else self.operand(one, "ufunc" if isinstance(function, np.ufunc) else kind)
            for one in node.args
        ]  # fmt: skip
        kwargs: dict[str, ast.expr] = {}
        for word in node.keywords:
            if word.arg is None or (kind != "user" and scope.is_active(word.value)):
                raise self.refused(node, "give active values as positional arguments")
            kwargs[word.arg] = self.operand(word.value, kind)
        words = [ast.keyword(key, one) for key, one in kwargs.items()]
        called: Any = ast.Call(ast.parse(text, mode="eval").body, args, words)
        text = ast.unparse(called)
        if isinstance(function, Scope):
            for name in function.captured:
                kwargs[name] = load(name)
        checked = ast.unparse(self.guarded(node, called)) if kind == "user" else ""
        self.step(kind, target, text, [*extra, *args], kwargs=kwargs, function=function,
                  checked=checked, given=node.args)  # fmt: skip

    def operand(self, node: ast.expr, kind: str) -> ast.expr:
        """Return the operand of a call of this kind; that of a ufunc is no list."""
        if kind != "user" and not self.scope.is_active(node):
            return self.passive(node)
        if kind == "ufunc" and self.aliases.may_be_list(node):
            name, made = self.scope.fresh("array"), self.scope.help("array", np.array)
            items = self.atom(node)
            self.step("rule", name, f"{made}({ast.unparse(items)})", [items], function=np.array)
            return load(name)
        return self.atom(node)

    def _dynamic(self, target: str, node: ast.Call, text: str) -> None:
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refused(node, f"{text} is known at run time only; give it its arguments "
                               "by position")  # fmt: skip
        name = text
        if isinstance(node.func, ast.Call) and self.scope.is_active(node.func):
            raise self.refused(node, f"{text} may hold active values; give them as arguments")
        if not isinstance(node.func, ast.Name):
            name = ast.unparse(self.passive(node.func))
        args = [self.atom(one) for one in node.args]
        value = f"{name}({', '.join(map(ast.unparse, args))})"
        checked = ast.unparse(self.guarded(node, ast.parse(value, mode="eval").body))
        self.step("dynamic", target, value, args, function=name, checked=checked, given=node.args)


def index_text(node: ast.expr) -> str:
    """Return the text of an index between brackets."""
    return ast.unparse(ast.Subscript(ast.Name("_", ast.Load()), node, ast.Load()))[2:-1]
