"""Random graphs for the tests of machines: hypothesis draws what is applied to what."""

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.testing._examples import Example

ops = ag.ops


def _scores(a):
    return ops.softmax(a, axis=-1) if a.ndim else ops.sigmoid(a)


def _first(a):
    return a[0] if a.ndim and a.shape[0] in (2, 3, 4) else a


def _last_axis(op):
    return lambda a: op(a, axis=-1) if a.ndim else op(a)


# Tame: values stay within a few units, so that no draw overflows or divides by zero.
UNARY = {
    "neg": lambda a: -a,
    "tanh": ops.tanh,
    "sin": ops.sin,
    "sigmoid": ops.sigmoid,
    "relu": ops.relu,
    "softplus": ops.softplus,
    "square": lambda a: ops.square(ops.tanh(a)),
    "exp": lambda a: ops.exp(ops.tanh(a)),
    "log1p": lambda a: ops.log1p(ops.square(ops.sin(a))),
    "sqrt": lambda a: ops.sqrt(ops.square(ops.tanh(a)) + 1),
    "clip": lambda a: ops.clip(a, -0.5, 0.5),
    "sum": lambda a: ops.tanh(a.sum()),
    "sum of rows": lambda a: ops.tanh(_last_axis(ops.sum)(a)),
    "mean": lambda a: a.mean() if 0 not in a.shape else a,
    "max": _last_axis(ops.max),
    "min": _last_axis(ops.min),
    "logsumexp": _last_axis(ops.logsumexp),
    "softmax": _scores,
    "transpose": ops.transpose,
    "first": _first,
    "reversed": lambda a: a[::-1] if a.ndim else a,
    "expand_dims": lambda a: ops.expand_dims(a, 0) if a.ndim < 2 else a,
    "itself": lambda a: a.astype(a.dtype),
}
BINARY = {
    "add": ops.add,
    "subtract": ops.subtract,
    "multiply": lambda a, b: ops.tanh(a) * b,
    "divide": lambda a, b: a / (ops.square(ops.tanh(b)) + 1),
    "maximum": ops.maximum,
    "minimum": ops.minimum,
    "matmul": lambda a, b: ops.tanh(a @ b),
    "where": lambda a, b: ops.where(a > 0, a, b),
    "where less": lambda a, b: ops.where(ops.tanh(a) < b, b * 2, a),
    "concatenate": lambda a, b: ops.concatenate([a, b, a]),
    "stack": lambda a, b: ops.stack([a, b]) if a.ndim == 1 else ops.add(a, b),
    "dot": lambda a, b: ops.tanh(ops.dot(a, b)) if a.ndim == b.ndim == 1 else a * 0.5 + b,
}
# Each with the dims of 4 that it needs: the first, the last, or both.
BY_INDEX = {
    "rows": (lambda a, i: a[i], "first"),
    "columns": (lambda a, i: a[..., i], "last"),
    "entries": (lambda a, i: a[i, i[::-1]], "both"),
    "along columns": (lambda a, i: ops.gather(a, 0, ops.stack([i, i], 1)), "both"),
    "along rows": (lambda a, i: ops.take_along_axis(a, ops.expand_dims(i, 0), 1), "both"),
    "rows added": (lambda a, i: ops.index_add(a, 0, i, a[:3] * 0.5), "first"),
    "columns added": (lambda a, i: ops.index_add(a, -1, i, a[..., :3] * 0.5), "last"),
    "entries added": (lambda a, i: ops.index_put(a, (i, i), a[0, :3], accumulate=True), "both"),
    "rows put": (lambda a, i: ops.index_put(a, i, a[1:] - a[:1]), "first"),
    "columns put": (lambda a, i: ops.index_put(a, (..., i), a[..., 1:]), "last"),
    "entries scattered": (lambda a, i: ops.scatter(a, 1, ops.stack([i, i]), a[1:3, :3]), "both"),
}
INDEX_DTYPES = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"]


def _by_index(draw, a, index):
    form, dims = BY_INDEX[draw(st.sampled_from(sorted(BY_INDEX)))]
    fits = {"first": a.shape[:1] == (4,), "last": a.shape[-1:] == (4,), "both": a.shape == (4, 4)}
    return form(a, index) if fits[dims] else a * 2


