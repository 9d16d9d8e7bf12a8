"""The names of a function, their objects, and which of them are active."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator
from inspect import Parameter, signature
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np

from actorgraph.source.names import (
    FUNCTIONS,
    bound_names,
    defaults,
    free_names,
    loads,
    parameters,
    stored,
    walk_own,
)

UNKNOWN = object()
"""The value of a local name, which is known only when the function runs."""

_PASSIVE_NUMPY = """
    shape ndim size zeros ones empty eye zeros_like ones_like empty_like argmax
    argmin argsort nonzero flatnonzero argwhere count_nonzero isnan isinf isfinite all any allclose
    array_equal isclose searchsorted digitize logical_and logical_or logical_not logical_xor greater
    less greater_equal less_equal equal not_equal floor_divide sign floor ceil rint trunc round
    signbit may_share_memory shares_memory isscalar result_type errstate iscomplexobj
""".split()
PASSIVE_CALLS = frozenset(
    {
        len, range, isinstance, issubclass, print, int, bool, str, repr, type, id, hash, callable,
        hasattr, format, round, all, any, math.floor, math.ceil, math.isnan, math.isinf, math.trunc,
        *[getattr(np, name) for name in _PASSIVE_NUMPY],
    }
)  # fmt: skip
"""Functions whose result has no derivative."""
PASSIVE_ATTRIBUTES = frozenset(
    "shape ndim size dtype itemsize nbytes strides flags argmax argmin argsort any all keys"
    .split()
)  # fmt: skip
"""Attributes of active values that have no derivative."""


WRITING = frozenset({
    np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis,
})  # fmt: skip
"""Functions that write into their first argument."""
_PURE_BUILTINS = {sum, max, min, abs, pow, float, list, tuple, dict, set, sorted, zip, reversed}
_READING = frozenset(
    "sum mean min max prod std var ptp dot copy astype reshape ravel item get items values index "
    "tolist".split()
)  # fmt: skip
"""Methods that change nothing."""


_PASSED_ON: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Subscript: ("value",), ast.IfExp: ("body", "orelse"), ast.NamedExpr: ("value",),
    ast.ListComp: ("elt",), ast.SetComp: ("elt",), ast.GeneratorExp: ("elt",),
    ast.DictComp: ("value",),
}  # fmt: skip
"""The parts of an expression on which its value depends, if not on all."""


class Scope:
    """A function while it is differentiated: its tree, its names and which of them are active.

    `captured` are the names of the enclosing function that a nested one reads; they become
    arguments.
    """

    def __init__(
        self, function: FunctionType, tree: ast.FunctionDef, captured: tuple[str, ...] = (),
        nested: dict[str, Scope] | None = None,
    ) -> None:  # fmt: skip
        self.function, self.tree, self.captured = function, tree, captured
        self.args = [*parameters(tree.args), *captured]
        self.used = {*self.args, *bound_names(tree.body)}
        self.used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        _Definitions(self).generic_visit(tree)
        self.own = {*self.args, *bound_names(tree.body)}
        generators = [one for one in walk_own(tree.body) if isinstance(one, ast.comprehension)]
        self.locals = self.own.union(*[stored(one.target) for one in generators])
        self.taken: dict[str, str] = {}
        self.active: set[str] = set()
        self.helpers: dict[str, Any] = {}
        self.cells = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )
        self.texts: dict[str, set[str]] = {}  # names of texts, each with the names that it shows
        self.nested = {
            name: scope for name, scope in (nested or {}).items() if name not in self.locals
        }
        self._add_nested()
        self._add_texts()

    def _add_texts(self) -> None:
        """Find the names that are bound to texts and to nothing else."""
        own = walk_own(self.tree.body)
        bound = [one.id for one in own if isinstance(one, ast.Name) and type(one.ctx) is ast.Store]
        values: dict[str, list[ast.expr]] = {}
        for node in own:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values.setdefault(node.targets[0].id, []).append(node.value)
        for name, given in values.items():
            if all(map(self.is_text, given)) and bound.count(name) == len(given):
                self.texts[name] = set().union(*map(self._shown, given))

    def is_text(self, node: ast.AST) -> bool:
        """Return whether an expression is surely a text."""
        if isinstance(node, ast.Name):
            return node.id in self.texts or isinstance(self.resolve(node), str)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Mod) and self.is_text(node.left)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "join"):
                return self.is_text(node.func.value)
            return any(self.resolve(node.func) is one for one in (str, repr, format))
        written = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return written or isinstance(node, ast.JoinedStr)

    def _shown(self, node: ast.AST) -> set[str]:
        """Return the names whose values a text shows, or may show."""
        names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        return names.union(*[self.texts.get(name, ()) for name in names])

    def _add_nested(self) -> None:
        """Find the functions that are defined here, each under a name of its own."""
        own = walk_own(self.tree.body)
        bound = [one.id for one in own if isinstance(one, ast.Name) and type(one.ctx) is ast.Store]
        bound += [one.name for one in own if isinstance(one, ast.FunctionDef)] + self.args
        nested = [
            one for one in own
            if isinstance(one, ast.FunctionDef) and bound.count(one.name) == 1
            and not one.decorator_list
        ]  # fmt: skip
        free_of = {
            one.name: free_names(one).union(*map(loads, defaults(one.args).values()))
            for one in nested
        }
        for node in nested:
            free, before = free_of[node.name], set[str]()
            while (
                free != before
            ):  # it also captures what the nested functions that it calls capture
                before = free
                free = free.union(*[free_of[name] for name in free & free_of.keys()])
            captured = tuple(sorted((free & self.own) - free_of.keys()))
            self.nested[node.name] = Scope(self.function, node, captured, self.nested)
        for scope in self.nested.values():
            known_there = {n: one for n, one in self.nested.items() if n not in scope.locals}
            scope.nested = {**known_there, **scope.nested}

    def late(self) -> list[str]:
        """Return the names that a function inside may capture before they are bound."""
        captured, bound = set[str](), {*self.args}
        for stmt in self.tree.body:
            inner = [one for one in ast.walk(stmt) if isinstance(one, FUNCTIONS)]
            captured |= set().union(*map(free_names, inner)) - bound
            bound |= bound_names(stmt.targets) if isinstance(stmt, ast.Assign) else set()
        return sorted(captured & self.own - self.nested.keys())

    def called(self) -> list[Scope]:
        """Return the functions of scopes around that this one calls, or that these call."""
        found: dict[str, Scope] = {}
        todo = [self]
        while todo:
            names = loads(todo.pop().tree.body) & self.nested.keys() - self.own - found.keys()
            found |= {name: self.nested[name] for name in sorted(names)}
            todo += [found[name] for name in names]
        return [*found.values()]

    @property
    def is_generated(self) -> bool:
        """Whether it is a generated derivative, whose appends and pops are those of its tape."""
        return self.function.__code__.co_filename.startswith("<ag ")

    def fresh(self, stem: str) -> str:
        """Return a name that the function does not use."""
        number = 1
        while f"{stem}_{number}" in self.used:
            number += 1
        self.used.add(f"{stem}_{number}")
        return f"{stem}_{number}"

    def reserve(self, name: str) -> str:
        """Return a name for a generated function, which no helper may have."""
        if name in self.used:
            return self.fresh(name)
        self.used.add(name)
        return name

    def derived(self, prefix: str, name: str) -> str:
        """Return the name of the cotangent or tangent of a variable."""
        key = prefix + name
        if key not in self.taken:
            free = key
            while free in self.used:
                free += "_"
            self.used.add(free)
            self.taken[key] = free
        return self.taken[key]

    def support(self, function: Any) -> str:
        """Return the name in the text for a function of `support`."""
        return self.help(function.__name__, function)

    def help(self, name: str, value: Any) -> str:
        """Return the name by which the generated text knows a helper."""
        stem, number = name, 1
        while (name in self.used and name not in self.helpers) or (
            name in self.helpers and self.helpers[name] is not value
        ):
            number += 1
            name = f"{stem}_{number}"
        self.helpers[name] = value
        return name

    def resolve(self, node: ast.AST) -> Any:
        """Return the object that an expression names, or `UNKNOWN`."""
        if isinstance(node, ast.Name):
            if node.id in self.nested and node.id in {*self.locals, *self.nested}:
                return self.nested[node.id]
            if node.id in self.locals:
                return UNKNOWN
            if node.id in self.cells:
                try:
                    return self.cells[node.id].cell_contents
                except ValueError:
                    return UNKNOWN
            value = self.function.__globals__.get(node.id, UNKNOWN)
            return getattr(builtins, node.id, UNKNOWN) if value is UNKNOWN else value
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value)
            return UNKNOWN if base is UNKNOWN else getattr(base, node.attr, UNKNOWN)
        return UNKNOWN

    # -- activity -----------------------------------------------------------------------------

    def spread(self, active: set[str]) -> None:
        """Find the names that may depend on `active` ones, whatever path is taken."""
        self.active |= active
        before = -1
        while before != len(self.active):
            before = len(self.active)
            for node in walk_own(self.tree.body):
                self._spread_through(node)

    def _spread_through(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._mark(target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            if node.value is not None and not isinstance(getattr(node, "op", None), ast.FloorDiv):
                self._mark(node.target, node.value)
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._mark_loop(node.target, node.iter, node)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            if self.insertion(node) is not None:
                return
            self._mark(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            grows = node.func.attr in ("append", "extend", "insert")
            if grows and any(map(self.is_active, node.args)):
                self._mark_root(node.func.value)

    def insertion(self, item: ast.withitem) -> ast.expr | None:
        """Return the x of ``with insert_grad_of(x) as dx``, None for other contexts."""
        call = item.context_expr
        if isinstance(call, ast.Call) and len(call.args) == 1:
            target = self.resolve(call.func)
            if getattr(target, "__name__", "") == "insert_grad_of":
                return call.args[0]
        return None

    def _mark(self, target: ast.expr, value: ast.expr) -> None:
        for part, given, _ in pairs(target, value):
            if self.is_active(given):
                self._mark_root(part)

    def _mark_root(self, target: ast.expr) -> None:
        for part, _, _ in pairs(target, None):
            while isinstance(part, (ast.Subscript, ast.Attribute, ast.Starred)):
                part = part.value
            self.active |= {part.id} if isinstance(part, ast.Name) else set()

    def _mark_loop(self, target: ast.expr, over: ast.expr, loop: ast.AST) -> None:
        call = self.call_of(over)
        if call and isinstance(target, ast.Tuple):
            name, args = call
            if name == "enumerate":
                self._mark_loop(target.elts[1], args[0], loop)
                return
            if name == "zip" and len(args) == len(target.elts):
                for part, arg in zip(target.elts, args, strict=True):
                    self._mark_loop(part, arg, loop)
                return
            if name == "items":
                self._mark(target.elts[1], args[0])
                return
        if self.is_active(over) and not self.by_keys(target, over, loop):
            self._mark_root(target)

    def call_of(self, node: ast.AST) -> tuple[str, list[ast.expr]] | None:
        """Return name and arguments of an iterable that loops treat specially, such as `zip`."""
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values", "keys"):
            return node.func.attr, [node.func.value]
        target = self.resolve(node.func)
        for builtin in (zip, enumerate, range, reversed):
            if target is builtin:
                return builtin.__name__, node.args
        return None

    def by_keys(self, target: ast.AST, over: ast.expr, loop: ast.AST) -> bool:
        """Return whether a loop goes over the keys of a dict: it has ``d[k]`` in it."""
        if not isinstance(target, ast.Name) or not isinstance(over, ast.Name):
            return False
        return any(
            isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
            and node.value.id == over.id and isinstance(node.slice, ast.Name)
            and node.slice.id == target.id
            for node in ast.walk(loop if isinstance(loop, ast.For) else self.tree)
        )  # fmt: skip

    def is_active(self, node: ast.AST | None) -> bool:
        """Return whether the value of an expression may depend on an active name."""
        if isinstance(node, ast.Name):
            return node.id in self.active
        if node is None or isinstance(node, (ast.Constant, ast.Compare, ast.Lambda)):
            return False
        if self.is_text(node):
            return False
        if isinstance(node, ast.Attribute):
            return node.attr not in PASSIVE_ATTRIBUTES and self.is_active(node.value)
        if isinstance(node, ast.Call):
            return self._is_active_call(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
            return False
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            return False
        fields = _PASSED_ON.get(type(node))
        parts = fields and [getattr(node, field) for field in fields]
        return any(map(self.is_active, parts or ast.iter_child_nodes(node)))

    def _is_active_call(self, node: ast.Call) -> bool:
        target = self.resolve(node.func)
        if isinstance(node.func, ast.Attribute) and target is UNKNOWN:
            if node.func.attr in PASSIVE_ATTRIBUTES:
                return False
            if self.is_active(node.func.value):
                return True
        try:
            if target in PASSIVE_CALLS:
                return False
        except TypeError:
            pass
        if isinstance(target, Scope) and not self.active.isdisjoint(target.captured):
            return True
        if self.reads_text(node):
            return True
        return any(map(self.is_active, [*node.args, *[word.value for word in node.keywords]]))

    def reads_text(self, node: ast.Call) -> bool:
        """Return whether a call makes a number of a text that shows an active value."""
        texts = [part for arg in node.args for part in ast.walk(arg) if self.is_text(part)]
        shown = set().union(*map(self._shown, texts))
        target = self.resolve(node.func)
        return (target is float or target is np.float64) and not self.active.isdisjoint(shown)


class _Definitions(ast.NodeTransformer):
    """Turns ``f = lambda ...`` into a definition, and gives names to the defaults of definitions.

    So whoever calls the function has its defaults, as captured names.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        self.generic_visit(node)
        kept: list[ast.stmt] = []
        for parameter, value in defaults(node.args).items():
            if isinstance(value, ast.Constant) or hasattr(value, "kept") or node.decorator_list:
                continue
            name = self.scope.fresh(parameter)
            one: Any = ast.copy_location(ast.Name(name, ast.Load()), value)
            one.kept = True
            for values in (node.args.defaults, node.args.kw_defaults):
                values[:] = [one if other is value else other for other in cast(Any, values)]
            bound = ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
            kept.append(ast.fix_missing_locations(bound))
        return [*kept, node]

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if (
            isinstance(node.value, ast.Lambda)
            and len(node.targets) == 1
            and isinstance(target, ast.Name)
        ):
            definition: Any = ast.parse(f"def {target.id}(): pass").body[0]
            definition.args, definition.body = node.value.args, [ast.Return(node.value.body)]
            for part in (definition, definition.body[0]):
                ast.copy_location(part, node)
            return self.visit_FunctionDef(definition)
        return node


