"""Writes the pages of ops and of NumPy functions; run ``python docs/generate.py``.

`tests/test_generated_pages.py` fails where a page is not what this writes.
"""

import ast
import re
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import getdoc, signature
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory
from textwrap import fill, indent

import numpy as np

import actorgraph as ag
from actorgraph.nn import layers
from actorgraph.op import REGISTRY
from actorgraph.ops import _numpy
from actorgraph.ops._declare import BROADCAST
from actorgraph.ops._rules import COMMON

DOCS = Path(__file__).parent

# -- what tests compare with PyTorch ----------------------------------------------------------


def compared_with_pytorch():
    """Return the names that `compared.py` has recorded."""
    return set((DOCS / "compared.txt").read_text().split())


# -- docs/ops.md ------------------------------------------------------------------------------

OPS_HEAD = """# Ops

Written by `python docs/generate.py`; do not edit. What these functions are built of is listed in
[internal_ops.md](internal_ops.md).

{count} functions of `ag.ops`, which take and return nodes. In a type `a` is any dtype, `n` a
number, `r` a real number, `x` float or complex, `f` a float, `i` an integer; `*s` any number of
dims, `*s|t` the broadcast of two shapes. A function without a type is built of several ops, and
differentiable where they are.

- *gradient*: which arguments have one ("all", "0" for the first), and whether forward mode has a
  rule.
- *PyTorch*: whether a test that compares with PyTorch runs it, as `docs/compared.py` recorded.
"""

SUBJECTS = {
    "Creation": "creation random",
    "Arithmetic and comparison": "arithmetic comparison elementwise clipping",
    "Exponentials, trigonometry and special functions": "special",
    "Reductions and statistics": "reductions counting statistics",
    "Order and search": "sorting",
    "Shapes and axes": "broadcasting reshaping shaping rearranging",
    "Indexing and writing": "indexing gathering assignment scatter_reductions embedding",
    "Linear algebra": ("linalg einsum inverses decompositions spectral matrices lu matrix_norms"),
    "Signals and Fourier transforms": "fourier sampled",
    "Activations": "activations",
    "Losses and distances": "losses criteria ctc",
    "Layers and images": "convolution pooling windows normalisation attention recurrent resampling",
    "Devices": "placement",
    "Ops of your own": "define",
}
"""The modules of `actorgraph.ops` by the subject of what they declare."""
_ELSEWHERE = {
    "add": "arithmetic", "conj": "arithmetic", "log_softmax": "activations",
    "softmax": "activations", "sum": "reductions",
    **dict.fromkeys("exp exp2 expm1 log log10 log1p log2".split(), "special"),
}  # fmt: skip


def subjects():
    """Return the public names by subject; a module without one is a `KeyError`."""
    subject = {module: title for title, names in SUBJECTS.items() for module in names.split()}
    home = {
        id(getattr(module, name)): module.__name__.rpartition(".")[2]
        for module in map(import_module, _modules())
        for name in getattr(module, "__all__", ())
    }
    found = {title: [] for title in SUBJECTS}
    for name in sorted(set(ag.ops.__all__) - {"Sample", "Together"}):
        function = getattr(ag.ops, name)
        found[subject[_ELSEWHERE.get(name) or home[id(function)]]].append(name)
    return found


def _modules():
    found = [f"actorgraph.ops.{one.name}" for one in iter_modules(ag.ops.__path__)]
    above = {getattr(ag.ops, name).__module__ for name in ag.ops.ABOVE} - {ag.ops.__name__}
    return [*dict.fromkeys([*found, *sorted(above)])]


