"""Comparisons of elementwise functions and of reductions; see `_oracle`."""

import numpy as np
import pytest

import actorgraph as ag
from tests.ops._oracle import alike, both, row, torch

scipy_special = pytest.importorskip("scipy.special")
special, F = torch.special, torch.nn.functional

INTS = [[0, 1, 5], [255, 12, 3]]
HOLES = np.array([[1.5, np.nan, -2.0], [3.0, 0.25, -1.0]])


def of_numpy(function):
    """Return a function of tensors that NumPy or SciPy computes; it has no gradient."""
    return lambda *ts: torch.as_tensor(function(*(t.numpy(force=True) for t in ts)))


def of_derivatives(function, *derivatives):
    """Return a function of tensors by NumPy or SciPy with its first derivatives, in order."""

    class Known(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return of_numpy(function)(t)

        @staticmethod
        def backward(ctx, ct):
            (t,) = ctx.saved_tensors
            return ct * of_derivatives(*derivatives)(t)

    return Known.apply


def bessel(kind, prime, order):
    """Return a Bessel function of PyTorch with the derivatives of SciPy."""
    return of_derivatives(
        lambda x: getattr(scipy_special, kind)(x),
        *(lambda x, n=n: prime(order, x, n).astype(x.dtype) for n in (1, 2, 3)),
    )


alike("cos sin tanh arcsinh arctan sinh cosh exp expm1 exp2 square neg sigmoid", low=-1.5)
row("sign", None, torch.sgn)
alike("abs relu ceil floor trunc frac deg2rad rad2deg angle")
alike("arccos arcsin arctanh", low=-0.9, high=0.9)
alike("log log10 log2 log1p sqrt rsqrt reciprocal digamma lgamma psi:digamma", low=0.3, high=4)
alike("tan", low=-1.3, high=1.3)
alike("arccosh", low=1.2, high=6)
alike("erf erfc ndtr log_ndtr i0 i0e i1 i1e erfcx", space=special, tolerance=1e3)
alike("erfinv", space=special, low=-0.9, high=0.9, tolerance=1e3)
alike("ndtri", space=special, low=0.05, high=0.95, tolerance=1e3)
alike("entr", space=special, low=0.3)
alike("logit", low=0.05, high=0.95)
alike("celu elu gelu hardshrink hardswish hardtanh leaky_relu logsigmoid mish relu6 "
      "selu silu softplus softshrink tanhshrink", space=F, low=-2.6, high=3.4,
      tolerance=10)  # fmt: skip
both("threshold", lambda f, x: f.threshold(x, 0.3, -2.0), space=F)
row("rrelu", lambda x: ag.ops.rrelu(x, 0.1, 0.3), lambda t: F.rrelu(t, 0.1, 0.3))
row("prelu", None, F.prelu, (2, 3, 4), (3,))
row("glu", lambda x: ag.ops.glu(x, 1), lambda t: t[:, :2] * torch.sigmoid(t[:, 2:]))
row("cbrt", None, lambda t: t.abs() ** (1 / 3) * t.sign())
row("softsign", None, lambda t: t / (1 + t.abs()))
row("hardsigmoid", None, lambda t: F.relu6(t + 3) / 6, low=-5, high=5)
row("cube", None, lambda t: t**3)
row("cot", lambda x: ag.ops.cot(x), lambda t: 1 / torch.tan(t), low=0.3, high=2.8)
row("csc", lambda x: ag.ops.csc(x), lambda t: 1 / torch.sin(t), low=0.3, high=2.8)
row("sec", lambda x: ag.ops.sec(x), lambda t: 1 / torch.cos(t), low=-1.2, high=1.2)
row("conj", None, lambda t: torch.conj(t).resolve_conj())
row("real", None, lambda t: torch.real(t) if t.is_complex() else t * 1)
row("imag", None, lambda t: torch.imag(t) if t.is_complex() else t * 0)
row("sinc", None, torch.sinc)
row("gelu_tanh", lambda x: ag.ops.gelu(x, approximate="tanh"),
    lambda t: F.gelu(t, approximate="tanh"))  # fmt: skip
row("polygamma", lambda x: ag.ops.polygamma(2, x), lambda t: torch.polygamma(2, t), low=0.5,
    tolerance=1e3)  # fmt: skip
for order in (1, 3):
    row(f"polygamma {order}", lambda x, k=order: ag.ops.polygamma(k, x),
        lambda t, k=order: torch.polygamma(k, t), low=0.5, tolerance=1e3)  # fmt: skip
row("multigammaln", lambda x: ag.ops.multigammaln(x, 3), lambda t: torch.mvlgamma(t, 3), low=2,
    high=5, tolerance=10)  # fmt: skip
row("zeta", lambda x: ag.ops.zeta(2.5, x), lambda t: special.zeta(2.5, t), low=0.5, second=False,
    tolerance=1e3)  # fmt: skip
for kind, prime in (("i", None), ("j", scipy_special.jvp), ("y", scipy_special.yvp),
                    ("k", scipy_special.kvp)):  # fmt: skip
    for order in (0, 1) if prime else ():
        row(f"{kind}{order}", None, bessel(f"{kind}{order}", prime, order), low=0.5, high=4)
for order in (0, 1):
    plain = bessel(f"k{order}", scipy_special.kvp, order)
    row(f"k{order}e", None, lambda t, plain=plain: torch.exp(t) * plain(t), low=0.5, high=4)

alike("add divide:div subtract:sub multiply:mul maximum minimum fmax fmin arctan2 hypot "
      "logaddexp logaddexp2 copysign", (3, 4), (4,))  # fmt: skip
alike("power:pow float_power", (3, 4), (4,), low=0.3)
row("fmod", None, torch.fmod, (3, 4), (4,), low=0.3)
row("mod", None, torch.remainder, (3, 4), (4,), low=0.3)
alike("xlogy xlog1py", (3, 4), (4,), space=special, low=0.3)
row("ldexp", None, torch.ldexp, (3, 4), ints=[[1, 0, 3, 2]])
row("frexp", lambda x: ag.ops.frexp(x), lambda t: tuple(torch.frexp(t)))
row("modf", None, lambda t: (torch.frac(t), torch.trunc(t)))
row("lerp", None, torch.lerp, (3, 4), (4,), (3, 1))
row("where", lambda x, y, c: ag.ops.where(c, x, y), lambda x, y, c: torch.where(c, x, y), (3, 4),
    (4,), ints=[[[True], [False], [True]]])  # fmt: skip
row("clip", None, torch.clip, (3, 4), (4,), (3, 1))
row("astype", lambda x: ag.ops.astype(x, "complex64"), lambda t: t.to(torch.complex64),
    tolerance=1e3)  # fmt: skip
row("clip_by_norm", lambda x: ag.ops.clip_by_norm(x, 1.5),
    lambda t: t * 1.5 / torch.linalg.vector_norm(t))  # fmt: skip
row("clip_by_global_norm", lambda x, y: ag.ops.clip_by_global_norm([x, y], 1.5)[0],
    lambda x, y: [part * 1.5 / torch.sqrt((x.abs() ** 2).sum() + (y.abs() ** 2).sum())
                  for part in (x, y)], (3,), (2, 2), tolerance=1e4)  # fmt: skip
row("to_device", lambda x: ag.ops.to_device(x, "cpu"), lambda t: t.clone())
row("opaque", lambda x: ag.ops.opaque(
        np.tanh, vjp=(lambda ct, y, x: ct * ag.ops.conj(1 - y * y),),
        jvp=lambda ts, y, x: ts[0] * (1 - y * y)
    )(x), torch.tanh)  # fmt: skip

# -- no gradient ----------------------------------------------------------------------------------

alike("equal:eq greater:gt greater_equal:ge less:lt less_equal:le not_equal:ne", (3, 4), (4,))
for name in ("heaviside", "floor_divide", "nextafter"):
    row(name, None, lambda t, u, name=name: getattr(torch, name)(t.detach(), u.detach()), (3, 4),
        (4,))  # fmt: skip
alike("signbit isfinite isinf isnan ones_like zeros_like")
row("round", None, lambda t: torch.view_as_complex(torch.round(torch.view_as_real(t)))
    if t.is_complex() else torch.round(t))  # fmt: skip
for name in ("logical_and", "logical_or", "logical_xor"):
    row(name, lambda x, y, name=name: getattr(ag.ops, name)(x != 0, y != 0),
        lambda t, u, name=name: getattr(torch, name)(t, u),
        given=[np.array([[0, 1, 0], [2, 0, 0.5]]), np.array([0, 1.0, 1])])  # fmt: skip
row("logical_not", lambda x: ag.ops.logical_not(x != 0), torch.logical_not,
    given=[np.array([0, 1, 0.5])])  # fmt: skip
row("full_like", lambda x: ag.ops.full_like(x, 2.5), lambda t: torch.full_like(t, 2.5))
row("spacing", lambda x: ag.ops.spacing(abs(x)),
    lambda t: torch.nextafter(t.abs(), torch.full_like(t, np.inf)) - t.abs())  # fmt: skip
alike("isclose allclose isin", (3, 4), (4,))
row("array_equal", None, torch.equal, (3, 4), (3, 4))
for name, theirs in {
    "bitwise_and": torch.bitwise_and, "bitwise_or": torch.bitwise_or, "gcd": torch.gcd,
    "bitwise_xor": torch.bitwise_xor, "lcm": torch.lcm, "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift,
}.items():  # fmt: skip
    row(name, lambda x, i, j, name=name: getattr(ag.ops, name)(i, j),
        lambda x, i, j, theirs=theirs: theirs(i, j), (1,), ints=[INTS, [1, 2, 3]])  # fmt: skip
row("bitwise_not", lambda x, i: ag.ops.bitwise_not(i), lambda x, i: ~i, (1,), ints=[INTS])
row("bitwise_count", lambda x, i: ag.ops.bitwise_count(i),
    lambda x, i: of_numpy(np.bitwise_count)(i),
    (1,), ints=[INTS])  # fmt: skip

# -- reductions and running ones ------------------------------------------------------------------

for name, theirs in {
    "sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin,
    "logsumexp": torch.logsumexp,
    "prod": torch.prod, "cumsum": torch.cumsum, "cumprod": torch.cumprod, "cummax": torch.cummax,
    "cummin": torch.cummin, "logcumsumexp": torch.logcumsumexp, "softmax": torch.softmax,
    "log_softmax": torch.log_softmax, "softmin": F.softmin, "mode": torch.mode, "sort": torch.sort,
    "argsort": torch.argsort, "argmax": torch.argmax, "argmin": torch.argmin, "any": torch.any,
    "all": torch.all, "count_nonzero": torch.count_nonzero,
}.items():  # fmt: skip
    row(name, lambda x, name=name: getattr(ag.ops, name)(x, 1),
        lambda t, theirs=theirs: theirs(t, 1) if theirs is not torch.sort else theirs(t, 1)[0],
        (3, 4, 2), second=name != "cummax")  # fmt: skip
row("var", lambda x: ag.ops.var(x, 1), lambda t: torch.var(t, 1, correction=0))
row("std", lambda x: ag.ops.std(x, 1, ddof=1), lambda t: torch.std(t, 1))
row("norm", lambda x: ag.ops.norm(x, 3, 1), lambda t: torch.linalg.vector_norm(t, 3, 1))
row("vector_norm", lambda x: ag.ops.vector_norm(x, 3, 1),
    lambda t: torch.linalg.vector_norm(t, 3, 1))  # fmt: skip
row("aminmax", lambda x: ag.ops.aminmax(x, 1), lambda t: torch.aminmax(t, dim=1))
row("median", lambda x: ag.ops.median(x, 1), lambda t: torch.quantile(t, 0.5, 1))
both("quantile", lambda f, x: f.quantile(x, 0.3, 1))
row("percentile", lambda x: ag.ops.percentile(x, 30, 1), lambda t: torch.quantile(t, 0.3, 1))
row("kthvalue", lambda x: ag.ops.kthvalue(x, 2, 1), lambda t: torch.kthvalue(t, 2, 1))
row("topk", lambda x: ag.ops.topk(x, 2, 1), lambda t: torch.topk(t, 2, 1))
row("unique", lambda x, i: ag.ops.unique(i, return_inverse=True, return_counts=True),
    lambda x, i: torch.unique(i, return_inverse=True, return_counts=True), (1,),
    ints=[[3, 1, 3, 2]])  # fmt: skip
row("searchsorted", lambda x, y: ag.ops.searchsorted(ag.ops.sort(x), y),
    lambda t, u: torch.searchsorted(torch.sort(t)[0], u), (5,), (4,))  # fmt: skip
row("sparsemax", None, lambda t: _sparsemax(t))


def _sparsemax(t):
    """The projection on the simplex by its definition: the support from the sorted row."""
    ordered = t.sort(-1, descending=True)[0]
    count = torch.arange(1, t.shape[-1] + 1, dtype=t.dtype)
    k = (1 + count * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
    tau = (ordered.cumsum(-1).gather(-1, k - 1) - 1) / k
    return torch.relu(t - tau)


# -- what passes over NaN -------------------------------------------------------------------------


def without(value):
    """Return a function that puts a value in the place of NaN."""
    return lambda t: torch.where(t.isnan(), torch.full_like(t, value), t)


def of_rows(function):
    """Return a function of the values of each row that are not NaN, stacked."""
    return lambda t: torch.stack([function(part[~part.isnan()]) for part in t])


for name, theirs in {
    "nansum": lambda t: without(0)(t).sum(1),
    "nanmean": of_rows(torch.mean),
    "nanmax": lambda t: torch.amax(without(-np.inf)(t), 1),
    "nanmin": lambda t: torch.amin(without(np.inf)(t), 1),
    "nanprod": lambda t: torch.prod(without(1)(t), 1),
    "nancumsum": lambda t: torch.cumsum(without(0)(t), 1),
    "nancumprod": lambda t: torch.cumprod(without(1)(t), 1),
    "nanvar": of_rows(lambda part: torch.var(part, correction=0)),
    "nanstd": of_rows(lambda part: torch.std(part, correction=0)),
    "nanmedian": lambda t: torch.nanquantile(t, 0.5, 1),
    "nanargmax": lambda t: torch.argmax(without(-np.inf)(t), 1),
    "nanargmin": lambda t: torch.argmin(without(np.inf)(t), 1),
}.items():
    row(name, lambda x, name=name: getattr(ag.ops, name)(x, 1), theirs, given=[HOLES])
row("nanquantile", lambda x: ag.ops.nanquantile(x, 0.3, 1), lambda t: torch.nanquantile(t, 0.3, 1),
    given=[HOLES])  # fmt: skip
row("nanpercentile", lambda x: ag.ops.nanpercentile(x, 30, 1),
    lambda t: torch.nanquantile(t, 0.3, 1), given=[HOLES])  # fmt: skip
