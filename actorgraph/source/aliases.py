"""Which names may share memory: a write has a gradient only if no other name sees it.

Containers that hold a value count as names of it.  A name that was bound anew in between does not
see a write.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from actorgraph.source.names import bound_names, walk_own
from actorgraph.source.reading import UnsupportedSyntax, read
from actorgraph.source.scope import UNKNOWN, WRITING, Scope, is_numpy, pairs

_VIEWS = frozenset(
    "reshape ravel asarray asanyarray ascontiguousarray asfortranarray require atleast_1d "
    "atleast_2d atleast_3d transpose permute_dims matrix_transpose squeeze swapaxes moveaxis "
    "rollaxis view diagonal diag broadcast_to broadcast_arrays expand_dims flip fliplr flipud "
    "rot90 split array_split hsplit vsplit dsplit unstack real imag real_if_close trim_zeros "
    "einsum conj conjugate".split()
)
"""NumPy's functions whose result may show memory of an argument."""
CHANGING = frozenset({"append", "extend", "insert", "pop"})
"""Methods of lists that change them."""
_BINDING = (ast.Assign, ast.AnnAssign)
_HOLDING = (dict, list, tuple, set, frozenset, zip, enumerate, reversed)
"""Functions whose result holds what is in their arguments."""
_KEPT: dict[type[ast.AST], tuple[str, ...]] = {
    ast.IfExp: ("body", "orelse"), ast.BoolOp: ("values",), ast.List: ("elts",),
    ast.Tuple: ("elts",), ast.Set: ("elts",), ast.Dict: ("values",), ast.ListComp: ("elt",),
    ast.DictComp: ("value",), ast.NamedExpr: ("value", "target"), ast.Starred: ("value",),
}  # fmt: skip
"""The parts of an expression whose values are its value, or are held by it."""
_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)


class _Place(NamedTuple):
    """A statement: its number, the loops around, and the last binding of names that precedes it."""

    number: int
    loops: tuple[int, ...]
    bound: dict[str, int]

    def may_follow(self, other: _Place, name: str) -> bool:
        """Return whether it runs after the other, with `name` bound to the same object."""
        bound = self.bound.get(name, -1)
        if other.number < self.number:
            return bound <= other.number
        return any(bound < loop for loop in {*self.loops} & {*other.loops})