INTERNAL_HEAD = """# Internal ops

Written by `python docs/generate.py` from the registry; do not edit. Users call the functions of
[ops.md](ops.md), which are built of these {count} ops and of those that they name.

- *shape*: what states the dims of the result where the type does not.
- *cost*: additions for an element, or "own" where a function of the shapes says it.
- *type*, *gradient*, *PyTorch*: as in ops.md.

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


def _called(name, function):
    """Return a call as its signature has it, without annotations."""
    given = signature(function)
    bare = [one.replace(annotation=one.empty) for one in given.parameters.values()]
    return f"`{name}{given.replace(parameters=bare, return_annotation=given.empty)}`"


def _said(name, function):
    if function.__name__ != name and function.__name__ in ag.ops.__all__:
        return f"Another name of `{function.__name__}`."
    return " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())


def ops_page():
    """Return the text of docs/ops.md: what users call, by subject."""
    compared, listed = compared_with_pytorch(), subjects()
    lines = [OPS_HEAD.format(count=sum(map(len, listed.values())))]
    for title, names in listed.items():
        lines += [f"## {title}", "", _row("call", "type", "gradient", "PyTorch", "what"),
                  _row(*["---"] * 5)]  # fmt: skip
        for name in names:
            function, op = getattr(ag.ops, name), REGISTRY.get(name)
            typed = ("", "") if op is None else (f"`{_scheme(op)}`", _gradient(op))
            yes = "yes" if name in compared else "no"
            lines.append(_row(_called(name, function), *typed, yes, _said(name, function)))
        lines.append("")
    return "\n".join(lines)


def internal_page():
    """Return the text of docs/internal_ops.md: the ops that are no function of `ag.ops`."""
    compared = compared_with_pytorch()
    inner = [REGISTRY[name] for name in sorted(REGISTRY) if name not in ag.ops.__all__]
    inner = [op for op in inner if not op.checked]
    head = ("op", "type", "shape", "gradient", "cost", "PyTorch", "what")
    lines = [INTERNAL_HEAD.format(count=len(inner)) + _row(*head), _row(*["---"] * len(head))]
    for op in inner:
        yes = "yes" if op.name in compared else "no"
        cells = (f"`{op.name}`", f"`{_scheme(op)}`", _shape(op), _gradient(op), _cost(op), yes)
        lines.append(_row(*cells, op.doc))
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

_UNARY = (
    "absolute arccos arcsin arcsinh arctan arctanh cbrt ceil conjugate cos cosh deg2rad degrees "
    "exp exp2 expm1 fabs floor isfinite isinf isnan log log10 log1p log2 negative positive rad2deg "
    "radians reciprocal rint sign sin sinh sqrt square tan tanh trunc angle imag real ravel "
    "atleast_1d atleast_2d atleast_3d copy fliplr flipud rot90 transpose tril triu zeros_like "
    "ones_like sum mean std var prod max min amax amin argmax argmin cumsum cumprod all any "
    "linalg.matrix_transpose "
    "count_nonzero ptp diff gradient sort argsort unique nan_to_num round around squeeze diag "
    "diagflat diagonal trace matrix_transpose flip unstack real_if_close sinc nansum nanprod "
    "nanmean nanstd nanvar nanmax nanmin nanmedian nanargmax nanargmin nancumsum nancumprod "
    "median nonzero argwhere flatnonzero average cov corrcoef trapezoid histogram "
    "histogram_bin_edges ediff1d fix iscomplex isreal isneginf isposinf unwrap unique_values "
    "unique_counts unique_inverse unique_all "
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
    "linalg.tensordot array_equiv intersect1d setdiff1d setxor1d union1d vdot isin "
    "broadcast_arrays divmod"
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
    "array": lambda x, m: np.array([x, x], like=x),
    "asarray": lambda x, m: np.asarray([[x[0, 0], 1.0], [0.0, x[1, 1]]], like=x),
    "asanyarray": lambda x, m: np.asanyarray([x, x], like=x),
    "array_split": lambda x, m: np.array_split(x, 2, axis=1),
    "astype": lambda x, m: np.astype(x, "float32"),
    "bincount": lambda x, m: np.bincount([2, 0, 2], x[0]),
    "bitwise_count": lambda x, m: np.bitwise_count(np.astype(x * 99.0, "int64")),
    "block": lambda x, m: np.block([[x, x[:, :1]], [np.zeros((1, 4))]]),
    "broadcast_to": lambda x, m: np.broadcast_to(x, (4, 2, 3)),
    "choose": lambda x, m: np.choose([1, 0, 1], [x[0], x[1]]),
    "clip": lambda x, m: np.clip(x, 0.2, 0.6),
    "compress": lambda x, m: np.compress([True, False, True], x, axis=1),
    "convolve": lambda x, m: np.convolve(x[0], x[1, :2]),
    "correlate": lambda x, m: np.correlate(x[0], x[1, :2], "full"),
    "cross": lambda x, m: np.cross(x, x * x),
    "cumulative_prod": lambda x, m: np.cumulative_prod(x, axis=1),
    "cumulative_sum": lambda x, m: np.cumulative_sum(x, axis=1, include_initial=True),
    "delete": lambda x, m: np.delete(x, [0, 2], axis=1),
    "diag": lambda x, m: np.diag(m, 1),
    "digitize": lambda x, m: np.digitize(x, [0.3, 0.6]),
    "dot": lambda x, m: np.dot(x, m),
    "dsplit": lambda x, m: np.dsplit(x[:, None], 3),
    "einsum": lambda x, m: np.einsum("ij,jk->ki", x, m),
    "expand_dims": lambda x, m: np.expand_dims(x, 1),
    "extract": lambda x, m: np.extract(x > 0.5, x),
    "flip": lambda x, m: np.flip(x, axis=1),
    "full": lambda x, m: np.full((2, 2), x[0, 0], like=x),
    "full_like": lambda x, m: np.full_like(x, 2.5),
    "geomspace": lambda x, m: np.geomspace(x[0, 0], 2.0, 5),
    "hsplit": lambda x, m: np.hsplit(x, [1]),
    "allclose": lambda x, m: np.allclose(x, x + 1e-9),
    "argpartition": lambda x, m: np.argpartition(x, 1),
    "array_equal": lambda x, m: np.array_equal(x, x),
    "insert": lambda x, m: np.insert(x, 1, x[:, 0], axis=1),
    "interp": lambda x, m: np.interp(x, [0.0, 0.5, 1.0], x[0]),
    "isclose": lambda x, m: np.isclose(x, 0.5, rtol=0.3),
    "lexsort": lambda x, m: np.lexsort((x[0], np.round(x[1]))),
    "logspace": lambda x, m: np.logspace(x[0, 0], 1.0, 4),
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
    "nanpercentile": lambda x, m: np.nanpercentile(x, [20, 70], axis=1),
    "nanquantile": lambda x, m: np.nanquantile(x, 0.3, axis=0),
    "percentile": lambda x, m: np.percentile(x, [20, 70], axis=1),
    "piecewise": lambda x, m: np.piecewise(x, [x < 0.3, x > 0.6], [-1.0, lambda y: y * y, 0.0]),
    "polyadd": lambda x, m: np.polyadd(x[0], x[1, 1:]),
    "polyder": lambda x, m: np.polyder(x[0], 2),
    "polyint": lambda x, m: np.polyint(x[0], 2),
    "polymul": lambda x, m: np.polymul(x[0], x[1, 1:]),
    "polysub": lambda x, m: np.polysub(x[0, 1:], x[1]),
    "empty_like": lambda x, m: np.where(x < 0, np.empty_like(x), 1.0),
    "polyval": lambda x, m: np.polyval(x[0], x),
    "quantile": lambda x, m: np.quantile(x, 0.3, axis=0, method="hazen"),
    "ravel_multi_index": lambda x, m: np.ravel_multi_index(
        np.unravel_index(np.argsort(x[0]), (2, 2)), (2, 2)
    ),
    "unravel_index": lambda x, m: np.unravel_index(np.argsort(x[0]), (2, 2)),
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


NUMPY_HEAD = """# NumPy functions on nodes

