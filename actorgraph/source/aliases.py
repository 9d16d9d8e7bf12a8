"""Which names may share memory: a write has a gradient only if no other name sees it."""

from __future__ import annotations

import ast
from typing import Any

from actorgraph.source.scope import UNKNOWN, Scope, bound_names, is_numpy, walk_own

_VIEWS = frozenset(
    "reshape ravel asarray transpose squeeze swapaxes view diagonal broadcast_to".split()
)


class Aliases:
    """The memory that names of a function may share, by its assignments."""

    def __init__(self, scope: Scope, result: str) -> None:
        self.scope, self.result = scope, result

    def _values_of(self, name: str) -> list[ast.expr | None]:
        values: list[ast.expr | None] = []
        for node in walk_own(self.scope.tree.body):
            if isinstance(node, ast.Assign):
                bare = [one for one in node.targets if name in bound_names([one])]
                values += [node.value if isinstance(one, ast.Name) else None for one in bare]
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and name in bound_names([node]):
                values.append(node.value)
            elif isinstance(node, (ast.For, ast.withitem)):
                target = node.target if isinstance(node, ast.For) else node.optional_vars
                values += [None] if target is not None and name in bound_names([target]) else []
        return values

    def is_fresh(self, name: str) -> bool:
        """Return whether a name is bound to new objects only."""
        if name.startswith(("items_", "result")):
            return True
        if name in self.scope.args:
            return False
        values = self._values_of(name)
        return bool(values) and all(value is not None and self._makes(value) for value in values)

    def _makes(self, node: ast.expr) -> bool:
        """Return whether an expression makes a new object."""
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            target = self.scope.resolve(node.func)
            user = isinstance(target, Scope) or not (target is UNKNOWN or is_numpy(target))
            return name not in _VIEWS and not (user and self.scope.is_active(node))
        if isinstance(node, ast.IfExp):
            return self._makes(node.body) and self._makes(node.orelse)
        return isinstance(
            node, (ast.BinOp, ast.UnaryOp, ast.List, ast.Dict, ast.ListComp, ast.DictComp,
                   ast.Constant, ast.Tuple, ast.Compare),
        )  # fmt: skip

    def written(self, name: str) -> bool:
        """Return whether the function writes into the value of a name."""
        return any(
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == name
            for node in walk_own(self.scope.tree.body)
        )  # fmt: skip

    def alias_of(self, name: str) -> str:
        """Return another name that may be a view of a name's memory, or ""."""
        for node in walk_own(self.scope.tree.body):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value: Any = node.value
                while isinstance(value, ast.Attribute) and value.attr == "T":
                    value = value.value
                if isinstance(value, ast.Subscript) and any(
                    isinstance(part, ast.Slice) for part in ast.walk(value.slice)
                ):
                    value = value.value
                other = node.targets[0].id
                if ast.unparse(value) == name and other not in (name, self.result):
                    return other
        return ""
