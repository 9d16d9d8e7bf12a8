"""Writes docs/ops.md and docs/numpy.md from the registry of ops; run ``python docs/generate.py``.

`tests/test_generated_pages.py` fails where a page is not what this writes.
"""

import sys
from pathlib import Path

import numpy as np

import actorgraph as ag
from actorgraph.errors import GraphError
from actorgraph.op import REGISTRY
from actorgraph.ops import _numpy

DOCS = Path(__file__).parent

# -- what tests compare with PyTorch ----------------------------------------------------------


def compared_with_pytorch():
    """Return the names that `compared.py` has recorded."""
    return set((DOCS / "compared.txt").read_text().split())


# -- docs/ops.md ------------------------------------------------------------------------------

OPS_HEAD = """# Ops

Written by `python docs/generate.py` from the registry; do not edit.

{count} ops and {composites} functions built of them. In a type `a` is any dtype, `n` a number, `r`
a real number, `x` float or complex, `f` a float, `i` an integer; `*s` any number of dims, `*s|t`
the broadcast of two shapes.

- *shape*: what states the dims of the result where the type does not.
- *gradient*: which arguments have one ("all", "0" for the first), and whether forward mode has a
  rule.
- *cost*: additions for an element, or "own" where a function of the shapes says it.
- *PyTorch*: whether a test that compares with PyTorch runs it, as `docs/compared.py` recorded.

"""


def _scheme(op):
    sample = op.samples[0]
    return str(op.signature(len(sample.shapes), sample.attrs))


def _shape(op):
    if op.shape is None:
        return "by type"
    name = getattr(op.shape, "__name__", "")
    return "own" if name == "<lambda>" else name.strip("_").replace("_", " ")


def _gradient(op):
    arity = len(op.samples[0].shapes)
    if op.vjp is None:
        return "-"
    if isinstance(op.vjp, tuple):
        given = [str(i) for i, rule in enumerate(op.vjp) if rule is not None]
        which = "all" if len(given) == arity else ", ".join(given)
    else:
        which = "all"
    return (which or "-") + (", forward" if op.jvp is not None and which else "")


def _cost(op):
    if op.cost is None:
        return "1"
    flops = [op.flops(((n,),) * len(op.samples[0].shapes), (n,), {}) for n in (1000, 2000)] if (
        getattr(op.cost, "__qualname__", "").startswith("nary_elementwise")
    ) else None  # fmt: skip
    return "own" if flops is None else f"{flops[0] / 1000:g}"


def _row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def ops_page():
    """Return the text of docs/ops.md."""
    own = sorted((op for op in REGISTRY.values() if not op.checked), key=lambda op: op.name)
    compared = compared_with_pytorch()
    public = [
        name
        for name in ag.ops.__all__
        if name not in REGISTRY and name not in ("Sample", "Together")
    ]
    lines = [OPS_HEAD.format(count=len(own), composites=len(public))]
    lines += ["## Ops", "", _row("op", "type", "shape", "gradient", "cost", "PyTorch", "what"),
              _row(*["---"] * 7)]  # fmt: skip
    for op in own:
        yes = "yes" if op.name in compared else "no"
        lines.append(
            _row(
                f"`{op.name}`",
                f"`{_scheme(op)}`",
                _shape(op),
                _gradient(op),
                _cost(op),
                yes,
                op.doc,
            )
        )
    lines += ["", "## Functions built of ops", "",
              "Their gradients are those of the ops that they are built of.", "",
              _row("function", "PyTorch", "what"), _row(*["---"] * 3)]  # fmt: skip
    for name in public:
        function = getattr(ag.ops, name)
        first = (function.__doc__ or "").strip().split("\n\n")[0]
        if function.__name__ != name and function.__name__ in public:
            first = f"Another name of `{function.__name__}`."
        yes = "yes" if name in compared else "no"
        lines.append(_row(f"`{name}`", yes, " ".join(first.split())))
    return "\n".join(lines) + "\n"


