"""The names that code reads and binds are those that Python's own symbol tables say."""

import ast
import symtable

from actorgraph.source.names import bound_names, free_names, loads
from tests._each import each

DEFINITIONS = [
    "def f(a): return applied(lambda z: z * c, a) + z",
    "def f(x): return lambda z: lambda w: z + w + x + v",
    "def f(x): return [y for y in y]",
    "def f(x): return [a + b for a in x for b in a if b > c], a",
    "def f(x): return {k: v for k, v in d.items()}, {s for s in x}, sum(g for g in x)",
    "def f(x): return [[e for e in r] for r in x if r], e",
    "def f(x): return [last := e for e in x], last",
    "def f(x): return (lambda: (y := x) + y), y",
    "def f(x):\n    def g(a=a, *b, c=c, **d): return a, b, c, d, e\n    return g",
    "def f(x):\n    def g(a: t) -> u: return h(a)\n    def h(a): return g(a)\n    return g",
    "def f(x):\n    @d(x, y)\n    def g(x): return x\n    return g",
    "def f(x):\n    class K(B, m=M):\n        k = x\n        def g(s): return k, K\n    return K",
    "def f(x):\n    global n\n    n = x\n    def g(): return n\n    return g",
    "def f(x):\n    y = 1\n    def g():\n        nonlocal y\n        y = z\n    return g",
    "def f(x):\n    y = 1\n    def g():\n        global y\n        return y\n    return g",
    "def f(x):\n    try: pass\n    except E as e: return e\n    finally: del x",
    "def f(x):\n    match x:\n        case [a, *b]: return c\n        case {0: d, **e}: return e",
    "def f(x):\n    match x:\n        case P(q) as r if s: return q, r",
    "def f(x):\n    import a.b as c, d.e\n    from g import h as i\n    return a, c, d, e, g, h, i",
    "def f(*x, y=1, **z):\n    with a as b, c: pass\n    for d, (e, *g) in x: g[i] = d\n    j += 1",
    "async def f(x):\n    async for y in x: await y\n    return [z async for z in w], y",
]  # fmt: skip


class Lazily(ast.NodeTransformer):
    """Makes generators of comprehensions, whose names Python 3.12 tells as the function's."""

    def visit_ListComp(self, node):
        self.generic_visit(node)
        return ast.GeneratorExp(node.elt, node.generators)

    visit_SetComp = visit_ListComp

    def visit_DictComp(self, node):
        self.generic_visit(node)
        return ast.GeneratorExp(ast.Tuple([node.key, node.value], ast.Load()), node.generators)


def tables_in(table):
    return [table, *[one for child in table.get_children() for one in tables_in(child)]]


@each("text", DEFINITIONS)
def test_free_names_are_those_that_python_looks_up_outside(text):
    (node,), lazily = ast.parse(text).body, ast.unparse(Lazily().visit(ast.parse(text)))
    (table,) = symtable.symtable(lazily, "", "exec").get_children()
    inside = [symbol for one in tables_in(table) for symbol in one.get_symbols()]
    declared = {one.get_name() for one in inside if one.is_declared_global()}
    assert free_names(node) == {one.get_name() for one in inside if one.is_global()} - declared
    local = {one.get_name() for one in table.get_symbols() if one.is_local()}
    assert bound_names(node.body) | {*table.get_parameters()} == local


def test_defaults_decorators_and_annotations_belong_to_the_scope_around():
    definition = ast.parse("@d\ndef f(x: t = u, *, y=(z := 1)) -> r: return x, y").body
    assert free_names(definition[0]) == set()
    assert loads(definition) == {"d", "t", "u", "r"}
    assert bound_names(definition) == {"f", "z"}


def test_names_that_an_expression_may_leave_unbound_are_not_surely_bound():
    text = "(a := 1) and (b := 1), (c := 1) if (d := 1) else 0, 1 < (e := 1) < (g := 1)"
    body = ast.parse(f"x = {text}, [h := 1 for _ in (i := [1])], lambda: (j := 1)").body
    assert bound_names(body, sure=True) == {"x", "a", "d", "e", "i"}
    assert bound_names(body) == {"x", *"abcdeghi"}
