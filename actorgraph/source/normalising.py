"""Statements of active values as steps; passive statements stay whole."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import Any, cast

import numpy as np

from actorgraph.source.fence import reason
from actorgraph.source.jumps import Jumps, UnsupportedPattern
from actorgraph.source.reading import refuse
from actorgraph.source.rules import OPERATORS, Derived, Kernel, is_literal, trace
from actorgraph.source.scope import UNKNOWN, Scope, bound_names, is_numpy, walk_own
from actorgraph.source.steps import Branch, Context, Insertion, Jump, Loop, Step, index_value, loads
from actorgraph.source.support import overwritten, refuse_array, refuse_view
from actorgraph.source.usual import ADJOINTS, METHODS, PURE, SOURCES, TANGENTS

__all__ = ["Normaliser"]

_CONTEXT = (np.errstate,)
_SAME = frozenset({"copy", "__array__"})


class Normaliser:
    """Makes the steps of a function's body."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.origin: Any = scope.tree
        self.out: list[Any] = []
        self.jumps = Jumps(scope)

    def steps(self) -> list[Any]:
        """Return the steps of the body."""
        try:
            body = self.jumps.rewritten()
        except UnsupportedPattern as error:
            raise self.refused(error.pattern) from None
        for _ in range(3):  # flags and results of jumps are names too
            for node in walk_own(body):
                self.scope._spread_through(node)
        self.scope.locals |= bound_names(body)
        return self.block(body)

    def refused(self, node: Any, text: str = "") -> Exception:
        """Return the error about a construct."""
        if not hasattr(node, "lineno"):
            node = self.origin
        return refuse(node, text or reason(node), self.scope.function)

    def block(self, body: list[ast.stmt]) -> list[Any]:
        """Return the steps of a block."""
        before, self.out = self.out, []
        for one in body:
            self.origin = one
            self.statement(one)
        self.out, made = before, self.out
        return made

    def emit(self, kind: str, text: str, **more: Any) -> None:
        """Add a step."""
        self.out.append(Step(kind, text, origin=self.origin, **more))

    def is_passive(self, node: ast.stmt) -> bool:
        """Return whether a statement neither binds nor writes anything active."""
        scope = self.scope
        for one in walk_own([node]):
            if isinstance(one, (ast.Break, ast.Continue)) and not isinstance(
                node, (ast.For, ast.While)
            ):
                return False
            if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
                if one.id in scope.active:
                    return False
            if isinstance(one, (ast.Subscript, ast.Attribute)) and not isinstance(one.ctx, ast.Load):
                if scope.is_active(one.value):
                    return False
            if isinstance(one, ast.withitem) and scope.insertion(one) is not None:
                return False
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
                if isinstance(one.func.value, ast.Name) and one.func.value.id in scope.active:
                    if one.func.attr in ("append", "extend", "insert", "pop"):
                        return False
        return True

    def statement(self, node: ast.stmt) -> None:
        """Add the steps of a statement."""
        name = type(node).__name__.lower()
        if isinstance(node, ast.FunctionDef):
            if node.name in self.scope.nested:
                if self._escapes(node.name):
                    self.refuse_captures(node)
                    self.emit("passive", ast.unparse(node))
                return
        if isinstance(node, (ast.Break, ast.Continue)):
            self.out.append(Jump(ast.unparse(node), node))
            return
        self.walrus(node)
        self.refuse_captures(node)
        if self.is_passive(node):
            if not isinstance(node, ast.Pass):
                self.emit("passive", ast.unparse(node))
            return
        method = getattr(self, f"_on_{name}", None)
        if method is None:
            raise self.refused(node)
        method(node)

    def refuse_captures(self, node: ast.stmt) -> None:
        """Raise where a function that is a value holds what is active."""
        for one in ast.walk(node):
            if isinstance(one, (ast.Lambda, ast.FunctionDef)):
                own = {arg.arg for arg in ast.walk(one.args) if isinstance(arg, ast.arg)}
                for name in sorted((loads(one.body) - own) & self.scope.active):
                    raise self.refused(
                        one, f"a function that is passed on holds the active {name}; give it "
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
        """Bind what ``:=`` binds before its statement."""
        if isinstance(node, ast.While):
            return
        heads = [getattr(node, name, None) for name in ("value", "test", "iter", "subject")]
        for head in heads:
            if not isinstance(head, ast.AST):
                continue
            for one in walk_own([head]):
                if isinstance(one, ast.NamedExpr) and self.scope.is_active(one.value):
                    value = deepcopy(one.value)
                    self.assign(one.target.id, value)
                    one.value = one.target  # type: ignore[assignment]
            made = _Unnamed(self.scope).visit(head)
            for field, value in ast.iter_fields(node):
                if value is head:
                    setattr(node, field, made)

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
        if isinstance(target, ast.Name) and not self.is_fresh(target.id):
            helper = self.scope.help("refuse_array", refuse_array)
            self.emit("passive", f"{helper}({target.id}, {target.id!r})")
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
            self._store(base, index, f"{ast.unparse(base)}[{index}]", value)
        elif isinstance(target, ast.Attribute):
            base = self.atom(target.value)
            self._store(base, f".{target.attr}", f"{ast.unparse(base)}.{target.attr}", value)
        else:
            raise self.refused(target)

    def _store(self, base: ast.expr, index: str, place: str, value: ast.expr) -> None:
        name = ast.unparse(base)
        if index.startswith("."):
            raise self.refused(self.origin, f"the attribute {place} has no gradient; use a dict")
        if not self.is_fresh(name):
            raise self.refused(
                self.origin, f"a write into {name}, which is an argument or may show memory of "
                f"another name, is not differentiated; copy it first: {name} = {name}.copy()",
            )  # fmt: skip
        shown = self.shown_by(name)
        if shown:
            raise self.refused(
                self.origin, f"a write into {name} may change {shown}, which shows its memory; "
                f"copy it: {shown} = {name}.copy()",
            )  # fmt: skip
        made = self.atom(value)
        old, helper = self.scope.fresh("old"), self.scope.help("overwritten", overwritten)
        self.scope.locals.add(old)
        self.emit("passive", f"{old} = {helper}({name}, {index_value(index)})")
        self.emit("store", f"{place} = {ast.unparse(made)}", target=name,
                  args=[base, made], index=index, slot=old)  # fmt: skip

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr) -> None:
        parts = target.elts
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(parts):
            if not any(isinstance(one, ast.Starred) for one in (*parts, *value.elts)):
                atoms = [self.temporary(one) for one in value.elts]
                for part, atom in zip(parts, atoms, strict=True):
                    self.bind(part, atom)
                return
        atom = ast.unparse(self.atom(value))
        for i, part in enumerate(parts):
            later = len(parts) - i - 1
            if isinstance(part, ast.Starred):
                end = f"-{later}" if later else ""
                made = ast.parse(f"{atom}[{i}:{end}]", mode="eval").body
                self.bind(part.value, made)
            else:
                before = any(isinstance(one, ast.Starred) for one in parts[:i])
                place = f"-{later + 1}" if before else str(i)
                self.bind(part, ast.parse(f"{atom}[{place}]", mode="eval").body)

    def temporary(self, value: ast.expr) -> ast.expr:
        """Return an atom that no later assignment changes."""
        if isinstance(value, ast.Constant):
            return value
        name = self.scope.fresh("value")
        if self.scope.is_active(value):
            self.assign(name, value)
        else:
            self.emit("passive", f"{name} = {ast.unparse(value)}")
            self.scope.locals.add(name)
        return ast.Name(name, ast.Load())

    def _on_expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            name, method = ast.unparse(call.func.value), call.func.attr
            if method == "append":
                made = self.atom(call.args[0])
                if isinstance(made, ast.Name) and self.written(made.id):
                    raise self.refused(node, f"{made.id} is written to later; append a copy")
                self.emit("append", f"{name}.append({ast.unparse(made)})", target=name,
                          args=[call.func.value, made])  # fmt: skip
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
        self.emit("passive", ast.unparse(node))

    def rewritten(self, text: str, node: ast.AST) -> None:
        """Add the steps of statements that stand for another one."""
        body = ast.parse(text).body
        for one in ast.walk(ast.Module(body, [])):
            if hasattr(one, "lineno"):
                ast.copy_location(one, node)
        for _ in range(3):
            for one in walk_own(body):
                self.scope._spread_through(one)
        self.scope.locals |= bound_names(body)
        for stmt in body:
            self.statement(stmt)

    def _on_if(self, node: ast.If) -> None:
        origin = self.origin
        test, name = ast.unparse(node.test), ""
        if not isinstance(node.test, ast.Name):
            name = self.scope.fresh("test")
        body, orelse = self.block(node.body), self.block(node.orelse)
        self.origin = origin
        self.out.append(Branch(test, body, orelse, origin, name))

    def _on_while(self, node: ast.While) -> None:
        origin = self.origin
        walruses = [one for one in ast.walk(node.test) if isinstance(one, ast.NamedExpr)]
        if any(self.scope.is_active(one.value) for one in walruses):
            leave = ast.parse(f"if not ({ast.unparse(node.test)}): break").body
            for one in ast.walk(leave[0]):
                ast.copy_location(one, node)
            node.body = self.jumps.block([*leave, *node.body], True)
            node.test = ast.Constant(True)
        body = self.block(node.body)
        self.origin = origin
        count = self.scope.fresh("count")
        self.out.append(Loop(f"while {ast.unparse(node.test)}", body, origin, count=count))

    def _on_for(self, node: ast.For) -> None:
        scope, over = self.scope, node.iter
        call = scope.call_of(over)
        target = ast.unparse(node.target)
        if call and call[0] == "range" or not self._is_over_active(over, node):
            self._plain_for(node, call)
            return
        binding, prefix = self._elements(node.target, over)
        index = prefix.split(" in ")[0].removeprefix("for ")
        scope.locals |= {index, *bound_names(ast.parse(f"{target} = 0").body)}
        first = ast.parse("\n".join(binding)).body
        for one in ast.walk(ast.Module(first, [])):
            if hasattr(one, "lineno"):
                ast.copy_location(one, node)
        made = ast.parse(f"{prefix}: pass").body[0]
        assert isinstance(made, ast.For)
        made.body = [*first, *node.body]
        ast.copy_location(made, node)
        self._plain_for(made, scope.call_of(made.iter))

    def _is_over_active(self, over: ast.expr, node: ast.For) -> bool:
        call = self.scope.call_of(over)
        if call and call[0] in ("zip", "enumerate", "reversed", "items", "values"):
            return any(map(self.scope.is_active, call[1]))
        return self.scope.is_active(over) and not self.scope.by_keys(node.target, over, node)

    def _elements(self, target: ast.expr, over: ast.expr) -> tuple[list[str], str]:
        """Return what binds the target of a loop over active values, and the loop's header."""
        call = self.scope.call_of(over)
        text = ast.unparse(target)
        index = self.scope.fresh("i")
        if call and call[0] in ("items", "values"):
            atom = ast.unparse(self.atom(call[1][0]))
            pair = f"{index}, {atom}[{index}]" if call[0] == "items" else f"{atom}[{index}]"
            return [f"{text} = {pair}"], f"for {index} in list({atom})"
        if call and call[0] == "enumerate" and isinstance(target, ast.Tuple):
            start = ast.unparse(call[1][1]) if len(call[1]) > 1 else ""
            number = f"{index} + {start}" if start else index
            inner, header = self._elements(target.elts[1], call[1][0])
            inner_index = header.split(" in ")[0].removeprefix("for ")
            first = f"{ast.unparse(target.elts[0])} = {number.replace(index, inner_index)}"
            return [first, *inner], header
        if call and call[0] == "zip":
            atoms = [ast.unparse(self.sequence(one)) for one in call[1]]
            lengths = ", ".join(f"len({atom})" for atom in atoms)
            length = f"min({lengths})" if len(atoms) > 1 else lengths
            items = ", ".join(f"{atom}[{index}]" for atom in atoms)
            return [f"{text} = {items}{',' if len(atoms) == 1 else ''}"], (
                f"for {index} in range({length})"
            )
        step = "range(len({0}))"
        if call and call[0] == "reversed":
            over, step = call[1][0], "range(len({0}) - 1, -1, -1)"
        atom = ast.unparse(self.sequence(over))
        return [f"{text} = {atom}[{index}]"], f"for {index} in {step.format(atom)}"

    def sequence(self, node: ast.expr) -> ast.expr:
        """Return an atom that is indexed; what is passive becomes a list."""
        if self.scope.is_active(node):
            return self.atom(node)
        if isinstance(node, ast.Name):
            return node
        name = self.scope.fresh("sequence")
        self.scope.locals.add(name)
        self.emit("passive", f"{name} = list({ast.unparse(node)})")
        return ast.Name(name, ast.Load())

    def _plain_for(self, node: ast.For, call: Any) -> None:
        origin = self.origin
        target = ast.unparse(node.target)
        over = ast.unparse(node.iter)
        body = self.block(node.body)
        self.origin = origin
        simple = call and call[0] == "range" and isinstance(node.target, ast.Name)
        if simple:
            inside = [one for stmt in node.body for one in ast.walk(stmt)]
            bound_inside = bound_names(node.body)
            leaves = any(isinstance(one, ast.Break) for one in inside) or target in bound_inside
            simple = not leaves and not (loads(node.iter) & bound_inside)
        made = Loop(f"for {target} in {over}", body, origin, target=target)
        if simple:
            made.over = over
        else:
            made.count = self.scope.fresh("count")
        self.out.append(made)

    def _on_with(self, node: ast.With) -> None:
        origin = self.origin
        x = self.scope.insertion(node.items[0])
        if x is not None:
            name = node.items[0].optional_vars
            if not isinstance(x, ast.Name) or not isinstance(name, ast.Name):
                raise self.refused(node, "write with insert_grad_of(name) as dname")
            self.out.append(Insertion(x.id, name.id, node.body, origin))
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
        body = self.block(node.body)
        self.origin = origin
        self.out.append(Context(header, body, origin, repeats))

    # -- expressions --------------------------------------------------------------------------

    def atom(self, node: ast.expr) -> ast.expr:
        """Return a name or literal of that value, made by steps before."""
        if isinstance(node, (ast.Name, ast.Constant)) or is_literal(node):
            return node
        if not self.scope.is_active(node):
            return self.passive(node)
        name = self.scope.fresh(self._stem(node))
        self.assign(name, node)
        return ast.Name(name, ast.Load())

    def _stem(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call):
            stem = ast.unparse(node.func).split(".")[-1]
            return stem if stem.isidentifier() else "value"
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return getattr(OPERATORS.get(type(node.op)), "__name__", "value")
        kind = type(node).__name__.lower()
        return {"subscript": "item", "listcomp": "items", "dictcomp": "items"}.get(kind, kind)

    def passive(self, node: ast.expr) -> ast.expr:
        """Return a passive expression that may be computed again: calls get a name."""
        simple = (ast.Name, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp, ast.expr_context,
                  ast.unaryop, ast.operator, ast.BinOp)  # fmt: skip
        if all(isinstance(one, simple) for one in ast.walk(node)) or is_literal(node):
            return node
        if isinstance(node, ast.Slice):
            parts = [one and self.passive(one) for one in (node.lower, node.upper, node.step)]
            return cast(ast.expr, ast.Slice(*parts))
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.passive(one) for one in node.elts], ast.Load())
        name = self.scope.fresh("index" if isinstance(node, ast.Subscript) else "fixed")
        self.emit("passive", f"{name} = {ast.unparse(node)}")
        self.scope.locals.add(name)
        return ast.Name(name, ast.Load())

    def assign(self, target: str, node: ast.expr) -> None:
        """Add the steps that bind a name to the value of an expression."""
        scope = self.scope
        if not scope.is_active(node):
            self.emit("passive", f"{target} = {ast.unparse(node)}")
            return
        scope.active.add(target)
        scope.locals.add(target)
        method = getattr(self, f"_as_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refused(node)
        method(target, node)

    def bound_after(self, target: str, reads: list[ast.expr]) -> str:
        """Return a name to bind first where a step would overwrite what its reversal needs."""
        names = {one.id for one in reads if isinstance(one, ast.Name)}
        return self.scope.fresh(target) if target in names else target

    def step(self, kind: str, target: str, value: str, args: list[ast.expr], **more: Any) -> None:
        """Add a step that binds a name."""
        made = self.bound_after(target, args)
        self.scope.active.add(made)
        self.scope.locals.add(made)
        if kind in ("user", "dynamic"):
            more["slot"] = self.scope.fresh("record")
            self.scope.locals.add(more["slot"])
        self.emit(kind, f"{made} = {value}", target=made, args=args, **more)
        if made != target:
            self.emit("copy", f"{target} = {made}", target=target,
                      args=[ast.Name(made, ast.Load())])  # fmt: skip

    def _as_name(self, target: str, node: ast.Name) -> None:
        if target != node.id:
            self.emit("copy", f"{target} = {node.id}", target=target, args=[node])

    def _as_binop(self, target: str, node: ast.BinOp) -> None:
        function = OPERATORS.get(type(node.op))
        if function is None:
            raise self.refused(node)
        args = [self.atom(node.left), self.atom(node.right)]
        value = ast.unparse(ast.BinOp(args[0], node.op, args[1]))
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
        named = isinstance(self.origin, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id == target for one in self.origin.targets
        )
        if named and isinstance(base, ast.Name) and self.written(base.id):
            helper = self.scope.help("refuse_view", refuse_view)
            value = f"{helper}({value}, {target!r}, {base.id!r})"
        # The names of the index are among what the reversal reads.
        reads = [base, *[ast.Name(one, ast.Load()) for one in loads(ast.parse(f"_[{index}]").body)]]
        made = self.bound_after(target, reads)
        self.scope.active.add(made)
        self.scope.locals.add(made)
        self.emit("item", f"{made} = {value}", target=made, args=[base], index=index)
        if made != target:
            self.emit("copy", f"{target} = {made}", target=target,
                      args=[ast.Name(made, ast.Load())])  # fmt: skip

    def _as_tuple(self, target: str, node: ast.Tuple | ast.List) -> None:
        for one in node.elts:
            if isinstance(one, ast.Starred):
                raise self.refused(one)
        args = [self.atom(one) for one in node.elts]
        for one in args:
            if isinstance(one, ast.Name) and self.written(one.id):
                raise self.refused(node, f"{one.id} is written to; put a copy into the container")
        kind = type(node)(args, ast.Load())
        self.step("build", target, ast.unparse(kind), args)

    _as_list = _as_tuple

    def _as_dict(self, target: str, node: ast.Dict) -> None:
        if None in node.keys:
            raise self.refused(node, "** in a dict of active values is not supported; name its keys")
        keys = [self.passive(cast(ast.expr, key)) for key in node.keys]
        args = [self.atom(one) for one in node.values]
        value = ast.unparse(ast.Dict(cast(Any, keys), args))
        self.step("build", target, value, args, kwargs={"keys": ast.Tuple(keys, ast.Load())})

    def _as_listcomp(self, target: str, node: ast.ListComp) -> None:
        made = self.scope.fresh("items")
        renamed, head = self._generators(node, node.elt)
        self.rewritten(f"{made} = []\n{head}{made}.append({renamed})\n{target} = {made}", node)

    def _as_dictcomp(self, target: str, node: ast.DictComp) -> None:
        made = self.scope.fresh("items")
        pair = ast.Tuple([node.key, node.value], ast.Load())
        renamed, head = self._generators(node, pair)
        key, value = (ast.unparse(one) for one in cast(Any, ast.parse(renamed).body[0]).value.elts)
        self.rewritten(f"{made} = {{}}\n{head}{made}[{key}] = {value}\n{target} = {made}", node)

    def _generators(self, node: Any, result: ast.expr) -> tuple[str, str]:
        """Return the loops of a comprehension, its names renamed as they are its own."""
        names = {name for one in node.generators for name in bound_names([one.target])}
        turn = _Renamed({name: self.scope.fresh(name) for name in names})
        head, depth = "", 0
        for i, one in enumerate(node.generators):
            over = one.iter if i == 0 else turn.visit(deepcopy(one.iter))
            target = turn.visit(deepcopy(one.target))
            head += f"{'    ' * depth}for {ast.unparse(target)} in {ast.unparse(over)}:\n"
            depth += 1
            for test in one.ifs:
                head += f"{'    ' * depth}if {ast.unparse(turn.visit(deepcopy(test)))}:\n"
                depth += 1
        return ast.unparse(turn.visit(deepcopy(result))), head + "    " * depth

    def _as_call(self, target: str, node: ast.Call) -> None:
        scope = self.scope
        function = scope.resolve(node.func)
        text, extra = ast.unparse(node.func), []
        if isinstance(node.func, ast.Attribute) and function is UNKNOWN:
            base = node.func.value
            if not scope.is_active(base):
                self._dynamic(target, node, text)
                return
            method = node.func.attr
            if method == "pop" and not node.args:
                self.step("pop", target, f"{ast.unparse(base)}.pop()", [base])
                return
            if method == "get" and node.args:
                self._as_subscript(target, ast.Subscript(base, node.args[0], ast.Load()))
                return
            function = np.array if method in _SAME else getattr(np, method, UNKNOWN)
            if function is UNKNOWN or method == "fill":
                function = METHODS.get(method, UNKNOWN)
            if function is UNKNOWN:
                raise self.refused(node, f"the method .{method} of an active value has no gradient")
            extra = [self.atom(base)]
            text = f"{ast.unparse(extra[0])}.{method}"
            if method in ("reshape", "transpose") and len(node.args) > 1:
                node = ast.Call(node.func, [ast.Tuple(node.args, ast.Load())], node.keywords)
        if function is UNKNOWN:
            self._dynamic(target, node, text)
            return
        self._known(target, node, function, text, extra)

    def _known(
        self, target: str, node: ast.Call, function: Any, text: str, extra: list[ast.expr]
    ) -> None:
        scope = self.scope
        if _hashable(function) and function in SOURCES:
            function = SOURCES[function]
        kind = "user"
        if _hashable(function) and function in PURE:
            function = PURE[function]
            text = scope.help(function.__name__, function)
        if _hashable(function) and (function in ADJOINTS or function in TANGENTS):
            kind = "rule"
        elif is_numpy(function) or isinstance(function, (Derived, Kernel, trace)):
            kind = "call"
        elif function in (abs, pow):
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
        args, starred = [], False
        for one in node.args:
            starred = starred or isinstance(one, ast.Starred)
            value = one.value if isinstance(one, ast.Starred) else one
            made = self.operand(value, kind)
            args.append(ast.Starred(made, ast.Load()) if isinstance(one, ast.Starred) else made)
        if starred and kind != "user":
            raise self.refused(node, "give starred arguments one by one")
        kwargs: dict[str, ast.expr] = {}
        for word in node.keywords:
            if word.arg is None or (kind != "user" and scope.is_active(word.value)):
                raise self.refused(node, "give active values as positional arguments")
            kwargs[word.arg] = self.operand(word.value, kind)
        words = [ast.keyword(key, one) for key, one in kwargs.items()]
        value = ast.unparse(ast.Call(ast.Name(text, ast.Load()), args, words))
        if isinstance(function, Scope):
            for name in function.captured:
                kwargs[name] = ast.Name(name, ast.Load())
        self.step(kind, target, value, [*extra, *args], kwargs=kwargs, function=function)

    def operand(self, node: ast.expr, kind: str) -> ast.expr:
        """Return an operand; an active list or tuple gets a name."""
        if kind != "user" and not self.scope.is_active(node):
            return self.passive(node)
        return self.atom(node)

    def _dynamic(self, target: str, node: ast.Call, text: str) -> None:
        if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
            raise self.refused(node, f"{text} is known at run time only; give it its arguments "
                               "by position")  # fmt: skip
        name = text
        if not isinstance(node.func, ast.Name):
            name = ast.unparse(self.passive(node.func))
        args = [self.atom(one) for one in node.args]
        value = f"{name}({', '.join(map(ast.unparse, args))})"
        self.step("dynamic", target, value, args, function=name)

    # -- aliases ------------------------------------------------------------------------------

    def _values_of(self, name: str) -> list[ast.expr | None]:
        found: list[ast.expr | None] = []
        for node in walk_own(self.scope.tree.body):
            if isinstance(node, ast.Assign):
                for one in node.targets:
                    if name in bound_names([one]):
                        found.append(node.value if isinstance(one, ast.Name) else None)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and name in bound_names([node]):
                found.append(node.value)
            elif isinstance(node, (ast.For, ast.withitem)) and name in bound_names(
                [getattr(node, "target", None) or node.optional_vars or ast.Pass()]  # type: ignore
            ):
                found.append(None)
        return found

    def is_fresh(self, name: str) -> bool:
        """Return whether all that a name is bound to is its own."""
        if name.startswith(("items_", "result")):
            return True
        if name in self.scope.args:
            return False
        values = self._values_of(name)
        return bool(values) and all(one is not None and self._makes(one) for one in values)

    def _makes(self, node: ast.expr) -> bool:
        """Return whether an expression makes something new."""
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            views = "reshape ravel asarray transpose squeeze swapaxes view diagonal broadcast_to"
            target = self.scope.resolve(node.func)
            user = isinstance(target, Scope) or not (target is UNKNOWN or is_numpy(target))
            return name not in views.split() and not (user and self.scope.is_active(node))
        if isinstance(node, ast.IfExp):
            return self._makes(node.body) and self._makes(node.orelse)
        return isinstance(
            node, (ast.BinOp, ast.UnaryOp, ast.List, ast.Dict, ast.ListComp, ast.DictComp,
                   ast.Constant, ast.Tuple, ast.Compare),
        )  # fmt: skip

    def written(self, name: str) -> bool:
        """Return whether the function writes into what a name holds."""
        for node in walk_own(self.scope.tree.body):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == name:
                    return True
        return False

    def shown_by(self, name: str) -> str:
        """Return a name that may show the memory of another one, or ""."""
        for node in walk_own(self.scope.tree.body):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value: Any = node.value
                while isinstance(value, ast.Attribute) and value.attr == "T":
                    value = value.value
                if isinstance(value, ast.Subscript) and any(
                    isinstance(one, ast.Slice) for one in ast.walk(value.slice)
                ):
                    value = value.value
                if isinstance(value, ast.Name) and value.id == name:
                    if node.targets[0].id != name and node.targets[0].id != self.jumps.result:
                        return node.targets[0].id
        return ""


def index_text(node: ast.expr) -> str:
    """Return what stands in brackets."""
    return ast.unparse(ast.Subscript(ast.Name("_", ast.Load()), node, ast.Load()))[2:-1]


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


class _Unnamed(ast.NodeTransformer):
    """Leaves the name of a walrus whose value is bound already."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        same = isinstance(node.value, ast.Name) and node.value.id == node.target.id
        if same:
            return ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        return node
