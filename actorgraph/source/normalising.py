"""Turns statements on active values into steps; passive statements stay whole."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, cast

import numpy as np

from actorgraph.source.aliases import CHANGING
from actorgraph.source.expressions import Expressions, index_text
from actorgraph.source.jumps import Jumps, UnsupportedPattern
from actorgraph.source.names import bound_names, loads, split, walk_own
from actorgraph.source.scope import Scope
from actorgraph.source.steps import (
    Branch,
    Context,
    Insertion,
    Jump,
    LoopStatement,
    Statement,
    Substituted,
    index_value,
    load,
    parse,
)
from actorgraph.source.support import (
    overwritten,
    refuse_array,
    refuse_dict,
    refuse_element,
    refuse_whole,
)

_CONTEXT = (np.errstate,)


class Normaliser(Expressions):
    """Makes the steps of a function's body, one operation each."""

    def __init__(self, scope: Scope) -> None:
        self.jumps = Jumps(scope)
        super().__init__(scope, self.jumps.result)

    def steps(self) -> list[Any]:
        """Return the steps of the body."""
        try:
            body = self.jumps.rewritten()
        except UnsupportedPattern as error:
            raise self.refused(error.pattern) from None
        self._add_names(body)  # `jumps` adds flags and a result
        first = [f"{name} = None" for name in self.scope.late()]
        _, _, own = split(self.scope.tree)
        for called in self.scope.called():
            first.append(ast.unparse(called.tree))
            for name in sorted({*called.captured} & own):
                mine, other = self.scope.tree.name, called.tree.name
                raise self.refused(
                    self.scope.tree, f"{mine} binds {name}, and calls {other}, which reads the "
                    f"{name} of the function around; give one of the two another name",
                )  # fmt: skip
        return [*[Statement("passive", text) for text in first], *self.block(body)]

    def _add_names(self, body: list[ast.stmt]) -> None:
        """Add the names of new statements to the scope, and find which are active."""
        for _ in range(3):
            for node in walk_own(body):
                self.scope._spread_through(node)
        self.scope.locals |= bound_names(body)

    def block(self, body: list[ast.stmt]) -> list[Any]:
        """Return the steps of a block."""
        before, origin, self.out = self.out, self.origin, []
        for stmt in body:
            self.origin = stmt
            self.statement(stmt)
        self.out, self.origin, steps = before, origin, self.out
        return steps

    def is_passive(self, node: ast.stmt) -> bool:
        """Return whether a statement neither binds nor writes anything active."""
        scope = self.scope
        loop = isinstance(node, (ast.For, ast.While))
        for part in walk_own([node]):
            if isinstance(part, (ast.Break, ast.Continue)) and not loop:
                return False
            written = not isinstance(getattr(part, "ctx", None), (ast.Load, type(None)))
            if isinstance(part, ast.Name) and written and part.id in scope.active:
                return False
            if isinstance(part, (ast.Subscript, ast.Attribute)):
                changes = written or getattr(part, "attr", "") in CHANGING
                if changes and scope.is_active(part.value):
                    return False
            if isinstance(part, ast.withitem) and scope.insertion(part) is not None:
                return False
        return True

    def statement(self, node: ast.stmt) -> None:
        """Add the steps of a statement."""
        name = type(node).__name__.lower()
        if isinstance(node, ast.FunctionDef) and node.name in self.scope.nested:
            if self._escapes(node.name):
                self.refuse_captures(node)
            self.emit("passive", ast.unparse(node))
            return
        if isinstance(node, (ast.Break, ast.Continue)):
            self.out.append(Jump(ast.unparse(node)))
            return
        self.aliases.mark(node)
        self.walrus(node)
        self.refuse_captures(node)
        passive = self.is_passive(node)
        node = _Guarded(self, passive).visit(node)
        if passive:
            if not isinstance(node, ast.Pass):
                self.emit("passive", ast.unparse(node))
            return
        method = getattr(self, f"_on_{name}", None)
        if method is None:
            raise self.refused(node)
        method(node)

    def refuse_captures(self, node: ast.AST) -> None:
        """Raise if a class, or a function used as a value, captures an active name."""
        for inner in walk_own([node]):
            if isinstance(inner, (ast.Lambda, ast.FunctionDef, ast.ClassDef)):
                for name in sorted(loads(inner) & self.scope.active):
                    if isinstance(inner, ast.ClassDef):
                        raise self.refused(inner)
                    raise self.refused(
                        inner, f"a function that is passed on holds the active {name}; give it "
                        "as an argument, or call the function by its own name",
                    )  # fmt: skip

    def _escapes(self, name: str) -> bool:
        """Return whether a nested function is used as a value."""
        called = {
            id(node.func)
            for node in ast.walk(self.scope.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        return any(
            isinstance(node, ast.Name) and node.id == name and id(node) not in called
            for node in ast.walk(self.scope.tree)
        )

    def walrus(self, node: ast.stmt) -> None:
        """Bind the active names of ``:=`` before their statement."""
        heads = [getattr(node, name, None) for name in ("value", "test", "iter", "subject")]
        for head in heads:
            if not isinstance(head, ast.AST):
                continue
            own, inner = walk_own([head]), list[ast.AST]()
            for i, named in enumerate(own):
                if not isinstance(named, ast.NamedExpr) or not self.scope.is_active(named.value):
                    continue
                if named in inner:  # bound with the value of another one
                    continue
                earlier = [one for one in own[:i] if named not in ast.walk(one)]
                earlier += ast.walk(node.target) if isinstance(node, ast.AugAssign) else ()
                seen = {getattr(one, "id", getattr(one, "attr", "")) for one in earlier}
                if named not in walk_own([head], sure=True) or seen & {named.target.id, *CHANGING}:
                    text = "the name bound by := may not be computed here; bind it before"
                    raise self.refused(named, text)
                inner += ast.walk(named.value)
                self.assign(named.target.id, deepcopy(named.value))
                named.value = named.target
            unnamed = _Unnamed().visit(head)
            for field, value in ast.iter_fields(node):
                if value is head:
                    setattr(node, field, unnamed)

    # -- statements ---------------------------------------------------------------------------

    def _on_assign(self, node: ast.Assign) -> None:
        value = node.value
        if len(node.targets) > 1:
            value = self.atom(value)
        for target in node.targets:
            self.bind(target, value)

    def _on_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, node.value)

    def _on_augassign(self, node: ast.AugAssign) -> None:
        target = cast(Any, deepcopy(node.target))
        target.ctx = ast.Load()
        if isinstance(target, ast.Subscript):
            target.slice = node.target.slice = self.passive(node.target.slice)  # type: ignore[union-attr]
        value = ast.copy_location(ast.BinOp(target, node.op, node.value), node)
        aliases, text = self.aliases, ast.unparse(target)
        if isinstance(target, ast.Name) and (not aliases.is_fresh(text) or aliases.alias_of(text)):
            self.emit("passive", f"{self.scope.support(refuse_array)}({text}, {text!r})")
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            of, index = target.value.id, index_value(index_text(target.slice))
            if not aliases.owns_elements(of):
                helper = self.scope.support(refuse_element)
                self.emit("passive", f"{helper}({of}, {index}, {text!r})")
        self.bind(node.target, value)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        """Add the steps of an assignment to any target."""
        scope = self.scope
        if isinstance(target, ast.Name):
            if target.id not in scope.active and not scope.is_active(value):
                self.emit("passive", f"{target.id} = {ast.unparse(value)}")
            else:
                self.assign(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            base, index = self.atom(target.value), index_text(self.passive(target.slice))
            self._store(base, index, value)
        elif isinstance(target, ast.Attribute):
            text = f"the attribute {ast.unparse(target)} has no gradient; use a dict"
            raise self.refused(self.origin, text)
        else:
            raise self.refused(target)

    def _store(self, base: ast.expr, index: str, value: ast.expr) -> None:
        name = ast.unparse(base)
        self.refuse_shared(base)
        itself = isinstance(value, ast.Name) and value.id == name  # has two cotangents meanwhile
        atom = self.temporary(value) if itself else self.atom(value)
        if self.aliases.may_be_whole(name) and not self.scope.is_generated:
            self.emit("passive", f"{self.scope.support(refuse_whole)}({name}, {name!r})")
        helper = self.scope.support(overwritten)
        old = ast.unparse(self.fixed("old", f"{helper}({name}, {index_value(index)})"))
        self.emit("store", f"{name}[{index}] = {ast.unparse(atom)}", target=name,
                  args=[base, atom], index=index, slot=old)  # fmt: skip

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr) -> None:
        parts = target.elts
        given = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        starred = any(isinstance(one, ast.Starred) for one in (*parts, *given))
        if len(given) == len(parts) and not starred:
            atoms = [self.temporary(one) for one in given]
            for part, atom in zip(parts, atoms, strict=True):
                self.bind(part, atom)
            return
        whole = ast.unparse(self.indexed(value))
        for i, part in enumerate(parts):
            later = len(parts) - i - 1
            if isinstance(part, ast.Starred):
                end = f"-{later}" if later else ""
                made = ast.parse(f"{whole}[{i}:{end}]", mode="eval").body
                self.bind(part.value, made)
            else:
                before = any(isinstance(one, ast.Starred) for one in parts[:i])
                place = f"-{later + 1}" if before else str(i)
                self.bind(part, ast.parse(f"{whole}[{place}]", mode="eval").body)

    def temporary(self, value: ast.expr) -> ast.expr:
        """Return an atom that later assignments do not change."""
        if isinstance(value, ast.Constant):
            return value
        if not self.scope.is_active(value):
            return self.fixed("value", ast.unparse(value))
        name = self.scope.fresh("value")
        self.assign(name, value)
        return load(name)

    def _on_expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name, method = ast.unparse(call.func.value), call.func.attr
            if method == "append":
                self.refuse_shared(call.func.value)
                element = self.atom(call.args[0])
                if isinstance(element, ast.Name) and self.aliases.written(element.id):
                    raise self.refused(node, f"{element.id} is written to later; append a copy")
                self.emit("append", f"{name}.append({ast.unparse(element)})", target=name,
                          args=[call.func.value, element])  # fmt: skip
                return
            if method == "pop" and not call.args:
                self.assign(self.scope.fresh("popped"), call)
                return
            if method == "extend":
                item = self.scope.fresh("item")
                loop = f"for {item} in {ast.unparse(call.args[0])}: {name}.append({item})"
                self.rewritten(loop, node)
                return
            raise self.refused(node, f"{method} of an active list; use append and pop")
        raise self.refused(node, "a list changes inside an expression; write a statement for it")

    def rewritten(self, text: str, node: ast.AST) -> None:
        """Add the steps of statements that replace another one."""
        body = parse(text, node)
        self._add_names(body)
        for stmt in body:
            self.statement(stmt)

    def _on_if(self, node: ast.If) -> None:
        name = "" if isinstance(node.test, ast.Name) else self.scope.fresh("test")
        body, orelse = self.block(node.body), self.block(node.orelse)
        self.out.append(Branch(f"if {ast.unparse(node.test)}", body, orelse, name))

    def _on_while(self, node: ast.While) -> None:
        body, count = self.block(node.body), self.scope.fresh("count")
        self.out.append(LoopStatement(f"while {ast.unparse(node.test)}", body, count=count))

    def _on_for(self, node: ast.For) -> None:
        scope, over = self.scope, node.iter
        call = scope.call_of(over)
        target = ast.unparse(node.target)
        name, given = call or ("", [])
        active = scope.is_active(over) and not scope.by_keys(node.target, over, node)
        if name in ("zip", "enumerate", "reversed", "items", "values"):
            active = any(map(scope.is_active, given))
        if name == "range" or not active:
            if bound_names([node.target]) & scope.active:  # the body binds an active value to it
                item = scope.fresh("item")
                scope.locals.add(item)
                begin = parse(f"{target} = {item}", node)
                node = ast.For(ast.Name(item, ast.Store()), over, [*begin, *node.body], [])
            self._plain_for(node, call)
            return
        for one in walk_own(node.body):
            if isinstance(one, ast.Attribute) and one.attr in CHANGING:
                what, changed = "a list", one.value
            elif isinstance(one, ast.AugAssign):
                what, changed = "an array", one.target
            else:
                continue
            if ast.unparse(changed) in loads(over):
                text = f"{what} changes while a loop goes over it; copy it before"
                raise self.refused(one, text)
        rebound = loads(over) & bound_names(node.body)
        again = {name: self.temporary(load(name)) for name in sorted(rebound)}
        elements = Substituted(again).visit(deepcopy(over))
        binding, index, places = self._elements(node.target, elements)
        scope.locals |= {index, *bound_names(ast.parse(f"{target} = 0").body)}
        (loop,) = parse(f"for {index} in {places}: pass", node)
        assert isinstance(loop, ast.For)
        loop.body = [*parse("\n".join(binding), node), *node.body]
        self._plain_for(loop, scope.call_of(loop.iter))

    def _elements(self, target: ast.expr, over: ast.expr) -> tuple[list[str], str, str]:
        """Return statements that bind the target of a loop, its index, and what that goes over."""
        name, given = self.scope.call_of(over) or ("", [over])
        text = ast.unparse(target)
        if name == "enumerate" and isinstance(target, ast.Tuple):
            inner, index, places = self._elements(target.elts[1], given[0])
            number = " + ".join([index, *map(ast.unparse, given[1:])])
            return [f"{ast.unparse(target.elts[0])} = {number}", *inner], index, places
        index = self.scope.fresh("i")
        if name in ("items", "values"):
            atom = ast.unparse(self.atom(given[0]))
            pair = f"{index}, {atom}[{index}]" if name == "items" else f"{atom}[{index}]"
            return [f"{text} = {pair}"], index, f"list({atom})"
        if name == "zip":
            atoms = [ast.unparse(self.sequence(one)) for one in given]
            lengths = ", ".join(f"len({atom})" for atom in atoms)
            length = f"min({lengths})" if len(atoms) > 1 else lengths
            items = ", ".join(f"{atom}[{index}]" for atom in atoms)
            comma = "," if len(atoms) == 1 else ""
            return [f"{text} = {items}{comma}"], index, f"range({length})"
        turned = name == "reversed"
        atom = ast.unparse(self.sequence(given[0] if turned else over))
        places = f"range(len({atom}) - 1, -1, -1)" if turned else f"range(len({atom}))"
        return [f"{text} = {atom}[{index}]"], index, places

    def sequence(self, node: ast.expr) -> ast.expr:
        """Return an atom to index; a passive value becomes a list."""
        if self.scope.is_active(node):
            return self.indexed(node)
        if isinstance(node, ast.Name):
            return node
        return self.fixed("sequence", f"list({ast.unparse(node)})")

    def indexed(self, node: ast.expr) -> ast.expr:
        """Return an atom of an active value whose elements are taken by their places."""
        atom = self.atom(node)
        if self.aliases.may_be_dict(node) and not self.scope.is_generated:
            name = ast.unparse(atom)
            self.emit("passive", f"{self.scope.support(refuse_dict)}({name}, {name!r})")
        return atom

    def _plain_for(self, node: ast.For, call: Any) -> None:
        target, over = ast.unparse(node.target), ast.unparse(node.iter)
        body = self.block(node.body)
        simple = call and call[0] == "range" and isinstance(node.target, ast.Name)
        if simple:
            inside = [one for stmt in node.body for one in ast.walk(stmt)]
            bound_inside = bound_names(node.body)
            leaves = any(isinstance(one, ast.Break) for one in inside) or target in bound_inside
            simple = not leaves and not (loads(node.iter) & bound_inside)
        step = LoopStatement(f"for {target} in {over}", body, target=target)
        if simple:
            step.over = over
        else:
            step.count = self.scope.fresh("count")
        self.out.append(step)

    def _on_with(self, node: ast.With) -> None:
        x = self.scope.insertion(node.items[0])
        if x is not None:
            name = node.items[0].optional_vars
            if not isinstance(x, ast.Name) or not isinstance(name, ast.Name):
                raise self.refused(node, "write with insert_grad_of(name) as dname")
            self.out.append(Insertion(x.id, name.id, node.body, self.origin))
            return
        for item in node.items:
            if item.optional_vars is not None and self.scope.is_active(item.context_expr):
                raise self.refused(node, "a context of active values has no derivative")
        repeats = all(
            isinstance(item.context_expr, ast.Call)
            and self.scope.resolve(item.context_expr.func) in _CONTEXT
            for item in node.items
        )
        header = "with " + ", ".join(map(ast.unparse, node.items))
        self.out.append(Context(header, self.block(node.body), repeats=repeats))


class _Guarded(ast.NodeTransformer):
    """Guards the calls in what is passive: in a whole statement, or in parts of its expressions."""

    def __init__(self, normaliser: Normaliser, passive: bool) -> None:
        self.normaliser, self.passive, self.inside = normaliser, passive, False

    def visit(self, node: ast.AST) -> Any:
        """Return a node with its calls guarded."""
        outer, own = self.passive, (ast.FunctionDef, ast.ClassDef, ast.Lambda)
        if isinstance(node, own) or (isinstance(node, ast.stmt) and self.inside and not outer):
            return node
        self.inside = True
        if isinstance(node, ast.expr):
            self.passive = outer or not self.normaliser.scope.is_active(node)
        called = isinstance(node, ast.Call) and self.passive and deepcopy(node)
        made = self.generic_visit(node)
        self.passive = outer
        return self.normaliser.guarded(called, made) if called else made


class _Unnamed(ast.NodeTransformer):
    """Replaces ``(x := x)`` by ``x``."""

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        same = isinstance(node.value, ast.Name) and node.value.id == node.target.id
        if same:
            return ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        return node