def _index(draw, rng, graph, count):
    """Return an index array as an input, and feeds for it; negative ones count from the end."""
    dtype = draw(st.sampled_from(INDEX_DTYPES))
    low = 0 if dtype[0] == "u" else -4
    node = graph.input("index", (3,), dtype)
    return node, [{"index": rng.integers(low, 4, 3).astype(dtype)} for _ in range(count)]


def _grow(draw, pool, unary, binary, index, max_ops):
    """Add nodes to a pool, each made of some that are there."""
    for _ in range(draw(st.integers(1, max_ops))):
        # The newest nodes are the likeliest, so that graphs grow deep; older ones fan out.
        picks = st.one_of(
            st.integers(0, len(pool) - 1), st.integers(max(0, len(pool) - 3), len(pool) - 1)
        )
        a, b = pool[draw(picks)], pool[draw(picks)]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "index"]))
        try:
            if kind == "unary":
                node = unary[draw(st.sampled_from(sorted(unary)))](a)
            elif kind == "binary":
                node = binary[draw(st.sampled_from(sorted(binary)))](a, b)
            else:
                node = _by_index(draw, a, index)
        except (ShapeError, GraphTypeError):
            continue  # the draw does not fit; another one will
        if any(node is other for other in pool):
            continue
        if any(list(other.checks) for other in a.graph.topological_order(node)):
            continue  # "n" would have to be 4
        if node.ndim <= 2:
            pool.append(node)


@st.composite
def graphs(draw, dtype=None, max_ops=14, feed_count=2):
    """Draw an `Example`: fan-out, repeated inputs, several outputs, wrt in the middle or unused."""
    dtype = draw(st.sampled_from(["float32", "float64"])) if dtype is None else dtype
    graph = ag.Graph("drawn")
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = [
        graph.input("x", ("n", 4), dtype),
        graph.input("y", (4,), dtype),
        graph.parameter("w", rng.normal(size=(4, 4)).astype(dtype)),
        graph.parameter("b", rng.normal(size=4).astype(dtype)),
        graph.parameter("s", np.asarray(rng.normal(), dtype)),
        graph.constant(rng.normal(size=(4,)).astype(dtype)),
    ]
    index, places = _index(draw, rng, graph, feed_count)
    _grow(draw, pool, UNARY, BINARY, index, max_ops)
    floats = [node for node in pool if node.op.name != "constant"]
    chosen = st.lists(st.sampled_from(range(len(floats))), min_size=1, max_size=3)
    outputs = [floats[i] for i in draw(chosen)] + [floats[-1]]
    if draw(st.booleans()):
        outputs.insert(0, ops.tanh(outputs[0]).sum())
    wrt = list(
        {floats[i]: None for i in draw(st.lists(st.integers(0, len(floats) - 1), max_size=5))}
    )
    sizes = [
        draw(st.sampled_from([1, 2, 3, 0] if _total(outputs) else [1, 2, 3]))
        for _ in range(feed_count)
    ]
    feeds = [{**_feeds(rng, size, dtype), **of} for size, of in zip(sizes, places, strict=True)]
    backward = [_seeds(draw, rng, outputs, size, dtype) for size in sizes]
    directions = [floats[i] for i in draw(st.lists(st.integers(0, len(floats) - 1), max_size=3))]
    tangents = [{node: _like(rng, node, size, dtype) for node in directions} for size in sizes]
    return Example(graph, outputs, wrt or None, feeds, backward, tangents)


