"""Batching rules: every op for all rows at once is what it is for each row."""

import itertools
import pkgutil

import numpy as np

import actorgraph as ag
import actorgraph.control.in_blocks
import actorgraph.ops
from actorgraph.control.batching import in_turn, rule_of
from actorgraph.graph import topological_order
from actorgraph.op import REGISTRY
from actorgraph.testing import evaluate
from actorgraph.testing._cases import Case
from actorgraph.types import Record
from tests._each import each

for found in pkgutil.iter_modules(actorgraph.ops.__path__):
    __import__(f"actorgraph.ops.{found.name}")

OURS = sorted(
    name
    for name, op in REGISTRY.items()
    if not op.checked and op.forward.__module__.startswith("actorgraph.") and op.samples
)
ROWS = 3
IN_TURN = [
    "arange", "bincount", "embedding_adjoint", "hook_gradient", "index_put_reduce", "linspace",
    "mask_positions", "random_binomial", "random_categorical", "random_normal",
    "random_truncated_normal", "random_uniform", "searchsorted", "unique",
]  # fmt: skip
NO_ROWS = {"checkpoint", "hook_gradient", "recompute"}  # their derivatives are of several nodes


def ran(outputs, feeds):
    nodes = topological_order(outputs)
    if not any(isinstance(node.type, Record) for node in nodes):
        return evaluate(outputs, feeds)
    with ag.LispMachine(outputs, wrt=[]) as machine:
        run = machine.run_sync(feeds)
        return [run[node].value for node in machine.outputs.values()]


def drawn(op, sample, count):
    """Arguments of so many calls."""
    case = Case(op, sample)
    calls = [case.draw("float64") for _ in range(count)]
    if "mask" in op.name or op.name in ("unique", "bincount"):
        return [calls[0]] * count  # as many results in each
    return calls


def subsets(arity):
    """Which operands have rows: all, and one or two of them."""
    few = [c for size in (1, 2) for c in itertools.combinations(range(arity), size)]
    return [tuple(range(arity)), *[one for one in few[:4] if len(one) < arity]]


def batches(calls, rows, size):
    """Operands: of all calls where they have rows, else of the first."""
    return [
        np.stack([call[i] for call in calls])[:size] if i in rows else calls[0][i]
        for i in range(len(calls[0]))
    ]


def wanted_of(op, sample, values, rows):
    graph = ag.Graph()
    xs = [
        graph.input(f"x{i}", value.shape[1:] if i in rows else value.shape, value.dtype)
        for i, value in enumerate(values)
    ]
    y = graph.apply(op, xs, sample.attrs)
    single = [
        [value[row] if i in rows else value for i, value in enumerate(values)]
        for row in range(ROWS)
    ]
    return np.stack([
        evaluate([y], dict(zip(xs, one, strict=True)))[0] for one in single
    ])  # fmt: skip


def vmapped(op, sample, values, rows, symbol=None):
    graph = ag.Graph()
    xs = []
    for i, value in enumerate(values):
        lead = (symbol,) if symbol and i in rows else value.shape[: i in rows]
        xs.append(graph.input(f"x{i}", (*lead, *value.shape[int(i in rows) :]), value.dtype))
    axes = tuple(0 if i in rows else None for i in range(len(xs)))
    y = ag.vmap(lambda *args: graph.apply(op, args, sample.attrs), axes)(*xs)
    return y, dict(zip(xs, values, strict=True))


def close(got, wanted, what):
    assert got.dtype == wanted.dtype, what
    if wanted.dtype.kind in "fc":
        scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11 * scale, err_msg=what)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=what)


@each("name", OURS)
def test_an_op_of_rows_is_a_stack_of_single_calls(name):
    op = REGISTRY[name]
    few = 2 if rule_of(op, len(op.samples[0].shapes), op.samples[0].attrs) is in_turn else 9
    for number, sample in enumerate(op.samples[:few]):
        calls = drawn(op, sample, ROWS)
        for rows in subsets(len(calls[0])):
            values = batches(calls, rows, ROWS)
            wanted = wanted_of(op, sample, values, rows)
            # All operands with rows: as many as a run says, perhaps none.
            symbol = "rows" if len(rows) == len(values) and number == 0 else None
            y, feeds = vmapped(op, sample, values, rows, symbol)
            close(ran([y], feeds)[0], wanted, f"{name}, sample {number}, rows of {rows}")
            if symbol and None not in y.shape:
                (none,) = ran([y], {x: value[:0] for x, value in feeds.items()})
                assert none.shape == (0, *wanted.shape[1:])


@each("name", OURS)
def test_gradients_of_rows_are_rows_of_gradients(name):
    op = REGISTRY[name]
    sample = op.samples[0]
    case = Case(op, sample)
    if not case.wrt or name in NO_ROWS or None in case.y.shape:
        return
    calls = drawn(op, sample, ROWS)
    rows = tuple(range(len(calls[0])))
    values = batches(calls, rows, ROWS)
    y, feeds = vmapped(op, sample, values, rows)
    graph, xs = y.graph, list(feeds)
    places = [i for i, x in enumerate(case.xs) if x in set(case.wrt)]
    wrt = [xs[i] for i in places]
    ct = graph.input("ct", y.shape, y.dtype)
    feeds[ct] = np.random.default_rng(1).normal(size=y.shape).astype(y.dtype)
    through = ag.gradients([y], wrt, seeds=[ct])

    def of_row(ct, *args):
        picked = [args[i] for i in places]
        return ag.gradients([graph.apply(op, args, sample.attrs)], picked, seeds=[ct])

    inside = ag.vmap(of_row)(ct, *xs)
    for one, other in zip(ran(through, feeds), ran(inside, feeds), strict=True):
        close(one, other, name)


def test_ops_that_are_computed_row_by_row():
    """All others have rules; an op that gets no rule comes into this list."""
    slow = {
        name
        for name in OURS
        for sample in REGISTRY[name].samples[:1]
        if rule_of(REGISTRY[name], len(sample.shapes), sample.attrs) is in_turn
    }
    assert sorted(slow) == IN_TURN
