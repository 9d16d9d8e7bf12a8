"""A function as steps in A-normal form: one operation each, every intermediate value named."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from actorgraph.source.names import SCOPES, bound_names, split


@dataclass(eq=False)
class Statement:
    """A statement without blocks.

    Its kind is ``"passive"``, ``"copy"``, ``"call"`` (of a function that is traced on nodes),
    ``"rule"`` (of one with its own rule), ``"user"`` (of one that is differentiated too),
    ``"dynamic"`` (of one known at run time), ``"item"``, ``"build"`` (a list, tuple or dict),
    ``"store"``, ``"append"`` or ``"pop"``.  It binds or writes into `target`; operands are names
    and literals; `origin` is the user's statement; `slot` names the value that a store overwrites,
    or the record of a call; `checked` is the text of a call that is not reversed.
    """

    kind: str
    text: str
    target: str = ""
    args: list[ast.expr] = field(default_factory=list)
    kwargs: dict[str, ast.expr] = field(default_factory=dict)
    function: Any = None
    index: str = ""
    origin: Any = None
    slot: str = ""
    checked: str = ""
    _binds: set[str] | None = None

    def binds(self) -> set[str]:
        """Return the names that it binds."""
        if self._binds is None:
            own = {self.slot} if self.kind in ("user", "dynamic") else set()
            self._binds = bound_names(parse(self.text)) | own
        return self._binds


@dataclass(eq=False)
class Compound:
    """A statement with blocks; `header` is the text before the colon."""

    header: str
    body: list[Any]
    orelse: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Branch(Compound):
    """An ``if``, whose test is a name or a passive expression."""

    name: str = ""

    @property
    def test(self) -> str:
        """The text of the test."""
        return self.header.removeprefix("if ")


@dataclass(eq=False)
class LoopStatement(Compound):
    """A ``for`` or ``while``.

    One with `over` runs over that range, which is reversed; others count their trips in `count`.
    """

    target: str = ""
    over: str = ""
    count: str = ""


@dataclass(eq=False)
class Context(Compound):
    """A ``with`` of passive contexts; if it `repeats`, the backward sweep enters them too."""

    repeats: bool = False


@dataclass(eq=False)
class Insertion:
    """``with insert_grad_of(x) as dx``: a body that the backward sweep runs."""

    x: str
    name: str
    body: list[ast.stmt]
    origin: Any


@dataclass(eq=False)
class Jump:
    """A ``break`` or ``continue``, last in its block."""

    text: str


def parse(text: str, like: ast.AST | None = None) -> list[ast.stmt]:
    """Return the statements of a text, with the location of a node if one is given."""
    tree = ast.parse(text)
    if like is not None:
        for node in ast.walk(tree):
            ast.copy_location(node, like)
    return tree.body


def parse_one(text: str, like: ast.AST) -> Any:
    """Return the only statement of a text, with the location of a node."""
    return parse(text, like)[0]


class Substituted(ast.NodeTransformer):
    """Replaces names by expressions."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names
        self._around: dict[int, dict[str, ast.expr]] = {}  # for parts of the scope around

    def visit(self, node: ast.AST) -> Any:
        """Return a node with names replaced, but for the own ones of functions inside."""
        before, self.names = self.names, self._around.pop(id(node), self.names)
        if type(node) in SCOPES:
            outside, _, own = split(node)
            self._around |= {id(part): self.names for part in outside}
            self.names = {name: one for name, one in self.names.items() if name not in own}
        made = super().visit(node)
        self.names = before
        return made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the replacement of a name."""
        return self.names.get(node.id, node)


def bound(block: list[Any]) -> set[str]:
    """Return the names that steps bind, in all of their blocks."""
    names: set[str] = set()
    for step in block:
        if isinstance(step, Statement):
            names |= step.binds()
        elif isinstance(step, Compound):
            names |= bound(step.body + step.orelse) | bound_names(parse(f"{step.header}: pass"))
    return names


def load(name: str) -> ast.expr:
    """Return a name as an expression."""
    return ast.Name(name, ast.Load())


def index_value(text: str) -> str:
    """Return the text of an index as an expression, with slices as calls of `slice`."""
    node = ast.parse(f"_[{text}]", mode="eval").body.slice  # type: ignore[attr-defined]

    class Slices(ast.NodeTransformer):
        def visit_Slice(self, node: ast.Slice) -> ast.expr:
            parts = [part or ast.Constant(None) for part in (node.lower, node.upper, node.step)]
            return ast.Call(ast.Name("slice", ast.Load()), parts, [])

    return ast.unparse(Slices().visit(node))
