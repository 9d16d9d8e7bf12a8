"""What functions of `ag.ops` get: an example, and errors for arguments named as elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import signature
from types import FunctionType, ModuleType
from typing import Any

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.keywords import advice, change_public, refusal, standing_for
from actorgraph.ops._rules import clean, complete

_NAME = re.compile(r"\b[a-z]\b")

_MADE = {
    "x": '(2, 3)', "y": '(2, 3)', "z": '(2, 3)', "v": '(3,)', "w": '(3,)', "m": '(3, 3)',
    "i": '(3,), "int64"', "j": '(3,), "int64"', "p": '(3,), "bool"', "q": '(3,), "bool"',
    "t": '(2,), "int64"', "c": '(4,), "complex64"', "a": '(1, 2, 8)', "b": '(1, 2, 8, 8)',
    "d": '(1, 2, 8, 8, 8)', "k": '(2, 2, 3)', "s": '(2, 2, 3, 3)', "u": '(2, 2, 3, 3, 3)',
}  # fmt: skip
"""The placeholders of calls: shape and dtype."""

_LIKE = {
    "(x)": """real sinc gelu norm frexp abs aminmax all alpha_dropout angle any arccos arccosh
        arcsin arcsinh arctan arctanh argmax argmin argsort argwhere average batch_norm categorical
        cbrt ceil celu conj corrcoef cos cosh cot count_nonzero cov csc cube cummin
        cumulative_trapezoid deg2rad digamma dropout elu entr erf erfc erfcx erfinv exp exp2 expit
        expm1 feature_alpha_dropout fft2 fftshift flatnonzero flip floor frac gammaln gumbel_softmax
        hardshrink hardsigmoid hardswish hardtanh hfft hfft2 hfftn histc histogram i0 i0e i1 i1e
        ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn imag irfft2 irfftn isfinite isinf isnan j0 j1
        k0 k0e k1 k1e leaky_relu lgamma log log10 log1p log2 log_ndtr log_softmax logcumsumexp
        logsigmoid logsumexp max mean median min mish mode modf nanargmax nanargmin nancumprod
        nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar ndtr ndtri neg
        normalize ones_like pdist prod psi rad2deg reciprocal relu relu6 rfft2 rfftn rrelu rsqrt sec
        selu sigmoid sign signbit silu sin sinh size_of softmax softmin softplus softshrink softsign
        spacing sparsemax sqrt square squeeze sum tan tanh tanhshrink transpose trapezoid trunc
        unique unstack vector_norm y0 y1 zeros_like""",
    "(x, y)": """isclose array_equal vecdot kron add allclose arctan2 bce_with_logits
        binary_cross_entropy broadcast_like binary_cross_entropy_with_logits cdist copysign
        cosine_similarity dist divide equal float_power floor_divide fmax fmin fmod greater
        greater_equal heaviside hinge hinge_embedding_loss hinge_loss huber huber_loss hypot isin
        kl_div l1 l1_loss less less_equal linear logaddexp logaddexp2 maximum minimum mod mse
        mse_loss multilabel_soft_margin_loss multiply nextafter not_equal outer pairwise_distance
        poisson_nll_loss power smooth_l1 smooth_l1_loss soft_margin_loss subtract xlog1py xlogy
        block_diag slice_scatter""",
    "(x, t)": """multi_margin_loss nll nll_loss pick pick_neg_log_sigmoid pick_neg_log_softmax
        pick_softmax""",
    "(b, 2)": """adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d im2col pixel_unshuffle unfold
        local_response_norm""",
    "(x, y, z)": """gaussian_nll_loss lerp triplet triplet_margin_loss
        triplet_margin_with_distance_loss""",
    "(m)": """inv det slogdet pinv matrix_rank cholesky cond matrix_exp eigh eigvalsh eig eigvals
        svd svdvals qr lu lu_factor trace diag_embed diagflat""",
    "(a, 2)": "adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d channel_shuffle group_norm",
    "(i, j)": "bitwise_and bitwise_or bitwise_xor gcd lcm left_shift right_shift",
    "(g, (2, 3))": "normal ones truncated_normal zeros bernoulli uniform", "(a, 2, 2)": "lp_pool1d",
    "(a)": "dropout1d global_avg_pool global_max_pool instance_norm", "(a, k)": "conv_transpose1d",
    "(d, 2)": "adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d", "(x, 0)": "expand_dims getitem",
    "(p, q)": "logical_and logical_or logical_xor", "(v, w)": "convolve dot searchsorted meshgrid",
    "([v, w])": "cartesian_prod concatenate stack", "(x, 2)": "kthvalue topk round multigammaln",
    "(i)": "bincount bitwise_count bitwise_not", "(x, 1, i[None], y)": "scatter scatter_add",
    "(m, v)": "householder_product solve lstsq", "(x, 1, i, m[:2])": "index_add index_copy",
    "(x, 50)": "nanpercentile percentile", "(g, 0.0, 1.0)": "linspace logspace", "(b)": "dropout2d",
    "(x, y, t)": "cosine_embedding_loss", "(v, w, v)": "margin_ranking_loss", "(p)": "logical_not",
    "(x, v)": "digitize matvec cross", "(x, 3)": "rms_norm layer_norm", "(x, 0, 1)": "swapaxes at",
    "(x, axis=0)": "cumsum cummax", "(b, s)": "conv_transpose2d", "(d, u)": "conv_transpose3d",
    "(m, 1)": "diagonal triu", "(b, 2, 2)": "fractional_max_pool2d lp_pool2d",
    "(d, 2, 2)": "fractional_max_pool3d lp_pool3d",
    "(x, i)": "take ldexp", "(d)": "dropout3d",
}  # fmt: skip

_CALLS = {name: call for call, names in _LIKE.items() for name in names.split()}
_CALLS.update({
    "yolo_decode": "(g.input('head', (1, 14, 8, 8)), [(10, 13), (16, 30)], 416, 2)", "glu": "(c)",
    "lstm_cell": "(x, (y, z), g.input('w_ih', (12, 3)), g.input('w_hh', (12, 3)))", "eye": "(g, 3)",
    "lstm": "(x[None], None, g.input('w_ih', (12, 3)), g.input('w_hh', (12, 3)))", "roll": "(x, 1)",
    "scatter_reduce": "(x, 1, [[0, 0], [2, 1]], 1.0, 'amax', include_self=False)", "diag": "(v, 1)",
    "gru": "(x[None], None, g.input('w_ih', (9, 3)), g.input('w_hh', (9, 3)))", "one_hot": "(i, 4)",
    "gru_cell": "(x, y, g.input('w_ih', (9, 3)), g.input('w_hh', (9, 3)))", "clip": "(x, 0.0, 1.0)",
    "max_unpool1d": "(*ag.ops.max_pool1d(a, 2, return_indices=True), 2)", "masked_select": "(v, p)",
    "max_unpool2d": "(*ag.ops.max_pool2d(b, 2, return_indices=True), 2)", "nanquantile": "(x, 0.5)",
    "max_unpool3d": "(*ag.ops.max_pool3d(d, 2, return_indices=True), 2)", "narrow": "(x, 1, 0, 2)",
    "tensorsolve": "(g.input('e', (6, 2, 3)), g.input('f', (6,)))", "embedding_bag": "(i[None], x)",
    "grid_sample": "(b, ag.ops.affine_grid(k[:1], (1, 1, 4, 4)))", "select_scatter": "(x, v, 0, 1)",
    "scaled_dot_product_attention": "(a, a, a, is_causal=True)", "binomial": "(g, (2, 3), 10, 0.5)",
    "pixel_shuffle": "(ag.ops.concatenate([b, b], axis=1), 2)", "linear_cross_entropy": "(x, m, t)",
    "multilabel_margin_loss": "(x, i[None] + t[:, None])", "solve_triangular": "(m, v, upper=True)",
    "bilinear": "(x, y, u[:, :, :, 0, 0][:, :1, :])", "col2im": "(ag.ops.im2col(b, 2), (8, 8), 2)",
    "tensorinv": "(g.input('e', (6, 2, 3)), ind=1)", "cross_entropy": "(x, t, label_smoothing=0.1)",
    "affine_grid": "(k[:, :, :], (2, 1, 4, 4))", "fold": "(ag.ops.unfold(b, 2), (8, 8), 2)",
    "segment_reduce": "(v, 'sum', lengths=t)", "quantile": "(x, [0.25, 0.75], axis=0)",
    "index_reduce": "(x, 1, i, y, 'prod')", "index_put": "(x, (0, slice(2)), 1.0)",
    "clip_by_global_norm": "([x, v], 1.0)", "lu_solve": "(ag.ops.lu_factor(m), v)",
    "gather": "(x, 1, [[2, 0], [1, 1]])", "gather_nd": "(d, [[0, 0], [0, 1]])", "prelu": "(x, 0.1)",
    "std": "(x, axis=0, keepdims=True)", "cholesky_solve": "(v[:, None], m)", "interp": "(x, v, w)",
    "array": "([[v[0], 1], [0, v[1]]])", "clip_by_norm": "(x, 1.0, axis=1)", "polygamma": "(1, x)",
    "bmm": "(a, a, transpose_x=True)", "bucketize": "(x, boundaries=v)", "astype": "(x, 'float64')",
    "index_fill": "(x, 1, i, 0.0)", "rnn": "(x[None], None, m, m)", "split": "(x, [1, 2], axis=1)",
    "sort": "(x, descending=True)", "einsum": "('ij,jk->k', x, m)", "broadcast_to": "(v, (2, 3))",
    "masked_scatter": "(v, p, w)", "masked_fill": "(v, p, 0.0)", "threshold": "(x, 0.1, 0.0)",
    "var": "(x, axis=0, ddof=1)", "index_select": "(x, 1, i)", "take_along_axis": "(v, i)",
    "matrix_norm": "(m, 'nuc')", "renorm": "(x, 2, 0, 1.0)", "rnn_cell": "(x, y, m, m)",
    "full": "(g, (2, 3), 1.5)", "fft": "(x, norm='ortho')", "fftn": "(x, axes=(0, 1))",
    "multi_dot": "([x, m, v])", "permute": "(x, (1, 0))", "reshape": "(x, (3, 2))",
    "cumprod": "(x, axis=1)", "matrix_power": "(m, 5)", "logit": "(x, eps=1e-6)", "tril": "(m, -1)",
    "tensordot": "(x, m, 1)", "moveaxis": "(a, 0, -1)", "full_like": "(x, 2.0)", "matmul": "(x, m)",
    "tile": "(x, (2, 1))", "embedding": "(i, m)", "where": "(p, v, w)", "flatten": "(b, 1)",
    "put": "(x, i, v)", "vecmat": "(v, m)", "vander": "(v, 3)", "zeta": "(2, x)",
    "running_batch_norm":
        "(x, v, w, g.buffer('mean', ag.nn.init.zeros(3)), "
        "g.buffer('var', ag.nn.init.ones(3)), training=True)",
})  # fmt: skip


def with_example(text: str, name: str, call: str) -> str:
    """Return a docstring with an example: a call, on placeholders by the names of one letter."""
    return f"{clean(text)}\n\nExamples\n--------\n{_making(call)}>>> result = {name}{call}\n"


@cache  # many functions are called alike
def _making(call: str) -> str:
    used = [one for one in dict.fromkeys(_NAME.findall(call)) if one in _MADE]
    made = [f'>>> {one} = g.input("{one}", {_MADE[one]})\n' for one in used]
    return "".join([">>> import actorgraph as ag\n", ">>> g = ag.Graph()\n", *made])


Function = Callable[..., Any]


def translating(function: Function) -> Function:
    """Return a function whose errors begin with its name and explain unknown arguments.

    Its docstring lists every parameter and has an example.
    """
    # `call` gets the globals of `function`, so it reaches these names through its closure.
    told, wrong = _error_of, (TypeError, GraphError)

    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except wrong as error:
            instead = told(function, args, given, error)
            if instead is error:
                raise
            raise instead from None

    own, name = standing_for(function, call), function.__name__
    text = complete(function, clean(function.__doc__ or ""))
    own.__doc__ = text or None
    if name in _CALLS and ">>>" not in text:
        own.__doc__ = with_example(text, f"ag.ops.{name}", _CALLS[name])
    return own


def install(families: Iterable[ModuleType]) -> None:
    """Wrap the functions that modules export by `translating`; aliases stay one function."""
    change_public(map(vars, families), translating)


def install_late(family: ModuleType) -> None:
    """Do as `install` for a family that is imported after others.

    Calls inside of it stay as they are in others, which have imported functions unwrapped.
    """
    module = vars(family)
    for name, one in [*module.items()]:
        known = isinstance(one, FunctionType) and one.__code__.co_filename == __file__
        if known and name not in family.__all__:
            module[name] = getattr(one, "__wrapped__", one)
    install([family])


def _error_of(
    function: Function, args: Any, given: Mapping[str, Any], error: Exception
) -> Exception:
    """Return the error to raise: it begins with the name of the function that was called."""
    if not isinstance(error, GraphError):
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            return refusal(function, args, given)
        known = signature(function).parameters
        any_name = any(one.kind is one.VAR_KEYWORD for one in known.values())
        return (None if any_name else advice(function.__name__, known, given)) or error
    return named(error, function.__name__)


_NAMED = (GraphError, GraphTypeError, ShapeError)


def named(error: GraphError, name: str) -> GraphError:
    """Return the error with a function's name in front, unless it is there."""
    text = str(error)
    if type(error) not in _NAMED or text.startswith((f"{name}:", f"{name} ", f"{name}(", "np.")):
        return error
    link = " " if text.startswith(("takes ", "needs ")) else ": "
    return type(error)(f"{name}{link}{text}", reference=error.reference)
