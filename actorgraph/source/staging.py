"""Rewrites Python's control flow as calls of `Converted`, which decide while nodes are built.

An ``if`` becomes two functions without arguments and a call that runs one of them, or traces both
if the test is a node; loops, ``and``, ``or``, ``not``, conditional expressions, comprehensions and
``assert`` are rewritten likewise.  The functions set names of the enclosing one (``nonlocal``).
Every node of the tree keeps its line and column.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from types import FunctionType
from typing import Any

from actorgraph.source.aliases import CHANGING, Aliases
from actorgraph.source.fence import check_everywhere
from actorgraph.source.jumps import Jumps, UnsupportedPattern, has_walrus, jumps, own_jumps
from actorgraph.source.liveness import annotate
from actorgraph.source.names import bound_names, loads, walk_own
from actorgraph.source.reading import refuse
from actorgraph.source.scope import Scope, is_numpy
from actorgraph.source.steps import parse_one

HELPER = "ag__"
"""The name of the `Converted` object."""

_ALWAYS_REFUSED = "write it without, or call that part from outside the function"


def staged(function: FunctionType, tree: ast.FunctionDef, places: list[ast.AST]) -> ast.FunctionDef:
    """Return the definition of a function with its control flow as calls; changes its `tree`.

    Statements that the calls refer to by number are appended to `places`.
    """
    fenced = check_everywhere(tree)
    if fenced is not None:
        text = f"{type(fenced).__name__.lower()} has no form in a graph; {_ALWAYS_REFUSED}"
        raise refuse(fenced, text, function)
    for part in walk_own(tree.body):
        if isinstance(part, (ast.Try, ast.TryStar)) and jumps(part):
            raise refuse(
                part, "a graph has no exceptions, so no return, break or continue may leave a try; "
                "return after it", function,
            )  # fmt: skip
    scope = Scope(function, tree)
    return _Definition(function, scope, places).made()


def _call(name: str, like: ast.AST, *args: ast.AST | str) -> Any:
    """Return a call of a method of `Converted`; arguments are expressions, or their texts."""
    call = parse_one(f"{HELPER}.{name}()", like).value
    call.args = [parse_one(one, like).value if isinstance(one, str) else one for one in args]
    return call


def _later(value: ast.expr, like: ast.AST, parameters: str = "") -> Any:
    """Return a function that computes an expression when it is called."""
    function = parse_one(f"lambda {parameters}: x", like).value
    function.body = value
    return function


def _assigned(target: ast.expr, value: ast.expr, like: ast.AST) -> ast.Assign:
    return _located_one(ast.Assign([target], value), like)  # type: ignore[no-any-return]


class _Definition:
    """The rewriting of one function."""

    def __init__(self, function: FunctionType, scope: Scope, places: list[ast.AST]) -> None:
        self.function, self.scope, self.places = function, scope, places
        self.jumps = Jumps(scope)
        self.aliases = Aliases(scope, self.jumps.result)
        self.expressions = _Expressions(self)
        self.stopped = ""  # the flag of the loop around
        self.reads = [
            one.id for one in ast.walk(scope.tree)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        ]  # fmt: skip

    def made(self) -> ast.FunctionDef:
        """Return the definition."""
        tree: ast.FunctionDef = self.scope.tree
        try:
            body = self.jumps.rewritten()
        except UnsupportedPattern as error:
            text = "a pattern cannot take nodes apart; assign them to names first"
            raise refuse(error.pattern, text, self.function) from None
        body.append(parse_one(f"return {self.jumps.result}", tree.body[-1]))
        body = self.plain(body)
        annotate(body)
        names = sorted(bound_names(body) - set(self.scope.args))
        bound = [parse_one(f"if 0: {' = '.join(names)} = None", tree)] if names else []
        tree.body = [*bound, *self.block(body)]
        tree.decorator_list, tree.returns = [], None
        return tree

    def at(self, node: ast.AST) -> str:
        """Return the number of a statement, for errors, as a text."""
        self.places.append(node)
        return str(len(self.places) - 1)

    # -- before liveness: break, continue and writes into nodes are rewritten ---------------------

    def plain(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return a block in simpler statements."""
        out: list[ast.stmt] = []
        for stmt in body:
            out += self._plain_statement(stmt)
        return out

    def _plain_statement(self, node: Any) -> list[ast.stmt]:
        self.aliases.mark(node)
        if isinstance(node, ast.Assign):
            self._keep_apart(node)
            if len(node.targets) > 1 or isinstance(node.targets[0], (ast.Tuple, ast.List)):
                return self._one_by_one(node)
        if type(node) in (ast.While, ast.For):
            node.stopped = self.scope.fresh("stopped") if own_jumps(node.body, ast.Break) else ""
            outer, self.stopped = self.stopped, node.stopped
            node.body, self.stopped = self.plain(node.body), outer
            begin = [parse_one(f"{node.stopped} = False", node)] if node.stopped else []
            return [*begin, node]
        if isinstance(node, (ast.Break, ast.Continue)):  # the last statement of its branch
            leaves = isinstance(node, ast.Break)
            return [parse_one(f"{self.stopped} = True" if leaves else "pass", node)]
        for field in ("body", "orelse", "finalbody"):
            block = isinstance(getattr(node, field, None), list)
            if block and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                setattr(node, field, self.plain(getattr(node, field)))
        for handler in getattr(node, "handlers", []):
            handler.body = self.plain(handler.body)
        if isinstance(node, ast.AugAssign):
            target: Any = deepcopy(node.target)
            target.ctx = ast.Load()
            name = target.id if isinstance(target, ast.Name) else ""
            who = self._seen_by(name, node)
            operator = repr(type(node.op).__name__)
            value = _call("augmented", node, operator, who, target, node.value)
            node = _assigned(node.target, value, node)
        if isinstance(node, ast.AnnAssign):  # a name with an annotation cannot be nonlocal
            if node.value is None:
                return [parse_one("pass", node)]
            node = _assigned(node.target, node.value, node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return [self._written(node)]
        if isinstance(node, ast.Expr) and self._appends(node.value):
            call: Any = node.value
            name = call.func.value.id
            value = _call("appended", node, self._seen_by(name, node), name, call.args[0])
            return [_assigned(ast.Name(name, ast.Store()), value, node)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            method = node.value.func
            if isinstance(method, ast.Attribute) and method.attr == "sort":
                method.value = _call("array", node, self.at(node), method.value)
        return [node]

    def _one_by_one(self, node: ast.Assign) -> list[ast.stmt]:
        """Return an assignment to several targets, and those of each if one is no name."""
        later: list[ast.stmt] = []

        def named(target: ast.expr) -> ast.expr:
            if isinstance(target, (ast.Tuple, ast.List)):
                return type(target)([named(one) for one in target.elts], ast.Store())
            if isinstance(target, ast.Starred):
                return ast.Starred(named(target.value), ast.Store())
            name = self.scope.fresh("value")
            later.append(_assigned(target, ast.Name(name, ast.Load()), node))
            return ast.Name(name, ast.Store())

        if not any(
            isinstance(one, (ast.Subscript, ast.Attribute)) for one in walk_own(node.targets)
        ):
            return [node]
        first = _located_one(ast.Assign([*map(named, node.targets)], node.value), node)
        return [first, *self.plain(later)]

    def _keep_apart(self, node: ast.Assign) -> None:
        """Have a call raise that returns what it got, if the one or the other is written to."""
        target, call = node.targets[0], node.value
        if not isinstance(call, ast.Call):
            return
        called = self.scope.resolve(call.func)
        names = sorted(loads([*call.args, *call.keywords]) & self.scope.own)
        if is_numpy(called) or isinstance(called, type):
            return
        if any(map(self.aliases.changed, [*bound_names([target]), *names])):
            text = repr(ast.unparse(call))
            read = f"*{HELPER}.state({', '.join([f'lambda: {name}' for name in names])})"
            node.value = _call("apart", node, text, self.at(node), call, read)

    def is_read_again(self, name: str) -> bool:
        """Return whether a local name may be read in another place, or again in a loop."""
        if name not in self.scope.locals:
            return False
        return self.reads.count(name) > 1 or any(
            name in loads(one.body)
            for one in walk_own(self.scope.tree.body)
            if isinstance(one, (ast.For, ast.While))
        )

    def _appends(self, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in self.scope.locals
            and len(node.args) == 1
        )

    def _written(self, node: ast.Assign) -> ast.stmt:
        """Rewrite ``x[i] = v`` as a new value of `x`, ``x.a = v`` as a call that may refuse."""
        target = node.targets[0]
        if isinstance(target, ast.Attribute):
            name = repr(target.attr)
            call = _call("set_attribute", node, target.value, name, node.value, self.at(node))
            return _located_one(ast.Expr(call), node)  # type: ignore[no-any-return]
        if not isinstance(target, ast.Subscript):
            return node
        base = target.value
        if not isinstance(base, ast.Name) or base.id not in self.scope.locals:
            call = _call("stored", node, self.at(node), node.value, base, _index(target.slice))
            return _located_one(ast.Expr(call), node)  # type: ignore[no-any-return]
        who = self._seen_by(base.id, node)
        value = _call("written", node, who, base.id, _index(target.slice), node.value)
        return _assigned(ast.Name(base.id, ast.Store()), value, node)

    def _seen_by(self, name: str, node: ast.stmt) -> str:
        """Return who else sees a change of a name, as an argument of a call; () for nobody.

        The other is "" for an argument: a function that passed it sees the change.
        """
        other = self.aliases.alias_of(name)
        if not other and name in self.scope.args:
            other = "the caller" if self.aliases.is_only_written(name) else ""
        elif not other and not self.aliases.is_fresh(name):
            other = "what it is a part of"
        argument = name in self.scope.args
        return f"({name!r}, {other!r}, {self.at(node)})" if other or argument else "()"

    # -- statements -------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that replace a block."""
        out: list[ast.stmt] = []
        for stmt in body:
            method = getattr(self, f"_on_{type(stmt).__name__.lower()}", None)
            self.expressions.bound = bound_names([stmt]) if method is None else set()
            out += [self.expressions.visit(stmt)] if method is None else method(stmt)
        return out or [ast.Pass()]

    def _functions(
        self, node: Any, names: list[str], *bodies: tuple[str, list[ast.stmt]]
    ) -> list[ast.stmt]:
        """Return a function for each body, which sets `names` of the enclosing function."""
        out = []
        for head, body in bodies:
            definition = parse_one(f"def {head}: pass", node)
            outer = [parse_one(f"nonlocal {', '.join(names)}", node)] if names else []
            definition.body = [*outer, *body]
            out.append(definition)
        return out

    def _watched(self, body: list[ast.stmt], call: ast.expr, place: str) -> ast.stmt:
        """Return a call that traces a body, watching the objects that the body may change."""
        names: set[str] = set()
        for part in walk_own(body):
            if isinstance(part, (ast.Expr, ast.Delete)):
                names |= loads(part)
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                names |= loads(part.func.value) if part.func.attr in CHANGING else set()
            elif isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load):
                names |= loads(part.value)
        names &= self.scope.locals
        stmt = _located_one(ast.Expr(call), call)
        if not names:
            return stmt  # type: ignore[no-any-return]
        reads = ", ".join(f"lambda: {name}" for name in sorted(names))
        head = f"with {HELPER}.watching({place}, {sorted(names)!r}, {reads}): pass"
        block: Any = parse_one(head, call)
        block.body = [stmt]
        return block  # type: ignore[no-any-return]

    def _state(self, node: Any, names: list[str]) -> tuple[list[ast.stmt], list[str]]:
        """Return functions that read and set names, and the arguments for a call with them."""
        read, write = self.scope.fresh("read"), self.scope.fresh("write")
        values = ", ".join(f"lambda: {name}" for name in names)
        getter = parse_one(f"def {read}(): return {HELPER}.state({values})", node)
        setter = parse_one(f"def {write}(values): pass", node)
        gone = [parse_one(f"if {name} is {HELPER}.UNDEFINED: del {name}", node) for name in names]
        if names:
            setter.body = [
                parse_one(f"nonlocal {', '.join(names)}", node),
                parse_one(f"{', '.join(names)}, = values", node), *gone,
            ]  # fmt: skip
        return [getter, setter], [read, write, repr(tuple(names))]

    def _on_if(self, node: Any) -> list[ast.stmt]:
        names = sorted(bound_names([*node.body, *node.orelse]))
        live = repr(tuple([name for name in names if name in node.after]))
        true, false = self.scope.fresh("then"), self.scope.fresh("otherwise")
        state, given = self._state(node, names)
        inside, place = deepcopy([*node.body, *node.orelse]), self.at(node)
        blocks = (f"{true}()", self.block(node.body)), (f"{false}()", self.block(node.orelse))
        bodies = self._functions(node, names, *blocks)
        test = self.expressions.test(node.test)
        call = _call("if_", node, test, true, false, *given, live, place)
        return [*bodies, *state, self._watched(inside, call, place)]

    def _on_while(self, node: Any) -> list[ast.stmt]:
        test = self.expressions.test(node.test)
        if node.stopped:
            goes_on = f"lambda: {HELPER}.not_({node.stopped})"
            test = _call("joined", node, "False", "False", goes_on, _later(test, node))
        names = sorted(bound_names([*node.body, ast.Expr(node.test)]))
        ask, body = self.scope.fresh("test"), self.scope.fresh("body")
        inside, place = deepcopy([*node.body, ast.Expr(node.test)]), self.at(node)
        asked = _located_one(ast.Return(test), node)
        state, given = self._state(node, names)
        functions = self._functions(
            node, names, (f"{ask}()", [asked]), (f"{body}()", self.block(node.body))
        )
        call = _call("while_", node, ask, body, *given, self._carried(node, names), place)
        return [*functions, *state, self._watched(inside, call, place)]

    def _carried(self, node: Any, names: list[str]) -> str:
        return repr(tuple([name for name in names if name in node.head]))

    def _on_for(self, node: Any) -> list[ast.stmt]:
        body, item = self.scope.fresh("body"), self.scope.fresh("item")
        first = parse_one(f"x = {item}", node)
        first.targets = [node.target]
        if any(map(self.aliases.written, loads(node.iter))):
            first.value = _call("number", node, self.at(node), item)
        names = sorted(bound_names([*node.body, first]))
        state, given = self._state(node, names)
        inside, place = deepcopy(node.body), self.at(node)
        blocks = self._functions(node, names, (f"{body}({item})", [first, *self.block(node.body)]))
        over, carried = self.expressions.visit(node.iter), self._carried(node, names)
        call = _call("for_", node, over, body, repr(node.stopped), *given, carried, place)
        return [*blocks, *state, self._watched(inside, call, place)]

    def _on_with(self, node: Any) -> list[ast.stmt]:
        node.items = [self.expressions.visit(item) for item in node.items]
        node.body = self.block(node.body)
        return [node]

    def _on_try(self, node: Any) -> list[ast.stmt]:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field)
            setattr(node, field, self.block(block) if block else [])
        for handler in node.handlers:
            handler.body = self.block(handler.body)
        return [node]

    def _on_functiondef(self, node: Any) -> list[ast.stmt]:
        decorators = [self.expressions.visit(decorator) for decorator in node.decorator_list]
        definition = staged(self.function, node, self.places)
        definition.decorator_list = decorators
        return [definition]

    def _on_classdef(self, node: Any) -> list[ast.stmt]:
        return [node]

    def _on_assert(self, node: Any) -> list[ast.stmt]:
        live = sorted(loads(node.test) & self.scope.own)
        state, given = self._state(node, live)
        test = self.expressions.test(node.test)
        said = _later(self.expressions.visit(node.msg or ast.Constant(None)), node)
        call = _call("assert_", node, test, said, *given, self.at(node))
        return [*state, _located_one(ast.Expr(call), node)]