# -- docs/numpy.md ----------------------------------------------------------------------------

AUTOGRAD = (
    "absolute add amax amin angle append arccos arccosh arcsin arcsinh arctan arctan2 arctanh "
    "array array_split astype atleast_1d atleast_2d atleast_3d broadcast_to clip column_stack "
    "concatenate conjugate cos cosh cross cumsum deg2rad degrees diag diagonal diff divide dot "
    "dsplit einsum exp exp2 expand_dims expm1 fabs fliplr flipud fmax fmin full gradient hsplit "
    "hstack hypot imag inner kron linspace log log10 log1p log2 logaddexp logaddexp2 matmul max "
    "maximum mean min minimum moveaxis multiply nan_to_num negative outer pad partition power "
    "prod rad2deg radians ravel real real_if_close reciprocal remainder repeat reshape roll "
    "rollaxis rot90 select sin sinc sinh sort split sqrt square squeeze stack std subtract sum "
    "swapaxes take tan tanh tensordot tile trace transpose tril triu var vsplit vstack where "
    "fft.fft fft.fft2 fft.fftn fft.fftshift fft.ifft fft.ifft2 fft.ifftn fft.ifftshift "
    "fft.irfft fft.irfft2 fft.irfftn fft.rfft fft.rfft2 fft.rfftn linalg.cholesky linalg.det "
    "linalg.eig linalg.eigh linalg.inv linalg.norm linalg.pinv linalg.slogdet linalg.solve "
    "linalg.svd"
).split()
"""What HIPS autograd 1.9 differentiates under ``autograd.numpy``."""

MISSING = {
    "array": "a list of nodes is joined by `np.stack`",
    "full": "NumPy does not ask its arguments; use `ag.ops.full`",
    "real_if_close": "the dtype would depend on values; use `np.real`",
}
"""Why a name of `AUTOGRAD` does not work on nodes."""

_UNARY = (
    "absolute arccos arcsin arcsinh arctan arctanh cbrt ceil conjugate cos cosh deg2rad degrees "
    "exp exp2 expm1 fabs floor isfinite isinf isnan log log10 log1p log2 negative positive rad2deg "
    "radians reciprocal rint sign sin sinh sqrt square tan tanh trunc angle imag real ravel "
    "atleast_1d atleast_2d atleast_3d copy fliplr flipud rot90 transpose tril triu zeros_like "
    "ones_like sum mean std var prod max min amax amin argmax argmin cumsum cumprod all any "
    "linalg.matrix_transpose "
    "count_nonzero ptp diff gradient sort argsort unique nan_to_num round around squeeze diag "
    "diagflat diagonal trace matrix_transpose flip unstack array real_if_close sinc "
    "fft.fft fft.fft2 fft.fftn fft.fftshift fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.rfft "
    "fft.rfft2 fft.rfftn fft.irfft fft.irfft2 fft.irfftn "
    "fft.hfft fft.ihfft frexp i0 modf signbit spacing "
    "linalg.diagonal linalg.matrix_norm linalg.norm linalg.pinv linalg.svdvals linalg.qr "
    "linalg.trace linalg.vector_norm"
).split()
_BINARY = (
    "add append arctan2 copysign divide equal floor_divide fmax fmin fmod greater greater_equal "
    "heaviside hypot inner kron less less_equal logaddexp logaddexp2 maximum minimum multiply "
    "nextafter not_equal outer power remainder subtract float_power linalg.vecdot vecdot tensordot "
    "linalg.tensordot"
).split()
_BITS = "gcd lcm left_shift right_shift".split()
_LOGICAL = "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor".split()
_SQUARE = (
    "linalg.cholesky linalg.cond linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh "
    "linalg.inv"
).split()
_JOINS = "column_stack concatenate dstack hstack stack vstack".split()


def _function(name):
    found = np
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _on_x(function):
    return lambda x, m: function(x)