Written by `python docs/generate.py`; do not edit.

A NumPy function of nodes builds nodes: `np.tanh(x @ W)`. Parameters that a graph cannot honour
(`out`, `dtype`) raise. Functions that create arrays do so of nodes with `like=`, any node:
`np.array([[x, y], [y, x]], like=x)`; `ag.ops.array` needs no `like=`. Where NumPy's dtype would
depend on values (`np.real_if_close` of complex numbers) nodes raise.

## What HIPS autograd differentiates

All {count} functions of `autograd.numpy` that have derivatives work on nodes, under their NumPy
names.
"""


def numpy_page():
    """Return the text of docs/numpy.md."""
    more = [name for name in _numpy.names() if name not in AUTOGRAD]
    lines = [NUMPY_HEAD.format(count=len(AUTOGRAD)), _listed(AUTOGRAD)]
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


# -- actorgraph/ops/__init__.pyi --------------------------------------------------------------

STUB = "../actorgraph/ops/__init__.pyi"
STUB_HEAD = '''"""What `actorgraph.ops` exports, for editors and type checkers.

Written by `python docs/generate.py`; do not edit.
"""

from collections.abc import Callable
from typing import Any

from actorgraph.graph import Node
from actorgraph.op import Sample as Sample, Together as Together

ABOVE: dict[str, Callable[[], Any] | None]
LATE: dict[str, str]
'''


@cache
def _written(module):
    """Return the docstrings of the functions that the module's text defines, by name."""
    body = ast.parse(Path(module.__file__).read_text()).body
    return {one.name: ast.get_docstring(one) for one in body if isinstance(one, ast.FunctionDef)}


def ops_stub():
    """Return the stub: functions whose text says enough by import, the others by `def`."""
    public = [one for one in map(import_module, _modules()) if "._" not in one.__name__]
    own = {name: _own(module, name) for module in public for name in module.__all__}
    imports, declared = [], []
    for module in public:
        plain = [name for name in module.__all__ if _is_whole(name, own)]
        if plain:
            names = ", ".join(f"{name} as {name}" for name in plain)
            imports.append(f"from {module.__name__} import {names}")
        declared += [(name, getattr(module, name)) for name in module.__all__ if name not in plain]
    return STUB_HEAD + "\n".join([*imports, "", *(_stub_of(*one) for one in sorted(declared))])