class Aliases:
    """The memory that names of a function may share, by its assignments."""

    def __init__(self, scope: Scope, result: str) -> None:
        self.scope, self.result = scope, result
        self._nodes = walk_own(scope.tree.body)
        self._number = 0
        self._writes: dict[str, list[_Place]] = {}
        self._stored: set[str] = set()  # those of elements
        self._lines: dict[int, list[_Place]] = {}  # the statements of a line
        self._links: list[tuple[_Place, str, set[str]]] = []  # the name refers to each of the set
        self._read(scope.tree.body, (), {})

    def _read(self, body: list[ast.stmt], loops: tuple[int, ...], bound: dict[str, int]) -> None:
        """Note the writes and the links of a block."""
        for stmt in body:
            self._number += 1
            place = _Place(self._number, loops, dict(bound))
            self._lines.setdefault(stmt.lineno, []).append(place)
            if isinstance(stmt, (ast.FunctionDef, ast.ClassDef)):
                continue
            blocks = [getattr(stmt, name, []) for name in ("body", "orelse", "finalbody")]
            for node in ast.iter_child_nodes(stmt):
                if isinstance(node, (ast.ExceptHandler, ast.match_case)):
                    blocks.append(node.body)
                elif not isinstance(node, ast.stmt):
                    for part in walk_own([node]):
                        self._note(part, place)
            self._note(stmt, place)
            again = (self._number,) if isinstance(stmt, (ast.For, ast.While)) else ()
            for block in blocks:
                self._read(block, (*loops, *again), dict(bound))
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)):
                bound |= dict.fromkeys(bound_names([stmt]), place.number)

    def _note(self, node: ast.AST, place: _Place) -> None:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self._stored.add(name := ast.unparse(node.value))
            self._writes.setdefault(name, []).append(place)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if any(self.scope.resolve(node.func) is one for one in WRITING) and node.args:
                self._writes.setdefault(ast.unparse(node.args[0]), []).append(place)
            if node.func.attr in CHANGING:
                name = ast.unparse(node.func.value)
                self._writes.setdefault(name, []).append(place)
            if node.func.attr in CHANGING | {"update", "setdefault", "add"}:
                for arg in (*node.args, *[word.value for word in node.keywords]):
                    self._link(place, node.func.value, arg)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._writes.setdefault(node.target.id, []).append(place)
            self._link(place, node.target, node.value if _is_display(node.value) else None)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._link(place, target, node.value)
                for other in node.targets:
                    if isinstance(other, ast.Name) and other is not target:
                        self._link(place, target, other)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            self._link(place, node.target, node.value)

    def _link(self, place: _Place, target: ast.expr, value: ast.expr | None) -> None:
        for one, given, _ in pairs(target, value):
            if isinstance(one, ast.Subscript) and not self._is_container(one.value):
                continue  # elements are copied into an array
            while isinstance(one, (ast.Subscript, ast.Attribute, ast.Starred)):
                one = one.value
            names = self._refers(given)
            if isinstance(one, ast.Name) and names:
                self._links.append((place, one.id, names))

    def _is_container(self, node: ast.expr) -> bool:
        return any(map(_is_display, self._values_of(ast.unparse(node))))

    def _values_of(self, name: str) -> list[ast.expr | None]:
        values: list[ast.expr | None] = []
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                values += [
                    given if exact else None
                    for target in node.targets
                    for one, given, exact in pairs(target, node.value)
                    if name in bound_names([one])
                ]
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and name in bound_names([node]):
                values.append(node.value)
            elif isinstance(node, (ast.For, ast.withitem)):
                target = node.target if isinstance(node, ast.For) else node.optional_vars
                values += [None] if target is not None and name in bound_names([target]) else []
        return values

    def is_fresh(self, name: str) -> bool:
        """Return whether a name is bound to new objects only."""
        values = self._values_of(name)
        writes = self._writes.get(name, [])
        if name in self.scope.args and not (values and all(name in one.bound for one in writes)):
            return False
        if not values:
            return name.startswith(("items_", "result"))  # written by us
        return all(value is not None and self._makes(value) for value in values)

    def may_be_dict(self, node: ast.expr) -> bool:
        """Return whether a value may be a dict, for all that the text says."""
        if isinstance(node, ast.Name):
            values = self._values_of(node.id)
            return not values or any(
                value is None or isinstance(value, ast.Name) or self.may_be_dict(value)
                for value in values
            )
        if isinstance(node, ast.Call):
            return not is_numpy(self.scope.resolve(node.func))
        return not isinstance(node, (*_DISPLAYS[:2], ast.ListComp, ast.BinOp, ast.UnaryOp))

    def may_be_whole(self, name: str) -> bool:
        """Return whether a value may be an array of integers, for all that the text says."""
        return any(
            value is None or not (_is_display(value) or self._is_float(value))
            for value in self._values_of(name)
        )

    def _is_float(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Call):
            return self.scope.is_active(node)
        called, given = self.scope.resolve(node.func), [*node.args, *node.keywords]
        if called in (np.zeros, np.ones, np.empty):
            return len(given) == 1
        made = isinstance(node.func, ast.Attribute) and node.func.attr == "copy"
        return made or (
            len(given) == 1 and is_numpy(called) and any(map(self.scope.is_active, node.args))
        )

    def may_be_list(self, node: ast.expr) -> bool:
        """Return whether an operand may be a list or tuple by what the text says."""
        return _is_display(node) or (isinstance(node, ast.Name) and self._is_container(node))

    def _makes(self, node: ast.expr) -> bool:
        """Return whether an expression makes a new object."""
        if isinstance(node, ast.Call):
            target = self.scope.resolve(node.func)
            user = isinstance(target, Scope) or not (target is UNKNOWN or is_numpy(target))
            return not _shows(node) and not (user and self.scope.is_active(node))
        if isinstance(node, ast.IfExp):
            return self._makes(node.body) and self._makes(node.orelse)
        return isinstance(
            node, (ast.BinOp, ast.UnaryOp, ast.List, ast.Dict, ast.ListComp, ast.DictComp,
                   ast.Constant, ast.Tuple, ast.Compare),
        )  # fmt: skip

    def written(self, name: str) -> bool:
        """Return whether the function writes into elements of the value of a name."""
        return name in self._stored

    def changed(self, name: str) -> bool:
        """Return whether the function changes the value of a name in any way."""
        return name in self._writes

    def is_only_written(self, name: str) -> bool:
        """Return whether the function writes into the value of a name, and never reads it."""
        loads = [
            node for node in ast.walk(self.scope.tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]  # fmt: skip
        return len(loads) == len(self._writes.get(name, []))

    def owns_elements(self, name: str) -> bool:
        """Return whether no other name refers to what a container holds, by what the text says."""
        nodes = [*ast.walk(self.scope.tree)]
        made = [
            node for node in nodes
            if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare))
            or (isinstance(node, ast.Call) and self._makes(node))
        ]  # fmt: skip
        operands = {id(part) for node in made for part in ast.iter_child_nodes(node)}
        reads = [
            node for node in nodes
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        ]  # fmt: skip
        parts = [node for node in nodes if isinstance(node, ast.Subscript) and node.value in reads]
        return (
            self.is_fresh(name) and not any(other == name for _, other, _ in self._links)
            and len(parts) == len(reads)  # the container itself is read nowhere
            and all(id(one) in operands for one in parts if isinstance(one.ctx, ast.Load))
        )  # fmt: skip

    def mark(self, stmt: ast.stmt) -> None:
        """Mark the elements that a statement keeps of an array that is changed later.

        They may be views of it.
        """
        places = self._lines.get(stmt.lineno, [])
        heads = [part for part in ast.iter_child_nodes(stmt) if not isinstance(part, ast.stmt)]
        kept: list[Any] = [getattr(stmt, "value", None)] if isinstance(stmt, _BINDING) else []
        for node in walk_own(heads):
            kept += [node.value] if isinstance(node, ast.NamedExpr) else _kept(node)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kept += node.args if node.func.attr in CHANGING | {"update", "setdefault"} else []
        for part in kept:
            root = part
            while isinstance(root, ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root is not part:
                part.viewed = root.id if any(
                    one.number == place.number or one.may_follow(place, root.id)
                    for one in self._writes.get(root.id, []) for place in places
                ) else ""  # fmt: skip

    def alias_of(self, name: str) -> str:
        """Return another name that may see a write into the value of a name, or ""."""
        sees, before = {name}, 0
        while before != len(sees):
            before = len(sees)
            sees |= {other for _, other, names in self._links if names & sees}
        for place, other, names in self._links:
            if other in (name, self.result) or not names & sees:
                continue
            if any(one.may_follow(place, name) for one in self._writes.get(name, [])):
                return other
        return ""

    def _refers(self, node: Any) -> set[str]:
        """Return the names whose values an expression may share memory with, or hold."""
        if isinstance(node, ast.Name):
            return {node.id}
        if isinstance(node, ast.Attribute):
            return self._refers(node.value) if node.attr in ("T", "mT", "real", "imag") else set()
        if isinstance(node, ast.Subscript):
            parts = [*ast.walk(node.slice)]
            shows = any(type(one) is ast.Slice or getattr(one, "value", 0) is ... for one in parts)
            copies = not shows or self._is_container(node.value)
            return set() if copies else self._refers(node.value)
        if isinstance(node, ast.Call):
            of = node.func.value if isinstance(node.func, ast.Attribute) else None
            held = [of, *node.args] if _shows(node) else []
            if any(self.scope.resolve(node.func) is one for one in _HOLDING):
                held += [one for one in node.args if _is_display(one) or isinstance(one, ast.Call)]
                held += [word.value for word in node.keywords]
            return set().union(*map(self._refers, held))
        if isinstance(node, ast.BinOp):
            return set().union(
                *[self._refers(one) for one in (node.left, node.right) if _is_display(one)]
            )
        found = set[str]().union(*map(self._refers, _kept(node)))
        for over in getattr(node, "generators", ()):  # elements may be rows
            found |= self._refers(over.iter) if found & bound_names([over.target]) else set()
        return found


def changes_global(function: Any, name: str) -> bool:
    """Return whether the source of a function says that it changes the value of a global."""
    if not isinstance(function, FunctionType) or name not in function.__code__.co_names:
        return False
    try:
        return Aliases(Scope(function, read(function)), "").changed(name)
    except UnsupportedSyntax:  # no source
        return False


def _shows(call: ast.Call) -> bool:
    """Return whether the result of a call may show memory of an argument."""
    name = ast.unparse(call.func).split(".")[-1]
    if name == "einsum":
        return len(call.args) == 2
    return name in _VIEWS or any(word.arg == "copy" for word in call.keywords)


def _kept(node: Any) -> list[ast.expr]:
    values = [getattr(node, field) for field in _KEPT.get(type(node), ())]
    return [part for value in values for part in (value if type(value) is list else [value])]


def _is_display(node: Any) -> bool:
    return isinstance(node, _DISPLAYS)