def _on_m(function):
    return lambda x, m: function(m)


def _on_two(function):
    return lambda x, m: function(x, x + 0.5)


def _on_ints(function):
    return lambda x, m: function(np.astype(x * 99.0, "int64"), 3)


def _on_bools(function):
    return lambda x, m: function(x > 0.5, x > 0.3)


def _on_list(function):
    return lambda x, m: function([x, x * 2.0])


def _tables():
    """Return a sample call of each function, of x (2, 3) in (0.1, 0.9) and positive definite m."""
    tables = {
        _on_x: _UNARY,
        _on_m: _SQUARE,
        _on_two: _BINARY,
        _on_ints: _BITS,
        _on_bools: _LOGICAL,
        _on_list: _JOINS,
    }
    return {
        name: call(_function(name))
        for call, names in tables.items()
        for name in names
        if _has(name)
    }


def _has(name):
    try:
        _function(name)
    except AttributeError:
        return False
    return True


CALLS = _tables() | {
    "arccosh": lambda x, m: np.arccosh(x + 1.0),
    "array": lambda x, m: np.array([x, x]),
    "array_split": lambda x, m: np.array_split(x, 2, axis=1),
    "astype": lambda x, m: np.astype(x, "float32"),
    "bitwise_count": lambda x, m: np.bitwise_count(np.astype(x * 99.0, "int64")),
    "broadcast_to": lambda x, m: np.broadcast_to(x, (4, 2, 3)),
    "clip": lambda x, m: np.clip(x, 0.2, 0.6),
    "cross": lambda x, m: np.cross(x, x * x),
    "diag": lambda x, m: np.diag(m, 1),
    "dot": lambda x, m: np.dot(x, m),
    "dsplit": lambda x, m: np.dsplit(x[:, None], 3),
    "einsum": lambda x, m: np.einsum("ij,jk->ki", x, m),
    "expand_dims": lambda x, m: np.expand_dims(x, 1),
    "flip": lambda x, m: np.flip(x, axis=1),
    "full": lambda x, m: np.full((2, 2), x[0, 0]),
    "full_like": lambda x, m: np.full_like(x, 2.5),
    "hsplit": lambda x, m: np.hsplit(x, [1]),
    "allclose": lambda x, m: np.allclose(x, x + 1e-9),
    "argpartition": lambda x, m: np.argpartition(x, 1),
    "array_equal": lambda x, m: np.array_equal(x, x),
    "isclose": lambda x, m: np.isclose(x, 0.5, rtol=0.3),
    "invert": lambda x, m: np.invert(x > 0.5),
    "ldexp": lambda x, m: np.ldexp(x, np.array([1, 2, -3])),
    "linalg.cross": lambda x, m: np.linalg.cross(x, x * x),
    "linalg.matmul": lambda x, m: np.linalg.matmul(x, m),
    "linalg.matrix_power": lambda x, m: np.linalg.matrix_power(m, 3),
    "linalg.lstsq": lambda x, m: np.linalg.lstsq(m, x[0]),
    "linalg.matrix_rank": lambda x, m: np.linalg.matrix_rank(m),
    "linalg.multi_dot": lambda x, m: np.linalg.multi_dot([x, m, x[0]]),
    "linalg.outer": lambda x, m: np.linalg.outer(x[0], x[1]),
    "linalg.slogdet": lambda x, m: np.linalg.slogdet(m),
    "linalg.solve": lambda x, m: np.linalg.solve(m, x[0]),
    "linalg.svd": lambda x, m: np.linalg.svd(x, full_matrices=False),
    "linalg.tensordot": lambda x, m: np.linalg.tensordot(x, m, axes=1),
    "linalg.tensorinv": lambda x, m: np.linalg.tensorinv(m, ind=1),
    "linalg.tensorsolve": lambda x, m: np.linalg.tensorsolve(m, x[0]),
    "linspace": lambda x, m: np.linspace(x[0, 0], 2.0, 5),
    "logical_not": lambda x, m: np.logical_not(x > 0.5),
    "matmul": lambda x, m: np.matmul(x, m),
    "matvec": lambda x, m: np.matvec(m, x),
    "meshgrid": lambda x, m: np.meshgrid(x[0], x[1]),
    "moveaxis": lambda x, m: np.moveaxis(x, 0, -1),
    "pad": lambda x, m: np.pad(x, ((1, 0), (0, 2)), "reflect"),
    "partition": lambda x, m: np.partition(x, 1),
    "repeat": lambda x, m: np.repeat(x, 2, axis=1),
    "reshape": lambda x, m: np.reshape(x, (3, -1)),
    "roll": lambda x, m: np.roll(x, 1, axis=1),
    "rollaxis": lambda x, m: np.rollaxis(x, 1),
    "searchsorted": lambda x, m: np.searchsorted(np.sort(x[0]), x),
    "select": lambda x, m: np.select([x > 0.5], [x], 0.0),
    "split": lambda x, m: np.split(x, [1, 2], axis=1),
    "swapaxes": lambda x, m: np.swapaxes(x, 0, 1),
    "take": lambda x, m: np.take(x, [2, 0], axis=1),
    "take_along_axis": lambda x, m: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "tensordot": lambda x, m: np.tensordot(x, m, axes=1),
    "tile": lambda x, m: np.tile(x, (2, 1)),
    "vander": lambda x, m: np.vander(x[0], 4),
    "vecmat": lambda x, m: np.vecmat(x, m),
    "vsplit": lambda x, m: np.vsplit(x, 2),
    "where": lambda x, m: np.where(x > 0.5, x, 0.0),
}
"""A call of each listed function, which tests compare with NumPy's own."""