_BARE = re.compile(r"[\w, ]+ : \w+(, optional)?")
"""An entry that says what the signature says."""
_USUAL = {"    Any shape.", *BROADCAST.split("\n")}.union(
    *((name.partition(":")[0] + said).split("\n") for name, said in COMMON.items())
)
"""What entries say that mean the same in every function."""


def _own(module, name):
    """Return the text that a function is written with, which editors read; None if it is made."""
    function = getattr(module, name)
    function = getattr(function, "__wrapped__", function)  # all are wrapped, see `ops._foreign`
    written = _written(module)
    inner = getattr(function, "__wrapped__", None)
    made = inner is not None and inner.__name__ not in written
    return None if made else written.get(function.__name__)


def _is_whole(name, own):
    """Return whether a function's own text says what its parameters mean, or names who does."""
    followed, said = {}, own[name]
    while said is not None and (new := {*re.findall(r"`(\w+)`", said)} & {*own} - {*followed}):
        followed |= {one: own[one] or getdoc(getattr(ag.ops, one)) for one in new}
        said = "\n".join([own[name], *followed.values()])
    return said is not None and _parameters(getattr(ag.ops, name)) <= {*said.split("\n")}


def _parameters(function):
    """Return the lines about parameters that say more than the signature, and nothing usual."""
    found = re.search(r"(?ms)^Parameters\n-+\n(.*?)(?:\n\n|\Z)", getdoc(function))
    lines = found[1].split("\n") if found else []
    return {line for line in lines if line not in _USUAL and not _BARE.fullmatch(line)}


def _stub_of(name, function):
    last = "Returns|Raises|Examples" if _parameters(function) else "Parameters|Examples"
    doc = re.split(rf"\n\n(?:{last})\n", getdoc(function))[0].replace("\\", "\\\\")
    text = indent(f'"""{doc}', "    ") + ("\n    " if "\n" in doc else "") + '"""'
    given = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature(function)))
    return f"def {name}{given}:\n{text}\n"


# -- actorgraph/nn/layers.pyi -----------------------------------------------------------------

LAYERS = "../actorgraph/nn/layers.pyi"
LAYERS_HEAD = '''"""The layers of functions, for editors and type checkers.

Written by `python docs/generate.py`; do not edit.
"""

from typing import Any

from actorgraph.nn.stateless import Stateless
'''


def layers_stub():
    """Return the stub of the table of layers: a class and its settings for each function."""
    names = ", ".join(f'"{name}"' for name in layers.__all__)
    listed = fill(f"{names},", 100, initial_indent="    ", subsequent_indent="    ")
    return f"{LAYERS_HEAD}\n__all__ = [\n{listed}\n]\n" + "".join(map(_layer, layers.__all__))


def _told(default):
    return "..." if isinstance(default, float) and np.isinf(default) else repr(default)


def _layer(name):
    layer = getattr(layers, name)
    doc = getdoc(layer).split("\n\n")[0]
    known = signature(layer._of).parameters
    theirs = {ours: known[name].annotation for name, ours in layer._names.items()}
    settings = [
        f"{one.name}: {theirs[one.name]}"
        + ("" if one.default is one.empty else f" = {_told(one.default)}")
        for one in signature(layer).parameters.values()
    ]
    return (
        f'\nclass {name}(Stateless):\n    """{doc}"""\n\n'
        f"    def __init__({', '.join(['self', *settings])}) -> None: ...\n"
    )


def errors_page():
    """Return what `actorgraph explain` reads."""
    return (DOCS.parent / "actorgraph/explanations.md").read_text()


MESSAGES = DOCS.parent / "actorgraph/serving/messages"


def messages():
    """Return the messages of gRPC, compiled; needs grpcio-tools."""
    from grpc_tools import protoc

    with TemporaryDirectory() as folder:
        target = Path(folder, "messages.pb")
        sources = [path.name for path in sorted(MESSAGES.glob("*.proto"))]
        status = protoc.main(["", f"-I{MESSAGES}", f"--descriptor_set_out={target}", *sources])
        if status:
            raise SystemExit("the messages of gRPC do not compile")
        return target.read_bytes()


PAGES = {
    "errors.md": errors_page, "ops.md": ops_page, "internal_ops.md": internal_page,
    "numpy.md": numpy_page, STUB: ops_stub, LAYERS: layers_stub,
}  # fmt: skip
"""What writes each page."""


if __name__ == "__main__":
    for page, write in PAGES.items():
        (DOCS / page).write_text(write())
        sys.stdout.write(f"wrote {page}\n")
    if find_spec("grpc_tools") is not None:
        (MESSAGES / "messages.pb").write_bytes(messages())
        sys.stdout.write("wrote messages.pb\n")
