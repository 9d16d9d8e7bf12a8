"""The ops: functions on nodes, and the operators of `Node`."""

from __future__ import annotations

from actorgraph.op import Sample, Together
from actorgraph.ops import _numpy, _operators
from actorgraph.ops.activations import (
    glu,
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
from actorgraph.ops.attention import multi_head_attention, scaled_dot_product_attention
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
from actorgraph.ops.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from actorgraph.ops.counting import (
    all,  # noqa: A004 - NumPy's name
    any,  # noqa: A004 - NumPy's name
    argmax,
    argmin,
    count_nonzero,
)
from actorgraph.ops.covariance import average, corrcoef, cov
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
from actorgraph.ops.cumulative import cummax, cummin, cumprod, cumsum, logcumsumexp, prod
from actorgraph.ops.decompositions import cholesky, householder_product, qr
from actorgraph.ops.define import define
from actorgraph.ops.detection import yolo_decode
from actorgraph.ops.distances import cdist, cosine_similarity, normalize, pairwise_distance, pdist
from actorgraph.ops.eigen import eig, eigvals
from actorgraph.ops.einsum import einsum
from actorgraph.ops.embedding import embedding, embedding_bag
from actorgraph.ops.entropies import entr, logit, xlog1py, xlogy
from actorgraph.ops.exponential import exp, exp2, expm1, log, log1p, log2, log10
from actorgraph.ops.finding import argwhere, flatnonzero, isin, masked_scatter, nonzero
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
from actorgraph.ops.folding import fold, unfold
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
from actorgraph.ops.grids import affine_grid, grid_sample
from actorgraph.ops.histograms import bincount, digitize, histogram
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
from actorgraph.ops.linear import bilinear, linear
from actorgraph.ops.log_sums import logaddexp, logaddexp2
from actorgraph.ops.losses import log_softmax, mse_loss, softmax, softmin
from actorgraph.ops.losses_classification import (
    bce_with_logits,
    binary_cross_entropy,
    cross_entropy,
    hinge_loss,
    linear_cross_entropy,
    nll_loss,
    pick_neg_log_sigmoid,
    pick_neg_log_softmax,
    pick_softmax,
)
from actorgraph.ops.losses_margin import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from actorgraph.ops.losses_regression import (
    gaussian_nll_loss,
    huber_loss,
    kl_div,
    l1_loss,
    poisson_nll_loss,
    smooth_l1_loss,
)
from actorgraph.ops.lu import lu, lu_factor, lu_solve
from actorgraph.ops.masked_reductions import (
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmean,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from actorgraph.ops.matrices import diag, diag_embed, diagflat, diagonal, trace, tril, triu
from actorgraph.ops.matrix_exponential import matrix_exp
from actorgraph.ops.matrix_norms import cond, matrix_norm, vector_norm
from actorgraph.ops.noise import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    gumbel_softmax,
    rrelu,
)
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
from actorgraph.ops.pixels import channel_shuffle, pixel_shuffle, pixel_unshuffle
from actorgraph.ops.placement import to_device
from actorgraph.ops.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool,
    global_max_pool,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from actorgraph.ops.pseudo_inverse import matrix_rank, pinv
from actorgraph.ops.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)
from actorgraph.ops.random import (
    bernoulli,
    binomial,
    categorical,
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
    nanmax,
    nanmin,
)
from actorgraph.ops.resampling import interpolate
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
from actorgraph.ops.sampled import convolve, cumulative_trapezoid, interp, trapezoid
from actorgraph.ops.scatter_reductions import index_reduce, scatter_reduce, segment_reduce
from actorgraph.ops.selection import clip, fmax, fmin, maximum, minimum, where
from actorgraph.ops.shaping import array, concatenate, stack, swapaxes, transpose
from actorgraph.ops.sinc import sinc
from actorgraph.ops.sorting import argsort, mode, searchsorted, sort, topk, unique
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
from actorgraph.ops.torch_names import (
    aminmax,
    block_diag,
    bucketize,
    cartesian_prod,
    dist,
    histc,
    index_copy,
    index_fill,
    index_select,
    kthvalue,
    lerp,
    masked_fill,
    masked_select,
    narrow,
    renorm,
    select_scatter,
    slice_scatter,
)
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
    "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "add", "affine_grid", "all", "allclose", "alpha_dropout", "aminmax", "angle", "any", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argsort", "argwhere", "array", "array_equal", "astype", "at", "average", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "bce_with_logits", "bernoulli", "bilinear",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "bincount", "binomial",
    "bitwise_and", "bitwise_count", "bitwise_not", "bitwise_or", "bitwise_xor", "block_diag", "bmm",
    "broadcast_like", "broadcast_to", "bucketize", "cartesian_prod", "categorical", "cbrt", "cdist",
    "ceil", "celu", "channel_shuffle", "cholesky", "cholesky_solve", "clip", "clip_by_global_norm",
    "clip_by_norm", "col2im", "concatenate", "cond", "conj", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolve", "copysign", "corrcoef",
    "cos", "cosh", "cosine_embedding_loss", "cosine_similarity", "cot", "count_nonzero", "cov",
    "cross", "cross_entropy", "csc", "ctc_loss", "cube", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_trapezoid", "define", "deg2rad", "det", "diag", "diag_embed", "diagflat",
    "diagonal", "digamma", "digitize", "dist", "divide", "dot", "dropout", "dropout1d", "dropout2d",
    "dropout3d", "eig", "eigh", "eigvals", "eigvalsh", "einsum", "elu", "embedding",
    "embedding_bag", "entr", "equal", "erf", "erfc", "erfcx", "erfinv", "exp", "exp2",
    "expand_dims", "expit", "expm1", "eye", "feature_alpha_dropout", "fft", "fft2", "fftn",
    "fftshift", "flatnonzero", "flatten", "flip", "float_power", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "fold", "frac", "frexp", "full", "full_like", "gammaln", "gather", "gather_nd",
    "gaussian_nll_loss", "gcd", "gelu", "getitem", "global_avg_pool", "global_max_pool", "glu",
    "greater", "greater_equal", "grid_sample", "group_norm", "gru_cell", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hfft", "hfft2", "hfftn",
    "hinge", "hinge_embedding_loss", "hinge_loss", "histc", "histogram", "householder_product",
    "huber", "huber_loss", "hypot", "i0", "i0e", "i1", "i1e", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "im2col", "imag", "index_add", "index_copy", "index_fill",
    "index_put", "index_reduce", "index_select", "instance_norm", "interp", "interpolate", "inv",
    "irfft", "irfft2", "irfftn", "isclose", "isfinite", "isin", "isinf", "isnan", "istft", "j0",
    "j1", "k0", "k0e", "k1", "k1e", "kl_div", "kron", "kthvalue", "l1", "l1_loss", "layer_norm",
    "lcm", "ldexp", "leaky_relu", "left_shift", "lerp", "less", "less_equal", "lgamma", "linear",
    "linear_cross_entropy", "linspace", "local_response_norm", "log", "log10", "log1p", "log2",
    "log_ndtr", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logsigmoid", "logspace", "logsumexp",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "lstm_cell", "lstsq", "lu", "lu_factor", "lu_solve",
    "margin_ranking_loss", "masked_fill", "masked_scatter", "masked_select", "matmul", "matrix_exp",
    "matrix_norm", "matrix_power", "matrix_rank", "matvec", "max", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "maximum", "mean", "median",
    "meshgrid", "min", "minimum", "mish", "mod", "mode", "modf", "moveaxis", "mse", "mse_loss",
    "multi_dot", "multi_head_attention", "multi_margin_loss", "multigammaln",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "multiply", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile",
    "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "narrow", "ndtr", "ndtri", "neg",
    "nextafter", "nll", "nll_loss", "nonzero", "norm", "normal", "normalize", "not_equal",
    "one_hot", "ones", "ones_like", "opaque", "outer", "pad", "pairwise_distance", "pdist",
    "percentile", "permute", "pick", "pick_neg_log_sigmoid", "pick_neg_log_softmax", "pick_softmax",
    "pinv", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "polygamma", "power", "prelu",
    "prod", "psi", "put", "qr", "quantile", "rad2deg", "ravel", "real", "reciprocal", "relu",
    "relu6", "renorm", "repeat", "reshape", "rfft", "rfft2", "rfftn", "right_shift", "rms_norm",
    "rnn_cell", "roll", "round", "rrelu", "rsqrt", "running_batch_norm",
    "scaled_dot_product_attention", "scatter", "scatter_add", "scatter_reduce", "searchsorted",
    "sec", "segment_reduce", "select_scatter", "selu", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinc", "sinh", "size_of", "slice_scatter", "slogdet", "smooth_l1", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "solve",
    "solve_triangular", "sort", "spacing", "sparsemax", "split", "sqrt", "square", "squeeze",
    "stack", "std", "stft", "subtract", "sum", "svd", "svdvals", "swapaxes", "take",
    "take_along_axis", "tan", "tanh", "tanhshrink", "tensordot", "tensorinv", "tensorsolve",
    "threshold", "tile", "to_device", "topk", "trace", "transpose", "trapezoid", "tril", "triplet",
    "triplet_margin_loss", "triplet_margin_with_distance_loss", "triu", "trunc", "truncated_normal",
    "unfold", "uniform", "unique", "unstack", "upsample", "vander", "var", "vecdot", "vecmat",
    "vector_norm", "where", "xlog1py", "xlogy", "y0", "y1", "yolo_decode", "zeros", "zeros_like",
    "zeta",
]  # fmt: skip

# Other names: the short ones of losses, and PyTorch's for one that has a shorter name here.
mse, l1, smooth_l1, huber = mse_loss, l1_loss, smooth_l1_loss, huber_loss
nll, hinge, triplet = nll_loss, hinge_loss, triplet_margin_loss
binary_cross_entropy_with_logits = bce_with_logits
upsample = interpolate
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