def arrays():
    """Return the arguments of `CALLS`."""
    x = np.random.default_rng(3).uniform(0.1, 0.9, (2, 3))
    return x, x.T @ x + np.eye(3)


def works(name):
    """Return whether the sample call of a NumPy function builds a node."""
    graph = ag.Graph()
    x, m = (graph.input(name, value.shape, value.dtype) for name, value in zip("xm", arrays()))
    try:
        CALLS[name](x, m)
    except (GraphError, TypeError):
        return False
    return True


NUMPY_HEAD = """# NumPy functions on nodes

Written by `python docs/generate.py`; do not edit.

A NumPy function of nodes builds nodes: `np.tanh(x @ W)`. Parameters that a graph cannot honour
(`out`, `where`, `dtype`) raise.

## What HIPS autograd differentiates

{works} of the {all} functions of `autograd.numpy` that have derivatives work on nodes under their
NumPy names.
"""


def numpy_page():
    """Return the text of docs/numpy.md."""
    found = {name: works(name) for name in AUTOGRAD}
    lines = [NUMPY_HEAD.format(works=sum(found.values()), all=len(found))]
    lines += [_listed(name for name, ok in found.items() if ok)]
    lines += ["", "### Missing", "", _row("function", "why, or what to use"), _row("---", "---")]
    lines += [
        _row(f"`np.{name}`", MISSING.get(name, "no op yet")) for name, ok in found.items() if not ok
    ]
    more = [name for name in _numpy.names() if name not in found]
    lines += ["", "## Besides", "", "Without derivatives, or not in autograd.", "", _listed(more)]
    return "\n".join(lines) + "\n"


def _listed(names):
    text, line = [], ""
    for name in names:
        word = f"`{name}`"
        if len(line) + len(word) > 98:
            text.append(line)
            line = ""
        line += (" " if line else "") + word
    return "\n".join([*text, line])


PAGES = {"ops.md": ops_page, "numpy.md": numpy_page}
"""What writes each page."""


if __name__ == "__main__":
    for page, write in PAGES.items():
        (DOCS / page).write_text(write())
        sys.stdout.write(f"wrote docs/{page}\n")