def pairs(target: ast.expr, value: Any, exact: bool = True) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the single targets of an assignment, with their values if `exact`, or the whole one."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value, exact and not isinstance(target, ast.Starred)
        return
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    starred = any(isinstance(one, ast.Starred) for one in (*target.elts, *parts))
    same = len(parts) == len(target.elts) and not starred
    for i, one in enumerate(target.elts):
        yield from pairs(one, parts[i] if same else value, exact and same)


def is_numpy(target: Any) -> bool:
    """Return whether a callable is from NumPy or `math`."""
    module = getattr(target, "__module__", None) or ""
    return isinstance(target, np.ufunc) or module.split(".")[0] in ("numpy", "math") or (
        isinstance(target, ModuleType)
    )  # fmt: skip


def is_hashable(value: Any) -> bool:
    """Return whether a value may be looked up in a set."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def writes_out(function: Any, call: ast.Call) -> bool:
    """Return whether a call of a NumPy function says where to write its result, or writes."""
    if any(word.arg == "out" for word in call.keywords) or function in WRITING:
        return True
    if isinstance(function, np.ufunc):
        return len(call.args) > function.nin
    try:
        spec = signature(function).parameters.values()
    except (TypeError, ValueError):
        return function is np.dot and len(call.args) > 2
    return (
        "out" in [one.name for one in spec if one.kind < Parameter.VAR_POSITIONAL][: len(call.args)]
    )


def changes_nothing(function: Any, call: ast.Call) -> bool:
    """Return whether a call surely changes none of its arguments."""
    if function is UNKNOWN and isinstance(call.func, ast.Attribute):
        return call.func.attr in PASSIVE_ATTRIBUTES | _READING and not writes_out(function, call)
    if is_hashable(function) and function in PASSIVE_CALLS | _PURE_BUILTINS:
        return True
    return is_numpy(function) and not writes_out(function, call)
