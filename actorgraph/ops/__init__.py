"""The ops: functions on nodes, and the operators of `Node`."""

from __future__ import annotations

from actorgraph.op import Sample, Together
from actorgraph.ops import _numpy, _operators
from actorgraph.ops.activations import (
    logsigmoid,
    mish,
    relu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanhshrink,
)
from actorgraph.ops.arithmetic import (
    abs,  # noqa: A004 - NumPy's name
    add,
    cbrt,
    cube,
    divide,
    floor_divide,
    mod,
    multiply,
    neg,
    power,
    reciprocal,
    rsqrt,
    sign,
    sqrt,
    square,
    subtract,
)
from actorgraph.ops.assignment import index_add, index_put, put, scatter, scatter_add
from actorgraph.ops.attention import scaled_dot_product_attention
from actorgraph.ops.bessel import i0, i0e, i1, i1e, j0, j1, k0, k0e, k1, k1e, y0, y1
from actorgraph.ops.bits import (
    bitwise_and,
    bitwise_count,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    gcd,
    lcm,
    left_shift,
    right_shift,
)
from actorgraph.ops.broadcasting import (
    broadcast_like,
    broadcast_to,
    expand_dims,
    squeeze,
    sum,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.casting import astype
from actorgraph.ops.clipping import clip_by_global_norm, clip_by_norm
from actorgraph.ops.closeness import allclose, array_equal, isclose
from actorgraph.ops.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from actorgraph.ops.complex import conj, imag, real
from actorgraph.ops.convolution import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d
from actorgraph.ops.counting import (
    all,  # noqa: A004 - NumPy's name
    any,  # noqa: A004 - NumPy's name
    argmax,
    argmin,
    count_nonzero,
)
from actorgraph.ops.creation import (
    arange,
    eye,
    full,
    full_like,
    linspace,
    logspace,
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from actorgraph.ops.ctc import ctc_loss
from actorgraph.ops.cumulative import cumprod, cumsum, prod
from actorgraph.ops.decompositions import cholesky, householder_product, qr
from actorgraph.ops.define import define
from actorgraph.ops.detection import yolo_decode
from actorgraph.ops.eigen import eig, eigvals
from actorgraph.ops.einsum import einsum
from actorgraph.ops.embedding import embedding
from actorgraph.ops.entropies import entr, logit, xlog1py, xlogy
from actorgraph.ops.exponential import (
    exp,
    exp2,
    expm1,
    log,
    log1p,
    log2,
    log10,
)
from actorgraph.ops.float_parts import (
    copysign,
    float_power,
    fmod,
    frac,
    frexp,
    heaviside,
    ldexp,
    modf,
    nextafter,
    signbit,
    spacing,
)
from actorgraph.ops.fourier import fft, fftn, ifft, ifftn
from actorgraph.ops.fourier_nd import (
    fft2,
    fftshift,
    hfft,
    hfft2,
    hfftn,
    ifft2,
    ifftshift,
    ihfft,
    ihfft2,
    ihfftn,
    irfft2,
    irfftn,
    rfft2,
    rfftn,
)
from actorgraph.ops.fourier_real import irfft, rfft
from actorgraph.ops.gathering import at, gather, gather_nd, size_of, take_along_axis
from actorgraph.ops.indexing import getitem, one_hot, take
from actorgraph.ops.inverses import det, inv, matrix_power, slogdet, solve
from actorgraph.ops.least_squares import lstsq
from actorgraph.ops.linalg import dot, matmul, outer
from actorgraph.ops.linalg_products import (
    bmm,
    cross,
    kron,
    matvec,
    multi_dot,
    tensordot,
    vander,
    vecdot,
    vecmat,
)
from actorgraph.ops.log_sums import logaddexp, logaddexp2
from actorgraph.ops.losses import log_softmax, mse_loss, softmax
from actorgraph.ops.losses_classification import (
    bce_with_logits,
    binary_cross_entropy,
    cross_entropy,
    hinge_loss,
    nll_loss,
    pick_neg_log_sigmoid,
    pick_neg_log_softmax,
    pick_softmax,
)
from actorgraph.ops.losses_regression import (
    cosine_similarity,
    huber_loss,
    kl_div,
    l1_loss,
    smooth_l1_loss,
    triplet_margin_loss,
)
from actorgraph.ops.lu import lu, lu_factor, lu_solve
from actorgraph.ops.matrices import diag, diag_embed, diagflat, diagonal, trace, tril, triu
from actorgraph.ops.matrix_exponential import matrix_exp
from actorgraph.ops.matrix_norms import cond, matrix_norm, vector_norm
from actorgraph.ops.normalisation import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from actorgraph.ops.opaque import opaque
from actorgraph.ops.padding import pad
from actorgraph.ops.picking import pick
from actorgraph.ops.piecewise import (
    celu,
    elu,
    gelu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    prelu,
    relu6,
    selu,
    softshrink,
    threshold,
)
from actorgraph.ops.pooling import (
    avg_pool1d,
    avg_pool2d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
)
from actorgraph.ops.pseudo_inverse import matrix_rank, pinv
from actorgraph.ops.random import (
    bernoulli,
    binomial,
    categorical,
    dropout,
    normal,
    truncated_normal,
    uniform,
)
from actorgraph.ops.rearranging import flip, moveaxis, permute, repeat, roll, tile
from actorgraph.ops.recurrent import gru_cell, lstm_cell, rnn_cell
from actorgraph.ops.reductions import (
    logsumexp,
    max,  # noqa: A004 - NumPy's name
    mean,
    min,  # noqa: A004 - NumPy's name
)
from actorgraph.ops.resampling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
)
from actorgraph.ops.reshaping import flatten, ravel, reshape
from actorgraph.ops.rounding import (
    ceil,
    floor,
    isfinite,
    isinf,
    isnan,
    round,  # noqa: A004 - NumPy's name
    trunc,
)
from actorgraph.ops.running_statistics import running_batch_norm
from actorgraph.ops.selection import clip, fmax, fmin, maximum, minimum, where
from actorgraph.ops.shaping import concatenate, stack, swapaxes, transpose
from actorgraph.ops.sinc import sinc
from actorgraph.ops.sorting import argsort, searchsorted, sort, topk, unique
from actorgraph.ops.sparsemax import sparsemax
from actorgraph.ops.special import (
    digamma,
    erf,
    erfc,
    erfcx,
    erfinv,
    lgamma,
    log_ndtr,
    multigammaln,
    ndtr,
    ndtri,
    polygamma,
    zeta,
)
from actorgraph.ops.spectral import eigh, eigvalsh, svd, svdvals
from actorgraph.ops.spectrograms import istft, stft
from actorgraph.ops.splitting import split, unstack
from actorgraph.ops.statistics import norm, std, var
from actorgraph.ops.tensor_equations import tensorinv, tensorsolve
from actorgraph.ops.triangular import cholesky_solve, solve_triangular
from actorgraph.ops.trigonometric import (
    angle,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    cos,
    cosh,
    cot,
    csc,
    deg2rad,
    hypot,
    rad2deg,
    sec,
    sin,
    sinh,
    tan,
    tanh,
)
from actorgraph.ops.windows import col2im, im2col

__all__ = [
    "Sample", "Together", "abs", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "add", "all", "allclose", "angle", "any",
    "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "argmax", "argmin", "argsort", "array_equal", "astype", "at", "avg_pool1d", "avg_pool2d",
    "batch_norm", "bce_with_logits", "bernoulli", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "binomial", "bitwise_and", "bitwise_count",
    "bitwise_not", "bitwise_or", "bitwise_xor", "bmm", "broadcast_like", "broadcast_to",
    "categorical", "cbrt", "ceil", "celu", "cholesky", "cholesky_solve", "clip",
    "clip_by_global_norm", "clip_by_norm", "col2im", "concatenate", "cond", "conj", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "copysign", "cos", "cosh",
    "cosine_similarity", "cot", "count_nonzero", "cross", "cross_entropy", "csc", "ctc_loss",
    "cube", "cumprod", "cumsum", "define", "deg2rad", "det", "diag", "diag_embed", "diagflat",
    "diagonal", "digamma", "divide", "dot", "dropout", "eig", "eigh", "eigvals", "eigvalsh",
    "einsum", "elu", "embedding", "entr", "equal", "erf", "erfc", "erfcx", "erfinv", "exp",
    "exp2", "expand_dims", "expit", "expm1", "eye", "fft", "fft2", "fftn", "fftshift",
    "flatten", "flip", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac",
    "frexp", "full", "full_like", "gammaln", "gather", "gather_nd", "gcd", "gelu", "getitem",
    "global_avg_pool", "global_max_pool", "greater", "greater_equal", "group_norm", "gru_cell",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hfft", "hfft2", "hfftn",
    "hinge", "hinge_loss", "householder_product", "huber", "huber_loss", "hypot", "i0", "i0e",
    "i1", "i1e", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "im2col",
    "imag", "index_add", "index_put", "instance_norm", "inv", "irfft", "irfft2", "irfftn",
    "isclose", "isfinite", "isinf", "isnan", "istft", "j0", "j1", "k0", "k0e", "k1", "k1e",
    "kl_div", "kron", "l1", "l1_loss", "layer_norm", "lcm", "ldexp", "leaky_relu", "left_shift",
    "less", "less_equal", "lgamma", "linspace", "local_response_norm", "log", "log10", "log1p",
    "log2", "log_ndtr", "log_softmax", "logaddexp", "logaddexp2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logit", "logsigmoid", "logspace", "logsumexp", "lstm_cell",
    "lstsq", "lu", "lu_factor", "lu_solve", "matmul", "matrix_exp", "matrix_norm",
    "matrix_power", "matrix_rank", "matvec", "max", "max_pool1d", "max_pool2d", "maximum",
    "mean", "meshgrid", "min", "minimum", "mish", "mod", "modf", "moveaxis", "mse", "mse_loss",
    "multi_dot", "multigammaln", "multiply", "ndtr", "ndtri", "neg", "nextafter", "nll",
    "nll_loss", "norm", "normal", "not_equal", "one_hot", "ones", "ones_like", "opaque",
    "outer", "pad", "permute", "pick", "pick_neg_log_sigmoid", "pick_neg_log_softmax",
    "pick_softmax", "pinv", "pixel_shuffle", "pixel_unshuffle", "polygamma", "power", "prelu",
    "prod", "psi", "put", "qr", "rad2deg", "ravel", "real", "reciprocal", "relu", "relu6",
    "repeat", "reshape", "rfft", "rfft2", "rfftn", "right_shift", "rms_norm", "rnn_cell",
    "roll", "round", "rsqrt", "running_batch_norm", "scaled_dot_product_attention", "scatter",
    "scatter_add", "searchsorted", "sec", "selu", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinc", "sinh", "size_of", "slogdet", "smooth_l1", "smooth_l1_loss", "softmax", "softplus",
    "softshrink", "softsign", "solve", "solve_triangular", "sort", "spacing", "sparsemax",
    "split", "sqrt", "square", "squeeze", "stack", "std", "stft", "subtract", "sum", "svd",
    "svdvals", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tanhshrink", "tensordot",
    "tensorinv", "tensorsolve", "threshold", "tile", "topk", "trace", "transpose", "tril",
    "triplet", "triplet_margin_loss", "triu", "trunc", "truncated_normal", "uniform", "unique",
    "unstack", "upsample", "vander", "var", "vecdot", "vecmat", "vector_norm", "where",
    "xlog1py", "xlogy", "y0", "y1", "yolo_decode", "zeros", "zeros_like", "zeta",
]  # fmt: skip

# Other names: the short ones of losses, and PyTorch's for one that has a shorter name here.
mse, l1, smooth_l1, huber = mse_loss, l1_loss, smooth_l1_loss, huber_loss
nll, hinge, triplet = nll_loss, hinge_loss, triplet_margin_loss
binary_cross_entropy_with_logits = bce_with_logits
# SciPy's names, which PyTorch has too.
expit, gammaln, psi = sigmoid, lgamma, digamma

_operators.attach()
_numpy.attach(
    {
        name: globals()[name]
        for name in __all__
        if name not in ("Sample", "Together", "define", "opaque")
    }
)