# Of any dtype; numbers may grow, but few draws let them overflow.
OTHER_UNARY = {
    **{name: UNARY[name] for name in ("neg", "transpose", "first", "reversed", "max", "min")},
    **{
        f"to {dtype}": lambda a, dtype=dtype: a.astype(dtype)
        for dtype in ("bool", "int64", "float32", "float64", "complex64", "complex128")
    },
    "abs": ops.abs,
    "conj": ops.conj,
    "real": ops.real,
    "imag": ops.imag,
    "sign": ops.sign,
    "square": lambda a: ops.square(a * 0.25),
    "tanh": lambda a: ops.tanh(ops.real(a) if a.dtype.kind == "c" else a),
    "not": lambda a: ~a,
    "remainder": lambda a: a % 3,
    "quotient": lambda a: a // 2,
    "sum": _last_axis(ops.sum),
    "total": lambda a: a.sum(),
    "argmax": _last_axis(ops.argmax),
    "cumsum": _last_axis(ops.cumsum),
    "clip": lambda a: ops.clip(a, -1, 2),
}
OTHER_BINARY = {
    **{name: BINARY[name] for name in ("add", "subtract", "maximum", "minimum", "concatenate")},
    "multiply": lambda a, b: a * b if a.dtype.kind == "b" else a * 0.5 * b,
    "times": lambda a, b: a % 5 * b % 7,
    "matmul": lambda a, b: a @ b * 0.1,
    "equal": ops.equal,
    "less": ops.less,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "where": lambda a, b: ops.where(a.astype("bool"), b, a),
    "stack": BINARY["stack"],
}


@st.composite
def graphs_of_other_dtypes(draw, max_ops=14):
    """Draw an `Example` of bools, whole numbers, floats and complex numbers."""
    graph = ag.Graph("drawn")
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    moved = draw(st.sampled_from(["float32", "float64", "complex64", "complex128"]))
    kept = draw(st.sampled_from(["bool", "int64", moved]))
    pool = [
        graph.input("x", ("n", 4), kept),
        graph.input("y", (4,), draw(st.sampled_from(["bool", "int64", moved]))),
        graph.parameter("w", _numbers(rng, (4, 4), moved)),
        graph.parameter("s", _numbers(rng, (), moved)),
        graph.constant(_numbers(rng, (4,), kept)),
    ]
    fed, (index, places) = pool[:2], _index(draw, rng, graph, 2)
    _grow(draw, pool, OTHER_UNARY, OTHER_BINARY, index, max_ops)
    outputs = [pool[i] for i in draw(st.lists(st.integers(0, len(pool) - 1), max_size=3))]
    outputs = [node for node in (*outputs, pool[-1]) if node.op.name != "constant"] or fed[:1]
    sizes = [draw(st.integers(1, 3)) for _ in range(2)]

    def like(nodes, size):
        return {node: _numbers(rng, _shape(node, size), node.dtype) for node in nodes}

    seeded = [node for node in outputs if node.dtype.kind in "fc"]
    moving = [node for node in pool[:4] if node.dtype.kind in "fc"]
    feeds = [{**like(fed, size), **of} for size, of in zip(sizes, places, strict=True)]
    backward = [like(seeded, size) or None for size in sizes]
    return Example(graph, outputs, None, feeds, backward, [like(moving, size) for size in sizes])


def _numbers(rng, shape, dtype):
    kind = np.dtype(dtype).kind
    if kind in "bi":
        return rng.integers(0 if kind == "b" else -3, 2 if kind == "b" else 4, shape).astype(dtype)
    found = rng.normal(size=shape)
    return (found + 1j * rng.normal(size=shape) if kind == "c" else found).astype(dtype)


def _total(outputs):
    """Return whether every op of the graph is defined for an empty batch."""
    partial = {"max", "min", "mean", "logsumexp", "softmax"}
    seen = {node.op.name for node in outputs[0].graph.nodes}
    return not seen & partial


def _feeds(rng, size, dtype):
    return {
        "x": rng.normal(size=(size, 4)).astype(dtype),
        "y": rng.normal(size=4).astype(dtype),
    }


def _shape(node, size):
    sizes = {"n": size, "max": max}
    return tuple(dim if isinstance(dim, int) else eval(str(dim), {}, sizes) for dim in node.shape)


def _like(rng, node, size, dtype):
    return rng.normal(size=_shape(node, size)).astype(dtype)


def _seeds(draw, rng, outputs, size, dtype):
    if not outputs[0].ndim and draw(st.booleans()):
        return True
    seeded = draw(st.lists(st.sampled_from(range(len(outputs))), min_size=1, max_size=3))
    return {outputs[i]: _like(rng, outputs[i], size, dtype) for i in seeded}