def _located_one(node: Any, like: ast.AST) -> Any:
    """Return a new node with the location of another one; its parts keep theirs."""
    return ast.fix_missing_locations(ast.copy_location(node, like))


def _index(node: ast.expr) -> ast.expr:
    """Return an index as an expression, with slices as calls of `slice`."""
    if isinstance(node, ast.Tuple):
        return _located_one(ast.Tuple([_index(element) for element in node.elts], ast.Load()), node)  # type: ignore[no-any-return]
    if not isinstance(node, ast.Slice):
        return node
    parts = [part or "None" for part in (node.lower, node.upper, node.step)]
    return _call("slice", node, *parts)  # type: ignore[no-any-return]


class _Expressions(ast.NodeTransformer):
    """Rewrites the control flow in expressions."""

    def __init__(self, definition: _Definition) -> None:
        self.definition = definition
        self.bound: set[str] = set()  # by the statement

    def _later(self, node: ast.AST, *parts: ast.expr, visit: Any = None) -> list[ast.expr]:
        """Return functions that compute parts of an expression."""
        for part in parts:
            if has_walrus(part):
                text = "the name bound by := may not be computed here; bind it before"
                raise refuse(part, text, self.definition.function)
        return [_later((visit or self.visit)(part), node) for part in parts]

    def test(self, node: ast.expr) -> Any:
        """Return an expression of which only the truth matters."""
        if isinstance(node, ast.BoolOp):
            return self._joined(node, False, self.test)
        return self.visit(node)

    def _joined(self, node: ast.BoolOp, exact: bool, visit: Any) -> Any:
        ends = repr(isinstance(node.op, ast.Or))
        parts = self._later(node, *node.values, visit=visit)
        return _call("joined", node, ends, repr(exact), *parts)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        viewed = getattr(node, "viewed", "")
        self.generic_visit(node)
        if not viewed:
            return node
        node.viewed = ""  # type: ignore[attr-defined]
        return _call("number", node, self.definition.at(node), node, repr(viewed), viewed)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        joins = isinstance(node.op, (ast.Add, ast.Mult))
        lists = joins and any(map(self.definition.aliases.may_be_list, (node.left, node.right)))
        self.generic_visit(node)
        if not lists:
            return node
        return _call("of_lists", node, repr(type(node.op).__name__), node.left, node.right)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        return self._joined(node, True, self.visit)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        return _call("not_", node, self.test(node.operand))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        ways, test = self._later(node, node.body, node.orelse), self.test(node.test)
        return _call("choose", node, test, *ways, self.definition.at(node))

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1:
            return self.generic_visit(node)
        names = repr(" ".join([type(op).__name__ for op in node.ops]))
        return _call("chain", node, names, *self._later(node, node.left, *node.comparators))

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals"):
            return node
        parts = [*enumerate(node.args), *[(one.arg, one.value) for one in node.keywords]]
        again = [
            (key, isinstance(part, (ast.List, ast.Dict, ast.Tuple))) for key, part in parts
            if any(map(self.definition.is_read_again, loads([part]) - self.bound))
        ]  # fmt: skip
        unpacks = any(isinstance(part, ast.Starred) or key is None for key, part in parts)
        given = [self.definition.at(node), *map(repr, () if unpacks else again)] if again else []
        node.func = _call("called", node.func, node.func, *given)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        generator = node.generators[0]
        target = generator.target
        names = [target] if isinstance(target, ast.Name) else getattr(target, "elts", [])
        simple = names and all(isinstance(name, ast.Name) for name in names)
        late = any(isinstance(one, ast.Lambda) for one in ast.walk(node.elt))  # bound by the last
        if len(node.generators) > 1 or not simple or late or has_walrus(node):
            return self.generic_visit(node)
        args, several = ", ".join([n.id for n in names]), repr(not isinstance(target, ast.Name))
        tests, place = generator.ifs or [ast.Constant(True)], self.definition.at(node)
        whole = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        keeps = self.test(_located_one(whole, node))
        over, element = self.visit(generator.iter), _later(self.visit(node.elt), node, args)
        return _call(
            "comprehension", node, over, element, _later(keeps, node, args), several, place
        )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node
