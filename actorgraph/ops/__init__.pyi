"""What `actorgraph.ops` exports, for editors and type checkers.

Written by `python docs/generate.py`; do not edit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from actorgraph.graph import Graph, Node
from actorgraph.op import Sample as Sample, Together as Together
from actorgraph.ops.inverses import SlogdetResult
from actorgraph.ops.lu import LUFactorResult
from actorgraph.ops.normalisation import BatchNorm
from actorgraph.ops.spectral import EigResult

ABOVE: dict[str, Callable[[], Any] | None]
LATE: dict[str, str]
from actorgraph.ops.activations import celu as celu, elu as elu, expit as expit, gelu as gelu, glu as glu, hardtanh as hardtanh, leaky_relu as leaky_relu, prelu as prelu, relu6 as relu6, selu as selu, sigmoid as sigmoid, softplus as softplus, softshrink as softshrink, sparsemax as sparsemax, threshold as threshold
from actorgraph.ops.arithmetic import abs as abs, imag as imag, power as power, real as real, sign as sign
from actorgraph.ops.assignment import index_add as index_add, index_put as index_put, put as put, scatter as scatter
from actorgraph.ops.attention import scaled_dot_product_attention as scaled_dot_product_attention
from actorgraph.ops.broadcasting import broadcast_like as broadcast_like, broadcast_to as broadcast_to, conj as conj, expand_dims as expand_dims, squeeze as squeeze
from actorgraph.ops.clipping import clip_by_norm as clip_by_norm
from actorgraph.ops.comparison import array_equal as array_equal, float_power as float_power, frexp as frexp, isclose as isclose, ldexp as ldexp, modf as modf
from actorgraph.ops.convolution import bilinear as bilinear, linear as linear
from actorgraph.ops.counting import bincount as bincount, digitize as digitize, histogram as histogram
from actorgraph.ops.creation import full as full, meshgrid as meshgrid, ones_like as ones_like, zeros_like as zeros_like
from actorgraph.ops.criteria import kl_div as kl_div, linear_cross_entropy as linear_cross_entropy, multilabel_margin_loss as multilabel_margin_loss, multilabel_soft_margin_loss as multilabel_soft_margin_loss, pick_neg_log_softmax as pick_neg_log_softmax
from actorgraph.ops.ctc import ctc_loss as ctc_loss
from actorgraph.ops.decompositions import cholesky as cholesky, cholesky_solve as cholesky_solve, householder_product as householder_product, qr as qr, solve_triangular as solve_triangular
from actorgraph.ops.define import define as define, opaque as opaque
from actorgraph.ops.einsum import einsum as einsum
from actorgraph.ops.elementwise import astype as astype, clip as clip, round as round
from actorgraph.ops.embedding import embedding as embedding, embedding_bag as embedding_bag
from actorgraph.ops.fourier import fft as fft, fftshift as fftshift, ifftshift as ifftshift
from actorgraph.ops.gathering import at as at, gather as gather, gather_nd as gather_nd, pick as pick, size_of as size_of, take_along_axis as take_along_axis
from actorgraph.ops.indexing import getitem as getitem, one_hot as one_hot, take as take
from actorgraph.ops.inverses import inv as inv, matrix_power as matrix_power, pinv as pinv, solve as solve
from actorgraph.ops.linalg import bmm as bmm, dot as dot, kron as kron, matmul as matmul, matvec as matvec, multi_dot as multi_dot, outer as outer, tensordot as tensordot, vander as vander, vecdot as vecdot, vecmat as vecmat
from actorgraph.ops.losses import cdist as cdist, cosine_similarity as cosine_similarity, mse as mse, mse_loss as mse_loss, normalize as normalize, pdist as pdist, softmax as softmax
from actorgraph.ops.lu import lstsq as lstsq, lu as lu, lu_solve as lu_solve, tensorinv as tensorinv, tensorsolve as tensorsolve
from actorgraph.ops.matrices import diag as diag, diag_embed as diag_embed, diagonal as diagonal, tril as tril
from actorgraph.ops.normalisation import layer_norm as layer_norm
from actorgraph.ops.placement import to_device as to_device
from actorgraph.ops.pooling import global_avg_pool as global_avg_pool, global_max_pool as global_max_pool
from actorgraph.ops.random import bernoulli as bernoulli, binomial as binomial, categorical as categorical, dropout as dropout, gumbel_softmax as gumbel_softmax, rrelu as rrelu, uniform as uniform
from actorgraph.ops.rearranging import moveaxis as moveaxis, pad as pad, permute as permute, repeat as repeat, roll as roll, tile as tile
from actorgraph.ops.recurrent import rnn_cell as rnn_cell
from actorgraph.ops.reductions import cummax as cummax, cumsum as cumsum, logaddexp as logaddexp, logcumsumexp as logcumsumexp
from actorgraph.ops.resampling import affine_grid as affine_grid, channel_shuffle as channel_shuffle, grid_sample as grid_sample, interpolate as interpolate, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, upsample as upsample, yolo_decode as yolo_decode
from actorgraph.ops.reshaping import flatten as flatten, ravel as ravel, reshape as reshape
from actorgraph.ops.sampled import convolve as convolve, interp as interp, stft as stft, trapezoid as trapezoid
from actorgraph.ops.scatter_reductions import block_diag as block_diag, bucketize as bucketize, cartesian_prod as cartesian_prod, dist as dist, histc as histc, index_copy as index_copy, index_fill as index_fill, index_select as index_select, lerp as lerp, masked_fill as masked_fill, masked_select as masked_select, narrow as narrow, renorm as renorm, segment_reduce as segment_reduce, select_scatter as select_scatter, slice_scatter as slice_scatter
from actorgraph.ops.shaping import array as array, concatenate as concatenate, split as split, stack as stack, swapaxes as swapaxes, transpose as transpose, unstack as unstack
from actorgraph.ops.sorting import flatnonzero as flatnonzero, isin as isin, masked_scatter as masked_scatter, nonzero as nonzero, searchsorted as searchsorted, sort as sort, topk as topk, unique as unique
from actorgraph.ops.special import angle as angle, cot as cot, csc as csc, logit as logit, multigammaln as multigammaln, polygamma as polygamma, sec as sec, sinc as sinc, zeta as zeta
from actorgraph.ops.spectral import eigh as eigh, svd as svd
from actorgraph.ops.statistics import cov as cov
from actorgraph.ops.windows import im2col as im2col, unfold as unfold
from actorgraph.control.recurrent import gru as gru, lstm as lstm, rnn as rnn

def adaptive_avg_pool1d(x: Node, output_size: Any) -> Node:
    """Average over windows that cover one axis, as ``torch.nn.functional.adaptive_avg_pool1d``.

    Window i of n covers the entries from ``floor(i size / n)`` to ``ceil((i + 1) size / n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, size) or without the batch.
    output_size : int
        Sizes of the result; None keeps that of the input.
    """

def adaptive_avg_pool2d(x: Node, output_size: Any) -> Node:
    """Average over windows that cover two axes, as ``torch.nn.functional.adaptive_avg_pool2d``.

    Window i of n covers the entries from ``floor(i size / n)`` to ``ceil((i + 1) size / n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    output_size : int or pair of int
        Sizes of the result; None keeps that of the input.
    """

def adaptive_avg_pool3d(x: Node, output_size: Any) -> Node:
    """Average over windows that cover three axes, as ``torch.nn.functional.adaptive_avg_pool3d``.

    Window i of n covers the entries from ``floor(i size / n)`` to ``ceil((i + 1) size / n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, depth, height, width) or without the batch.
    output_size : int or triple of int
        Sizes of the result; None keeps that of the input.
    """

def adaptive_max_pool1d(x: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over the windows of `adaptive_avg_pool1d`; the first of equal entries counts.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, size) or without the batch.
    output_size : int
        Sizes of the result; None keeps that of the input.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool1d` takes it.
    """

def adaptive_max_pool2d(x: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over the windows of `adaptive_avg_pool2d`; the first of equal entries counts.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, height, width) or without the batch.
    output_size : int or pair of int
        Sizes of the result; None keeps that of the input.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool2d` takes it.
    """

def adaptive_max_pool3d(x: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maximum over the windows of `adaptive_avg_pool3d`; the first of equal entries counts.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, depth, height, width) or without the batch.
    output_size : int or triple of int
        Sizes of the result; None keeps that of the input.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool3d` takes it.
    """

def add(x: Any, y: Any) -> Node:
    """Add elementwise, as ``x + y``.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def all(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether no element over axes is zero.

    Type ``a[*s] -> bool[*out]``.  Of no elements True; no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def allclose(x: Any, y: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Node:
    """Whether all elements are close, as ``numpy.allclose``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    rtol, atol : float
        Share of `y`, and absolute distance, that are allowed.
    equal_nan : bool
        Whether NaN is close to NaN.
    """

def alpha_dropout(x: Node, p: float = 0.5, training: bool = False) -> Node:
    """Set elements to the least value of `selu`, and keep mean 0 and variance 1 by an affine map.

    Source: G. Klambauer et al., Self-normalizing neural networks, 2017.

    Parameters
    ----------
    x : node
        Float.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """

def aminmax(x: Node, axis: Any = None, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the minimum and the maximum over axes.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def any(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether an element over axes is not zero.

    Type ``a[*s] -> bool[*out]``.  Of no elements False; no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def arange(graph: Any, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Node:
    """Return evenly spaced numbers in ``[start, stop)``, as ``numpy.arange``.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    start, stop : number, str or Dim
        A single one is `stop`.  Dims and symbols such as ``"batch"`` are bound by each run; then
        all are integers.
    step : number
        Not 0.
    dtype : dtype, optional
        Default: int64, or float32 where a number is a float.
    """

def arccos(x: Any) -> Node:
    """Inverse cosine.

    Type ``x[*s] -> x[*s]``.  The gradient at -1 and 1 is infinite.
    """

def arccosh(x: Any) -> Node:
    """Inverse hyperbolic cosine.

    Type ``x[*s] -> x[*s]``.  The gradient at 1 is infinite.
    """

def arcsin(x: Any) -> Node:
    """Inverse sine.

    Type ``x[*s] -> x[*s]``.  The gradient at -1 and 1 is infinite.
    """

def arcsinh(x: Any) -> Node:
    """Inverse hyperbolic sine.

    Type ``x[*s] -> x[*s]``.
    """

def arctan(x: Any) -> Node:
    """Inverse tangent.

    Type ``x[*s] -> x[*s]``.
    """

def arctan2(x: Any, y: Any) -> Node:
    """Angle of the point (y, x) in (-pi, pi]; the first argument is the ordinate.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  At the origin all derivatives are 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def arctanh(x: Any) -> Node:
    """Inverse hyperbolic tangent.

    Type ``x[*s] -> x[*s]``.  The gradient at -1 and 1 is infinite.
    """

def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the maximum along an axis.

    Type ``r[*s] -> int64[*out]``.  Of equal elements the first; NaN counts as the one looked for, as in NumPy.  No gradient.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the minimum along an axis.

    Type ``r[*s] -> int64[*out]``.  Of equal elements the first; NaN counts as the one looked for, as in NumPy.  No gradient.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def argsort(x: Node, axis: int | None = -1, descending: bool = False) -> Node:
    """Return the int64 positions that sort along an axis; equal values keep their order.

    Parameters
    ----------
    x : node
        Real numbers.
    axis : int or None
        None sorts the flattened array.
    descending : bool
        The largest first; NaN counts as the largest.
    """

def argwhere(x: Node) -> Node:
    """Return where elements are not zero, one row for each, as ``numpy.argwhere``.

    Parameters
    ----------
    x : node
        Any dtype, at least one dim; NaN is not zero.
    """

def average(x: Node, axis: Any = None, weights: Any = None, returned: bool = False, keepdims: bool = False) -> Any:
    """Average over `axis` by weights: ``sum(x * weights) / sum(weights)``, as ``numpy.average``.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    weights : node or array, optional
        Of the shape of `x`, or of its dims along the axes in their order; default equal.
    returned : bool
        Return the sum of the weights too.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def avg_pool1d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> Node:
    """Average over windows of one axis, as ``torch.nn.functional.avg_pool1d``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, size) or without the batch.
    kernel_size : int
    stride : int, optional
        Default: the kernel's size.
    padding : int, pairs of int, "same" or "valid"
        Zeros before and after each axis, at most half of the kernel.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    count_include_pad : bool
        Whether padding counts as entries; False divides by the entries of the input alone.
    divisor_override : float, optional
        What every sum is divided by, instead of a number of entries; 1 gives sums.
    """

def avg_pool2d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> Node:
    """Average over windows of two axes, as ``torch.nn.functional.avg_pool2d``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    kernel_size : int or pair of int
    stride : int or pair of int, optional
        Default: the kernel's size.
    padding : int or pair of int, pairs of int, "same" or "valid"
        Zeros before and after each axis, at most half of the kernel.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    count_include_pad : bool
        Whether padding counts as entries; False divides by the entries of the input alone.
    divisor_override : float, optional
        What every sum is divided by, instead of a number of entries; 1 gives sums.
    """

def avg_pool3d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: float | None = None) -> Node:
    """Average over windows of three axes, as ``torch.nn.functional.avg_pool3d``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, depth, height, width) or without the batch.
    kernel_size : int or triple of int
    stride : int or triple of int, optional
        Default: the kernel's size.
    padding : int or triple of int, pairs of int, "same" or "valid"
        Zeros before and after each axis, at most half of the kernel.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    count_include_pad : bool
        Whether padding counts as entries; False divides by the entries of the input alone.
    divisor_override : float, optional
        What every sum is divided by, instead of a number of entries; 1 gives sums.
    """

def batch_norm(x: Node, *, scale: Any = None, bias: Any = None, mean: Any = None, var: Any = None, eps: float = 1e-05) -> BatchNorm:
    """Normalise each channel over batch and places; a pure function of the statistics.

    Training: without `mean` and `var`, those of the batch are used (the biased variance, as in
    PyTorch) and returned for running statistics, the variance unbiased.  Evaluation: the given
    `mean` and `var` are used and returned; gradients flow to them if they are nodes.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    scale, bias : node or array, optional
        One entry per channel.
    mean, var : node or array, optional
        One entry per channel; both or neither.
    eps : float
        Added to the variance.
    """

def bce_with_logits(logits: Any, targets: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = 'mean') -> Node:
    """Return binary cross entropy of ``sigmoid(logits)``, without overflow or cancellation.

    ``w t softplus(-x) + (1 - t) softplus(x)`` for the weight w of positive targets; PyTorch's
    ``binary_cross_entropy_with_logits``.

    Parameters
    ----------
    logits : node or array
        Float.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight : node or array, optional
        Factor of each loss; broadcasts.
    pos_weight : node or array, optional
        Factor of the part of each loss with a positive target; broadcasts.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def binary_cross_entropy(probabilities: Any, targets: Any, weight: Any = None, *, reduction: str = 'mean') -> Node:
    """Return ``-t log(p) - (1 - t) log(1 - p)``, reduced.

    Logarithms end at -100, and divisors of gradients at 1e-12, so p = 0 and p = 1 are finite.

    Parameters
    ----------
    probabilities : node or array
        Float in [0, 1]; outside, logarithms are NaN and NumPy warns.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight : node or array, optional
        Factor of each loss; broadcasts.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def binary_cross_entropy_with_logits(logits: Any, targets: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = 'mean') -> Node:
    """Return binary cross entropy of ``sigmoid(logits)``, without overflow or cancellation.

    ``w t softplus(-x) + (1 - t) softplus(x)`` for the weight w of positive targets; PyTorch's
    ``binary_cross_entropy_with_logits``.

    Parameters
    ----------
    logits : node or array
        Float.
    targets : node or array
        Of the same dtype and shape, in [0, 1].
    weight : node or array, optional
        Factor of each loss; broadcasts.
    pos_weight : node or array, optional
        Factor of the part of each loss with a positive target; broadcasts.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def bitwise_and(*values: Any) -> Node:
    """Bits that both integers have.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.  Of bools it is `logical_and`.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def bitwise_count(x: Any) -> Node:
    """Number of bits that are 1 in abs(x).

    Type ``i[*s] -> uint8[*s]``.
    """

def bitwise_not(*values: Any) -> Node:
    """All bits the other way; of bools `logical_not`.

    Type ``i[*s] -> i[*s]``.
    """

def bitwise_or(*values: Any) -> Node:
    """Bits that one of two integers has.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.  Of bools it is `logical_or`.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def bitwise_xor(*values: Any) -> Node:
    """Bits in which two integers differ.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.  Of bools it is `logical_xor`.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def cbrt(x: Any) -> Node:
    """Cube root, also of negative numbers.

    Type ``f[*s] -> f[*s]``.  The gradient at 0 is infinite.
    """

def ceil(x: Any) -> Node:
    """The smallest integer >= x.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
    """

def clip_by_global_norm(nodes: Sequence[Node], max_norm: Any) -> tuple[list[Node], Node]:
    """Scale several nodes down by one factor, so that together they are no longer than `max_norm`.

    TensorFlow's ``clip_by_global_norm``; PyTorch's ``clip_grad_norm_`` adds 1e-6 to the norm.

    Parameters
    ----------
    nodes : sequence of node
        Float, of one dtype, or complex; such as what `ag.gradients` returns.
    max_norm : scalar or node
        Above 0.
    """

def col2im(columns: Node, size: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Node:
    """Add rows of windows into an image; where windows overlap, their entries add up.

    Parameters
    ----------
    columns : node
        Shape (batch, *windows, channels * product of the kernel), as `im2col` returns it.
    size : tuple of int or Dim
        Sizes of the image, without batch and channels.
    kernel_size, stride : int or tuple of int
        One per axis.
    padding : int, tuple of int, tuple of pairs, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` windows; where the
        padding is odd, one more stands at the end.
    dilation : int or tuple of int
        One per axis.
    """

def cond(x: Node, p: Any = None) -> Node:
    """Condition number of matrices, as ``numpy.linalg.cond``.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    p : optional
        An order of `matrix_norm`: the norm of `x` times that of its inverse, which raises in the
        run for a singular matrix.  None, 2 and -2 are the quotient of the largest and smallest
        singular value, of matrices of any shape.
    """

def conv1d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Node:
    """Convolution over one axis, as ``torch.nn.functional.conv1d``.

    ``y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - pad]``
    with ``(size + pads - dilation (kernel - 1) - 1) // stride + 1`` entries along each axis.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, size) or without the batch.
    weight : node or array
        Shape (features, channels / groups, *kernel), of the dtype of `x`.
    bias : node or array, optional
        Shape (features,).
    stride, dilation : int
    padding : int, pairs of int, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` entries, for every
        stride; where the padding is odd, one more stands at the end.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    """

def conv2d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Node:
    """Convolution over two axes, as ``torch.nn.functional.conv2d``.

    ``y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - pad]``
    with ``(size + pads - dilation (kernel - 1) - 1) // stride + 1`` entries along each axis.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, height, width) or without the batch.
    weight : node or array
        Shape (features, channels / groups, *kernel), of the dtype of `x`.
    bias : node or array, optional
        Shape (features,).
    stride, dilation : int or pair of int
    padding : int or pair of int, pairs of int, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` entries, for every
        stride; where the padding is odd, one more stands at the end.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    """

def conv3d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Node:
    """Convolution over three axes, as ``torch.nn.functional.conv3d``.

    ``y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] x[n, c, stride p + dilation k - pad]``
    with ``(size + pads - dilation (kernel - 1) - 1) // stride + 1`` entries along each axis.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, depth, height, width) or without the batch.
    weight : node or array
        Shape (features, channels / groups, *kernel), of the dtype of `x`.
    bias : node or array, optional
        Shape (features,).
    stride, dilation : int or triple of int
    padding : int or triple of int, pairs of int, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` entries, for every
        stride; where the padding is odd, one more stands at the end.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    """

def conv_transpose1d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """Transposed convolution over one axis, as ``torch.nn.functional.conv_transpose1d``.

    The adjoint, in its input, of `conv1d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, size) or without the batch.
    weight : node or array
        Shape (channels, features / groups, *kernel).
    bias : node or array, optional
        Shape (features,).
    stride : int
    padding : int, or pairs of int
        How much is cut off the result at each end.
    output_padding : int
        Entries more at the end of the result, fewer than the stride or the dilation.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    dilation : int
    """

def conv_transpose2d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """Transposed convolution over two axes, as ``torch.nn.functional.conv_transpose2d``.

    The adjoint, in its input, of `conv2d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, height, width) or without the batch.
    weight : node or array
        Shape (channels, features / groups, *kernel).
    bias : node or array, optional
        Shape (features,).
    stride : int or pair of int
    padding : int or pair of int, or pairs of int
        How much is cut off the result at each end.
    output_padding : int or pair of int
        Entries more at the end of the result, fewer than the stride or the dilation.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    dilation : int or pair of int
    """

def conv_transpose3d(x: Node, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Node:
    """Transposed convolution over three axes, as ``torch.nn.functional.conv_transpose3d``.

    The adjoint, in its input, of `conv3d` with the same weight: along each axis it gives
    ``(size - 1) stride - pads + dilation (kernel - 1) + output_padding + 1`` entries.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, depth, height, width) or without the batch.
    weight : node or array
        Shape (channels, features / groups, *kernel).
    bias : node or array, optional
        Shape (features,).
    stride : int or triple of int
    padding : int or triple of int, or pairs of int
        How much is cut off the result at each end.
    output_padding : int or triple of int
        Entries more at the end of the result, fewer than the stride or the dilation.
    groups : int
        Channels and features are divided into so many independent groups; as many groups as
        channels make a depthwise convolution.
    dilation : int or triple of int
    """

def copysign(x: Any, y: Any) -> Node:
    """The size of x with the sign of y.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  The gradient of x is 1 or -1, 0 at 0; that of y is zero.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def corrcoef(x: Node, y: Any = None, rowvar: bool = True) -> Node:
    """Correlation coefficients of variables, as ``numpy.corrcoef``.

    Parameters
    ----------
    x : node
        One or two dims; each row is a variable, each column an observation.
    y : node or array, optional
        More variables.
    rowvar : bool
        False where each column is a variable.
    """

def cos(x: Any) -> Node:
    """Cosine of radians.

    Type ``x[*s] -> x[*s]``.
    """

def cosh(x: Any) -> Node:
    """Hyperbolic cosine.

    Type ``x[*s] -> x[*s]``.
    """

def cosine_embedding_loss(x1: Node, x2: Any, targets: Any, margin: float = 0.0, *, reduction: str = 'mean') -> Node:
    """Return ``1 - cos`` where the target is 1, and ``max(0, cos - margin)`` where it is -1.

    ``cos`` is the cosine of the angle between two vectors along the last axis; reduced over the
    vectors.

    Parameters
    ----------
    x1, x2 : node or array
        Float, shape (batch, features) or (features,).
    targets : node or array
        1 or -1, shape (batch,) or ().
    margin : float
    reduction : {"mean", "sum", "none"}
    """

def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Number of elements over axes that are not zero.

    Type ``a[*s] -> int64[*out]``.  NaN is not zero; no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def cross(x: Any, y: Any, axis: int = -1) -> Node:
    """Return the cross products of vectors of three entries, as ``numpy.linalg.cross``.

    Parameters
    ----------
    x, y : node or array
        Of one dtype, any number; shapes that broadcast but for `axis`.
    axis : int
        Along which the vectors lie in both.
    """

def cross_entropy(logits: Node, targets: Any, weight: Any = None, *, reduction: str = 'mean', ignore_index: int | None = None, label_smoothing: float = 0.0, axis: int = -1) -> Node:
    """Return ``logsumexp(logits) - logits[target]``, as `nll_loss` of `log_softmax`.

    With the probabilities q of classes as targets: ``-sum over c of w[c] q[c] log p[c]``, and a
    mean divides by the number of rows.  With integer targets, smoothing s and weights w:
    ``(1 - s) w[t] (-log p[t]) + s / classes * sum over c of w[c] (-log p[c])``; a mean divides by
    the sum of ``w[t]`` over the targets that count, as in PyTorch.

    Parameters
    ----------
    logits : node
        Float, shape (..., classes).
    targets : node or array
        Integers in ``[0, classes)``, or equal to `ignore_index`, of the shape of `logits` without
        the classes; others raise in the run.  Or floats of the shape of `logits`: probabilities of
        the classes, which get a gradient, too.
    weight : node or array, optional
        One entry per class.
    reduction : {"mean", "sum", "none"}
        Over all targets; "none" gives one loss per target.
    ignore_index : int, optional
        Targets that do not count; PyTorch's default is -100, here none is ignored.
    label_smoothing : float
        In [0, 1]: the share of the target that is spread over all classes.
    axis : int
        That of the classes; 1 in PyTorch.
    """

def cube(x: Any) -> Node:
    """x * x * x.

    Type ``n[*s] -> n[*s]``.
    """

def cummin(x: Node, axis: int = -1) -> tuple[Node, Node]:
    """Return the smallest entry so far along an axis, and its position; otherwise as `cummax`.

    Parameters
    ----------
    x : node
        Real numbers; all results from a NaN on are NaN.
    axis : int
    """

def cumprod(x: Node, axis: int | None = None) -> Node:
    """Running product along `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*s]``.  The gradient is a linear recurrence that never divides: it is right
    where factors are zero.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    """

def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Node:
    """Running integral by the trapezoidal rule, one shorter than `y`.

    Parameters
    ----------
    y : node or array
    x : node or array, optional
        Places of the values: of one dim, or a shape that broadcasts to that of `y`.
    dx : scalar or node
        Distance of neighbours where no places are given.
    axis : int
    """

def deg2rad(x: Any) -> Node:
    """Degrees to radians.

    Type ``f[*s] -> f[*s]``.
    """

def det(x: Node) -> Node:
    """Return the determinant of each matrix, as ``numpy.linalg.det``.

    The gradient is the matrix of cofactors, which exists for singular matrices too; the second
    derivative divides by the determinant and raises in the run for singular ones.  For large
    matrices use `slogdet`, which does not overflow.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """

def diagflat(x: Node, k: int = 0) -> Node:
    """Return the diagonal matrix of the flattened array, as ``numpy.diagflat``.

    Parameters
    ----------
    x : node
        Any shape and dtype.
    k : int
        Which diagonal, as `offset` in `diagonal`.
    """

def digamma(x: Any) -> Node:
    """Derivative of lgamma.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.psi``, an extra: ``pip install 'actorgraph[special]'``.
    """

def divide(x: Any, y: Any) -> Node:
    """Divide floats; integers have to be converted with ``.astype`` first.

    Type ``x[*s] -> x[*t] -> x[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def dropout1d(x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero whole channels with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, size) or without the batch.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """

def dropout2d(x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero whole channels with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """

def dropout3d(x: Node, p: float = 0.5, training: bool = True) -> Node:
    """Zero whole channels with probability `p` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, depth, height, width) or without the batch.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """

def eig(x: Node) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, as ``numpy.linalg.eig``.

    Both are complex, also where a run finds real ones, which NumPy gives as floats.  Where
    eigenvalues coincide, within rounding, their vectors have no derivative: a run that needs it
    raises.  For Hermitian matrices use `eigh`.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """

def eigvals(x: Node) -> Node:
    """Return the eigenvalues of square matrices, as ``numpy.linalg.eigvals``.

    The gradient is ``V^-H diag(ct) V^H``; a matrix without a basis of eigenvectors V has none, and
    raises in the run or gives numbers without meaning.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """

def eigvalsh(x: Node, UPLO: str | None = None) -> Node:
    """Return the eigenvalues of Hermitian matrices, as ``numpy.linalg.eigvalsh``.

    The gradient is ``V diag(ct) V^H``.  Where eigenvalues coincide, it is right for functions that
    are symmetric in them, such as their sum.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    UPLO : {"L", "U"}, optional
        The triangle that counts, and gets the gradient; by default the Hermitian part of each
        matrix counts.
    """

def entr(x: Any) -> Node:
    """-x * log(x), 0 at 0 and -inf below.

    Type ``f[*s] -> f[*s]``.  The gradient at 0 is infinite, and below NaN.
    """

def equal(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x == y.

    Type ``a[*s] -> a[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def erf(x: Any) -> Node:
    """Error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.erf``, an extra: ``pip install 'actorgraph[special]'``.
    """

def erfc(x: Any) -> Node:
    """Complementary error function, 1 - erf(x), exact for large x.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.erfc``, an extra: ``pip install 'actorgraph[special]'``.
    """

def erfcx(x: Any) -> Node:
    """exp(x * x) * erfc(x), without overflow for large x.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.erfcx``, an extra: ``pip install 'actorgraph[special]'``.
    """

def erfinv(x: Any) -> Node:
    """Inverse of erf.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.erfinv``, an extra: ``pip install 'actorgraph[special]'``.  The gradient at -1 and 1 is infinite.
    """

def exp(x: Any) -> Node:
    """Exponential.

    Type ``x[*s] -> x[*s]``.
    """

def exp2(x: Any) -> Node:
    """2 ** x.

    Type ``x[*s] -> x[*s]``.
    """

def expm1(x: Any) -> Node:
    """exp(x) - 1, exact near 0.

    Type ``x[*s] -> x[*s]``.
    """

def eye(graph: Any, n: Any, m: Any = None, k: int = 0, dtype: Any = 'float32') -> Node:
    """Return a matrix with ones on a diagonal, as ``numpy.eye``.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    n, m : int, str or Dim
        Rows and columns; as many columns as rows by default.
    k : int
        The diagonal: above the main one where positive.
    dtype : dtype
    """

def feature_alpha_dropout(x: Node, p: float = 0.5, training: bool = False) -> Node:
    """`alpha_dropout` of whole channels of ``(batch, channels, ...)``.

    Parameters
    ----------
    x : node
        Float.
    p : float
        In [0, 1].
    training : bool
        False returns `x` itself.
    """

def fft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `fftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def fftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Discrete Fourier transform over several axes, as ``numpy.fft.fftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def flip(x: Node, axis: Any = None) -> Node:
    """Reverse the order along axes, as ``numpy.flip``.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    """

def floor(x: Any) -> Node:
    """The largest integer <= x.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
    """

def floor_divide(x: Any, y: Any) -> Node:
    """The largest integer <= x / y.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Piecewise constant: its gradient is zero.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def fmax(x: Any, y: Any) -> Node:
    """The larger of x and y; of a number and NaN the number.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient; two of NaN get none.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def fmin(x: Any, y: Any) -> Node:
    """The smaller of x and y; of a number and NaN the number.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient; two of NaN get none.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def fmod(x: Any, y: Any) -> Node:
    """Remainder of a division rounded towards zero, with the sign of x.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Gradients: 1 for x, -trunc(x / y) for y.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def fold(x: Node, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Node:
    """Add columns of windows into images, as ``torch.nn.functional.fold``: `unfold`'s adjoint.

    Parameters
    ----------
    x : node
        Shape (batch, channels * product of the kernel, windows) or without the batch.
    output_size : int or pair of int
        Height and width of the images.
    kernel_size, dilation, padding, stride : int or pair of int
    """

def frac(x: Any) -> Node:
    """x without its integer part.

    Type ``f[*s] -> f[*s]``.  The gradient is 1.
    """

def fractional_max_pool2d(x: Node, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None) -> Any:
    """Maximum over windows at random places, as ``torch.nn.functional.fractional_max_pool2d``.

    Their distance along an axis is about ``(size - kernel_size) / (output_size - 1)``, which is no
    whole number.  Each channel has places of its own, and each run draws them anew.  The gradient
    goes to the first largest entry of a window.  Source: B. Graham, Fractional max-pooling, 2014.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, height, width) or without the batch; height, width are ints.
    kernel_size : int or pair of int
    output_size : int or pair of int, optional
    output_ratio : float or one per axis, optional
        In place of `output_size`: its share of the sizes of `x`.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool2d` takes it.
    _random_samples : node or array, optional
        In place of what a run draws: floats in [0, 1), 2 for each channel of the batch.
    """

def fractional_max_pool3d(x: Node, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False, _random_samples: Any = None) -> Any:
    """Maximum over windows at random places, as ``torch.nn.functional.fractional_max_pool3d``.

    Their distance along an axis is about ``(size - kernel_size) / (output_size - 1)``, which is no
    whole number.  Each channel has places of its own, and each run draws them anew.  The gradient
    goes to the first largest entry of a window.  Source: B. Graham, Fractional max-pooling, 2014.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, depth, height, width) or without the batch; depth, height, width are ints.
    kernel_size : int or triple of int
    output_size : int or triple of int, optional
    output_ratio : float or one per axis, optional
        In place of `output_size`: its share of the sizes of `x`.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool3d` takes it.
    _random_samples : node or array, optional
        In place of what a run draws: floats in [0, 1), 3 for each channel of the batch.
    """

def full_like(x: Node, fill_value: Any, dtype: Any = None) -> Node:
    """Return an array of one value in the shape of `x`, also where only a run knows it.

    Parameters
    ----------
    x : node
        It gets no gradient.
    fill_value : scalar, array or node
        Broadcasts to the shape; a node gets the gradient.
    dtype : dtype, optional
        Default: that of `x`.
    """

def gammaln(x: Any) -> Node:
    """Logarithm of the absolute value of the gamma function.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.gammaln``, an extra: ``pip install 'actorgraph[special]'``.
    """

def gaussian_nll_loss(x: Any, targets: Any, var: Any, full: bool = False, eps: float = 1e-06, *, reduction: str = 'mean') -> Node:
    """Return ``(log(v) + (x - target)^2 / v) / 2`` for ``v = max(var, eps)``, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype, shapes that broadcast.
    var : node, array or scalar
        Variances: of the shape of `x`, of the same without its last axis, or what broadcasts.
    full : bool
        Add ``log(2 pi) / 2``.
    eps : float
    reduction : {"mean", "sum", "none"}
    """

def gcd(x: Any, y: Any) -> Node:
    """Greatest common divisor.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def greater(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x > y.

    Type ``r[*s] -> r[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def greater_equal(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x >= y.

    Type ``r[*s] -> r[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def group_norm(x: Node, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05) -> Node:
    """Normalise groups of channels of each sample, as ``torch.nn.functional.group_norm``.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    num_groups : int
        Divides the channels.
    weight, bias : node or array, optional
        One entry per channel.
    eps : float
        Added to the variance.
    """

def gru_cell(x: Node, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Node:
    """Return the next hidden state of a gated recurrent unit, as ``torch.nn.GRUCell``.

    With the gates r, z, n, in this order, of ``a = x w_ih^T + b_ih`` and ``b = h w_hh^T + b_hh``:
    ``r = sigmoid(a_r + b_r)``, ``z = sigmoid(a_z + b_z)``, ``n = tanh(a_n + r b_n)`` and
    ``h' = n + z (h - n)``.

    Parameters
    ----------
    x : node
        Float, shape (batch, features) or (features,).
    hidden : node or array
        Shape (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (3 hidden, features) and (3 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (3 hidden,).
    """

def hardshrink(x: Node, lambd: float = 0.5) -> Node:
    """``x`` where abs(x) > lambd, else 0; the gradient is 0 up to `lambd`.

    Type ``f[*s] -> f[*s]``.

    Parameters
    ----------
    x : node
    lambd : float
        At least 0.
    """

def hardsigmoid(x: Any) -> Node:
    """clip(x + 3, 0, 6) / 6.

    Type ``f[*s] -> f[*s]``.  The gradient is 0 at -3 and 3.
    """

def hardswish(x: Any) -> Node:
    """x * hardsigmoid(x).

    Type ``f[*s] -> f[*s]``.  The gradient is 0 at -3 and 1 at 3.  Source: Howard et al., Searching for MobileNetV3, 2019.
    """

def heaviside(x: Any, y: Any) -> Node:
    """0 where x < 0, 1 where x > 0, and y where x is 0.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  Piecewise constant in x: only y has a gradient, where x is 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def hfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Transform signals with a real spectrum, given by half, as ``numpy.fft.hfft``.

    Parameters
    ----------
    x : node
        Float or complex.
    n : int, str or Dim, optional
        Number of points of the result; default twice the entries less 2.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def hfft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `hfftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def hfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Transform signals with real spectra, given by half, as ``torch.fft.hfftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def hinge(scores: Any, targets: Any, margin: float = 1.0, reduction: str = 'mean') -> Node:
    """Return ``max(0, margin - targets * scores)``, reduced; the slope at the corner is 0.

    Parameters
    ----------
    scores : node or array
        Float.
    targets : node or array
        -1 or 1, of the dtype and shape of `scores`.
    margin : float
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def hinge_embedding_loss(x: Any, targets: Any, margin: float = 1.0, *, reduction: str = 'mean') -> Node:
    """Return x where the target is 1 and ``max(0, margin - x)`` where it is -1, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    margin : float
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def hinge_loss(scores: Any, targets: Any, margin: float = 1.0, reduction: str = 'mean') -> Node:
    """Return ``max(0, margin - targets * scores)``, reduced; the slope at the corner is 0.

    Parameters
    ----------
    scores : node or array
        Float.
    targets : node or array
        -1 or 1, of the dtype and shape of `scores`.
    margin : float
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def huber(x: Any, y: Any, reduction: str = 'mean', delta: float = 1.0) -> Node:
    """Return ``d^2 / 2`` up to ``d = abs(x - y) = delta``, then ``delta (d - delta / 2)``, reduced.

    Source: P. J. Huber, Robust estimation of a location parameter, 1964.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    delta : float
        Above 0.
    """

def huber_loss(x: Any, y: Any, reduction: str = 'mean', delta: float = 1.0) -> Node:
    """Return ``d^2 / 2`` up to ``d = abs(x - y) = delta``, then ``delta (d - delta / 2)``, reduced.

    Source: P. J. Huber, Robust estimation of a location parameter, 1964.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    delta : float
        Above 0.
    """

def hypot(x: Any, y: Any) -> Node:
    """sqrt(x * x + y * y), without overflow.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  At the origin all derivatives are 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def i0(x: Any) -> Node:
    """Modified Bessel function of the first kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.i0``, an extra: ``pip install 'actorgraph[special]'``.
    """

def i0e(x: Any) -> Node:
    """Exp(-abs(x)) times the modified Bessel function of the first kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.i0e``, an extra: ``pip install 'actorgraph[special]'``.
    """

def i1(x: Any) -> Node:
    """Modified Bessel function of the first kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.i1``, an extra: ``pip install 'actorgraph[special]'``.
    """

def i1e(x: Any) -> Node:
    """Exp(-abs(x)) times the modified Bessel function of the first kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.i1e``, an extra: ``pip install 'actorgraph[special]'``.
    """

def ifft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Inverse of `fft`, as ``numpy.fft.ifft``.

    Parameters
    ----------
    x : node
        Float or complex; float32 gives complex64.
    n : int, str or Dim, optional
        Number of points: the axis is cut, or extended with zeros.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def ifft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `ifftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def ifftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Inverse of `fftn`, as ``numpy.fft.ifftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def ihfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Undo `hfft`, as ``numpy.fft.ihfft``.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    n : int, str or Dim, optional
        Number of points: the axis is cut, or extended with zeros.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def ihfft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `ihfftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def ihfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `hfftn`, as ``torch.fft.ihfftn``.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def index_reduce(x: Node, axis: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Node:
    """Return `x` with slices of `source` reduced into an axis, as ``torch.index_reduce``.

    For axis 0 and "amax" ``result[index[i]] = maximum(result[index[i]], source[i])``; `index_add`
    is "sum".

    Parameters
    ----------
    x : node
        Numbers.
    axis : int
    index : integer array or node of one dim
    source : node, array or scalar
        Broadcasts to the shape of `x` with ``len(index)`` along the axis.
    reduce : str
        "sum", "mean" (of integers rounded down), "prod", "amax" or "amin".
    include_self : bool
        Whether the entry of `x` counts too where something is written.
    """

def instance_norm(x: Node, *, weight: Any = None, bias: Any = None, eps: float = 1e-05) -> Node:
    """Normalise each channel of each sample over its places.

    PyTorch's ``instance_norm`` without running statistics.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...), rank 3 or more.
    weight, bias : node or array, optional
        One entry per channel.
    eps : float
        Added to the variance.
    """

def irfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Inverse of `rfft`, as ``numpy.fft.irfft``.

    The imaginary parts of the entries for frequency 0 and, where n is even, n / 2 do not count
    and get no gradient.

    Parameters
    ----------
    x : node
        Float or complex.
    n : int, str or Dim, optional
        Number of points of the result; default twice the entries less 2.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def irfft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `irfftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def irfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Undo `rfftn`, as ``numpy.fft.irfftn``.

    Parameters
    ----------
    x : node
        Float or complex.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def isfinite(x: Any) -> Node:
    """Whether x is neither NaN nor infinite.

    Type ``n[*s] -> bool[*s]``.
    """

def isinf(x: Any) -> Node:
    """Whether x is infinite.

    Type ``n[*s] -> bool[*s]``.
    """

def isnan(x: Any) -> Node:
    """Whether x is NaN.

    Type ``n[*s] -> bool[*s]``.
    """

def istft(x: Node, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None, center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None, return_complex: bool = False) -> Node:
    """Undo `stft` by least squares, as ``torch.istft``.

    Frames are multiplied by the window and added where they overlap, and the sum is divided by
    that of the squares of the window, which must not be 0.

    Parameters
    ----------
    x : node
        Complex, shape (..., frequencies, frames), the last two known.
    n_fft : int
        Points of a frame.
    hop_length : int, optional
        Points from one frame to the next; a quarter of a frame by default.
    win_length : int, optional
        Points of the window, in the middle of the frame; all by default.
    window : node or array, optional
        Factors, shape (win_length,); ones by default.
    center : bool
        Let frame t have its middle at ``t * hop_length``: the signal is padded by half a frame.
    normalized : bool
        Divide by the square root of `n_fft`.
    onesided : bool, optional
        Whether `x` has the frequencies up to ``n_fft // 2`` only; default: by their number.
    length : int, optional
        Points of the result, cut off or filled up with zeros.
    return_complex : bool
        Return complex signals from both sides of the spectrum; else only frequencies up to
        ``n_fft // 2`` count.
    """

def j0(x: Any) -> Node:
    """Bessel function of the first kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.j0``, an extra: ``pip install 'actorgraph[special]'``.
    """

def j1(x: Any) -> Node:
    """Bessel function of the first kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.j1``, an extra: ``pip install 'actorgraph[special]'``.
    """

def k0(x: Any) -> Node:
    """Modified Bessel function of the second kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.k0``, an extra: ``pip install 'actorgraph[special]'``.
    """

def k0e(x: Any) -> Node:
    """Exp(x) times the modified Bessel function of the second kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.k0e``, an extra: ``pip install 'actorgraph[special]'``.
    """

def k1(x: Any) -> Node:
    """Modified Bessel function of the second kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.k1``, an extra: ``pip install 'actorgraph[special]'``.
    """

def k1e(x: Any) -> Node:
    """Exp(x) times the modified Bessel function of the second kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.k1e``, an extra: ``pip install 'actorgraph[special]'``.
    """

def kthvalue(x: Node, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the k-th smallest value along an axis, from 1 on, and its position.

    Parameters
    ----------
    x : node
    k, axis : int
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def l1(x: Any, y: Any, *, reduction: str = 'mean') -> Node:
    """Return ``abs(x - y)``, reduced; the slope is 0 where x = y.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def l1_loss(x: Any, y: Any, *, reduction: str = 'mean') -> Node:
    """Return ``abs(x - y)``, reduced; the slope is 0 where x = y.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def lcm(x: Any, y: Any) -> Node:
    """Least common multiple.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def left_shift(x: Any, y: Any) -> Node:
    """x times 2 ** y, without the bits that are shifted out.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def less(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x < y.

    Type ``r[*s] -> r[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def less_equal(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x <= y.

    Type ``r[*s] -> r[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def lgamma(x: Any) -> Node:
    """Logarithm of the absolute value of the gamma function.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.gammaln``, an extra: ``pip install 'actorgraph[special]'``.
    """

def linspace(graph: Any, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None) -> Node:
    """Return `num` evenly spaced numbers from `start` to `stop`, as ``numpy.linspace``.

    ``y[i] = start + i * (stop - start) / (num - 1)``, or over ``num`` without the endpoint.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    start, stop : number or 0-d node
        Nodes get gradients.
    num : int, str or Dim
        How many.
    endpoint : bool
        Whether `stop` is the last one.
    dtype : dtype, optional
        Float or complex; default: that of a node among the ends, else float32.
    """

def local_response_norm(x: Node, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> Node:
    """Divide by a power of the mean square over neighbouring channels, as PyTorch does.

    ``x / (k + alpha mean)^beta``, the mean over `size` channels around each, zeros beyond the
    ends.  Source: A. Krizhevsky et al., ImageNet classification, 2012.  Built of other ops.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    size : int
        Channels in a window.
    alpha, beta, k : float
    """

def log(x: Any) -> Node:
    """Natural logarithm.

    Type ``x[*s] -> x[*s]``.
    """

def log10(x: Any) -> Node:
    """Logarithm to base 10.

    Type ``x[*s] -> x[*s]``.
    """

def log1p(x: Any) -> Node:
    """log(1 + x), exact near 0.

    Type ``x[*s] -> x[*s]``.
    """

def log2(x: Any) -> Node:
    """Logarithm to base 2.

    Type ``x[*s] -> x[*s]``.
    """

def log_ndtr(x: Any) -> Node:
    """Logarithm of the normal distribution function, exact far below 0 too.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.log_ndtr``, an extra: ``pip install 'actorgraph[special]'``.
    """

def log_softmax(x: Node, axis: int = -1) -> Node:
    """Return ``x - log(sum(exp(x)))`` along an axis, computed from ``x - max(x)``.

    Parameters
    ----------
    x : node
        Float.
    axis : int
        Along which the result sums to 1; a scalar has axis 0.
    """

def logaddexp2(x: Any, y: Any) -> Node:
    """log2(2**x + 2**y), without overflow.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  Two of -inf give -inf, with gradient 0.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def logical_and(x: Any, y: Any) -> Node:
    """x and y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def logical_not(x: Any) -> Node:
    """not x.

    Type ``bool[*s] -> bool[*s]``.
    """

def logical_or(x: Any, y: Any) -> Node:
    """x or y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def logical_xor(x: Any, y: Any) -> Node:
    """x != y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def logsigmoid(x: Any) -> Node:
    """log(sigmoid(x)), computed as -log(1 + exp(-x)).

    Type ``f[*s] -> f[*s]``.
    """

def logspace(graph: Any, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: float = 10.0, dtype: Any = None) -> Node:
    """Return ``base ** linspace(start, stop)``, as ``numpy.logspace``.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    start, stop : number or 0-d node
        Nodes get gradients.
    num : int, str or Dim
        How many.
    endpoint : bool
        Whether `stop` is the last one.
    base : float
    dtype : dtype, optional
        Float or complex; default: that of a node among the ends, else float32.
    """

def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """log(sum(exp(x))) over axes, without overflow.

    Type ``f[*s] -> f[*out]``.  Computed as ``max(x) + log(sum(exp(x - max(x))))`` where the sum would overflow or vanish.  A row of -inf gives -inf, with gradient 0, and so does an empty axis.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def lp_pool1d(x: Node, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Node:
    """Root of the sum of powers over windows, as ``torch.nn.functional.lp_pool1d``.

    ``(sum of x^p)^(1/p)`` for ``p = norm_type``; a negative sum has no root (NaN).  The sum over a
    window that is cut off is scaled as if it were whole.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, size) or without the batch.
    norm_type : float
        The power p, not 0.
    kernel_size : int
    stride : int, optional
        Default: the kernel's size.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    """

def lp_pool2d(x: Node, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Node:
    """Root of the sum of powers over windows, as ``torch.nn.functional.lp_pool2d``.

    ``(sum of x^p)^(1/p)`` for ``p = norm_type``; a negative sum has no root (NaN).  The sum over a
    window that is cut off is scaled as if it were whole.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, height, width) or without the batch.
    norm_type : float
        The power p, not 0.
    kernel_size : int or pair of int
    stride : int or pair of int, optional
        Default: the kernel's size.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    """

def lp_pool3d(x: Node, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Node:
    """Root of the sum of powers over windows, as ``torch.nn.functional.lp_pool3d``.

    ``(sum of x^p)^(1/p)`` for ``p = norm_type``; a negative sum has no root (NaN).  The sum over a
    window that is cut off is scaled as if it were whole.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, depth, height, width) or without the batch.
    norm_type : float
        The power p, not 0.
    kernel_size : int or triple of int
    stride : int or triple of int, optional
        Default: the kernel's size.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    """

def lstm_cell(x: Node, state: tuple[Any, Any], w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> tuple[Node, Node]:
    """Return the next hidden and cell state of a long short-term memory, as ``torch.nn.LSTMCell``.

    With the gates i, f, g, o, in this order, of ``x w_ih^T + b_ih + h w_hh^T + b_hh``:
    ``c' = sigmoid(f) c + sigmoid(i) tanh(g)`` and ``h' = sigmoid(o) tanh(c')``.

    Parameters
    ----------
    x : node
        Float, shape (batch, features) or (features,).
    state : pair of node or array
        ``(h, c)``, each (batch, hidden) or (hidden,).
    w_ih, w_hh : node or array
        Shapes (4 hidden, features) and (4 hidden, hidden).
    b_ih, b_hh : node or array, optional
        Shape (4 hidden,).
    """

def lu_factor(x: Node) -> LUFactorResult:
    """Decompose matrices for `lu_solve`: with ``L, U`` as of `lu`, ``x[permutation] = L @ U``.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number; m and n are ints, or the
        same dim.
    """

def margin_ranking_loss(x1: Node, x2: Any, targets: Any, margin: float = 0.0, *, reduction: str = 'mean') -> Node:
    """Return ``max(0, margin - target (x1 - x2))``, reduced; a target of 1 wants x1 above x2.

    Parameters
    ----------
    x1, x2, targets : node or array
        Of one float dtype, shapes that broadcast; targets are 1 or -1.
    margin : float
    reduction : {"mean", "sum", "none"}
    """

def matrix_exp(x: Node) -> Node:
    """Return the exponential of square matrices, ``I + x + x @ x / 2 + ...``.

    As ``scipy.linalg.expm`` and ``torch.linalg.matrix_exp``; the gradient costs the exponential of
    a matrix of twice the size.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """

def matrix_norm(x: Node, ord: Any = 'fro', axis: tuple[int, int] = (-2, -1), keepdims: bool = False) -> Node:
    """Norm of matrices, as ``numpy.linalg.matrix_norm``.

    Parameters
    ----------
    x : node
        Float or complex, at least two dims.
    ord : {"fro", "nuc", 1, -1, 2, -2, inf, -inf}
        The root of the sum of squares; the sum of the singular values; the largest or smallest sum
        of a column; singular value; or sum of a row.
    axis : pair of int
        Those of the rows and of the columns.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def matrix_rank(x: Node, rtol: float | None = None, *, atol: float | None = None, hermitian: bool = False) -> Node:
    """Return the rank of each matrix, as ``numpy.linalg.matrix_rank``; no gradient.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    rtol : float, optional
        Singular values up to this share of the largest count as 0; default ``max(m, n)`` times
        the spacing of the dtype at 1, also where NumPy's default differs, or 0 with `atol`.
    atol : float, optional
        Singular values up to this one count as 0, too.
    hermitian : bool
        Take the Hermitian part of each matrix.
    """

def max(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Maximum over axes.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where a value is NaN, which then gets the gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def max_pool1d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Maximum over windows of one axis, as ``torch.nn.functional.max_pool1d``.

    The gradient goes to the first largest entry of a window in row-major order.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, size) or without the batch.
    kernel_size, dilation : int
    stride : int, optional
        Default: the kernel's size.
    padding : int, pairs of int, "same" or "valid"
        Before and after each axis, at most half of the kernel; never chosen.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool1d` takes it.
    """

def max_pool2d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Maximum over windows of two axes, as ``torch.nn.functional.max_pool2d``.

    The gradient goes to the first largest entry of a window in row-major order.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, height, width) or without the batch.
    kernel_size, dilation : int or pair of int
    stride : int or pair of int, optional
        Default: the kernel's size.
    padding : int or pair of int, pairs of int, "same" or "valid"
        Before and after each axis, at most half of the kernel; never chosen.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool2d` takes it.
    """

def max_pool3d(x: Node, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """Maximum over windows of three axes, as ``torch.nn.functional.max_pool3d``.

    The gradient goes to the first largest entry of a window in row-major order.

    Parameters
    ----------
    x : node
        Real, shape (batch, channels, depth, height, width) or without the batch.
    kernel_size, dilation : int or triple of int
    stride : int or triple of int, optional
        Default: the kernel's size.
    padding : int or triple of int, pairs of int, "same" or "valid"
        Before and after each axis, at most half of the kernel; never chosen.
    ceil_mode : bool
        Keep a last window that is cut off at the end, if it starts inside the input or the padding
        before it.
    return_indices : bool
        Return where each maximum stands, too; `max_unpool3d` takes it.
    """

def max_unpool1d(x: Node, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> Node:
    """Write maxima where they stood, zeros elsewhere, as ``torch.nn.functional.max_unpool1d``.

    Parameters
    ----------
    x : node
        Maxima, shape (batch, channels, size) or without the batch.
    indices : node or array
        Of the shape of `x`, as ``max_pool1d(..., return_indices=True)`` gives them; of entries
        with one index the last stays.
    kernel_size, stride, padding
        As of the pool.
    output_size : sequence of int, optional
        Sizes of what was pooled, with or without batch and channels.  Default: the least sizes
        that the pool could have had.
    """

def max_unpool2d(x: Node, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> Node:
    """Write maxima where they stood, zeros elsewhere, as ``torch.nn.functional.max_unpool2d``.

    Parameters
    ----------
    x : node
        Maxima, shape (batch, channels, height, width) or without the batch.
    indices : node or array
        Of the shape of `x`, as ``max_pool2d(..., return_indices=True)`` gives them; of entries
        with one index the last stays.
    kernel_size, stride, padding
        As of the pool.
    output_size : sequence of int, optional
        Sizes of what was pooled, with or without batch and channels.  Default: the least sizes
        that the pool could have had.
    """

def max_unpool3d(x: Node, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> Node:
    """Write maxima where they stood, zeros elsewhere, as ``torch.nn.functional.max_unpool3d``.

    Parameters
    ----------
    x : node
        Maxima, shape (batch, channels, depth, height, width) or without the batch.
    indices : node or array
        Of the shape of `x`, as ``max_pool3d(..., return_indices=True)`` gives them; of entries
        with one index the last stays.
    kernel_size, stride, padding
        As of the pool.
    output_size : sequence of int, optional
        Sizes of what was pooled, with or without batch and channels.  Default: the least sizes
        that the pool could have had.
    """

def maximum(x: Any, y: Any) -> Node:
    """The larger of x and y; NaN where either is NaN.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Arithmetic mean over axes.

    Type ``x[*s] -> x[*out]``.  Integers have to be converted with ``.astype`` first.  The mean of no elements is NaN.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def median(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The value in the middle, or the mean of the two, as ``numpy.median``.

    PyTorch's takes the lower of the two: ``quantile(x, 0.5, method="lower")``.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def min(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Minimum over axes.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where a value is NaN, which then gets the gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def minimum(x: Any, y: Any) -> Node:
    """The smaller of x and y; NaN where either is NaN.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def mish(x: Any) -> Node:
    """x * tanh(softplus(x)).

    Type ``f[*s] -> f[*s]``.
    """

def mod(x: Any, y: Any) -> Node:
    """Remainder of `floor_divide`, with the sign of y.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Gradients: 1 for x, -floor(x / y) for y.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def mode(x: Node, axis: int = -1, keepdims: bool = False) -> tuple[Node, Node]:
    """Return the most frequent value along an axis and its last position, as ``torch.mode``.

    Parameters
    ----------
    x : node
        Real numbers; each NaN is a value of its own.
    axis : int
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def multi_head_attention(query: Node, key: Any, value: Any, num_heads: int, *, in_proj_weight: Any, out_proj_weight: Any, in_proj_bias: Any = None, out_proj_bias: Any = None, mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False) -> Node:
    """Project, attend with several heads, and project: PyTorch's ``MultiheadAttention``.

    Source: A. Vaswani et al., Attention is all you need, 2017.  The batch comes first.

    Parameters
    ----------
    query, key, value : node or array
        Shape (..., length, features); those of key and value are alike.
    num_heads : int
        Divides the features of the projections.
    in_proj_weight : node or array, or three of them
        Shape (3 * features, features): the projections of query, key and value stacked; or one
        for each.
    out_proj_weight : node or array
        Shape (outputs, features).
    in_proj_bias, out_proj_bias : node or array, optional
        Shapes (3 * features,) and (outputs,).
    mask : node or array, optional
        As of `scaled_dot_product_attention`; broadcasts to (..., heads, queries, keys).
    dropout_p : float
        Probability with which a weight is dropped in each run.
    is_causal : bool
        Query i sees the keys 0 to i, besides what `mask` says.
    """

def multi_margin_loss(x: Node, targets: Any, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = 'mean') -> Node:
    """Return ``sum over c != t of max(0, margin - x[t] + x[c])^p / classes``, reduced.

    Parameters
    ----------
    x : node
        Float, shape (batch, classes) or (classes,).
    targets : node or array
        Integers in ``[0, classes)``, shape (batch,) or ().
    p : {1, 2}
    margin : float
    weight : node or array, optional
        One factor per class, for the rows of that target.
    reduction : {"mean", "sum", "none"}
    """

def multiply(x: Any, y: Any) -> Node:
    """Multiply.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def nanargmax(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the largest element that is not NaN; 0 where all are NaN, where NumPy raises.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanargmin(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Position of the smallest element that is not NaN; 0 where all are NaN, where NumPy raises.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nancumprod(x: Node, axis: int | None = None) -> Node:
    """Running product with NaN as 1, as ``numpy.nancumprod``.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    """

def nancumsum(x: Node, axis: int | None = None) -> Node:
    """Running sum with NaN as 0, as ``numpy.nancumsum``.

    Parameters
    ----------
    x : node
    axis : int, optional
        Default: of the flattened array.
    """

def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Maximum over axes of what is not NaN.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where all values are.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanmean(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`mean` over axes of what is not NaN, as ``numpy.nanmean``; NaN of none, without a warning.

    NaN gets no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanmedian(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`median` of what is not NaN, as ``numpy.nanmedian``; NaN of none, without a warning.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Minimum over axes of what is not NaN.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where all values are.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanpercentile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = 'linear') -> Node:
    """`percentile` of what is not NaN, as ``numpy.nanpercentile``.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 100; a number or of one dim.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    method : str
        One of the 13 of ``numpy.quantile``.
    """

def nanprod(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`prod` over axes of what is not NaN, as ``numpy.nanprod``; 1 of none.

    NaN gets no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanquantile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = 'linear') -> Node:
    """`quantile` of what is not NaN, as ``numpy.nanquantile``; NaN of none, without a warning.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 1; a number or of one dim.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    method : str
        One of the 13 of ``numpy.quantile``.
    """

def nanstd(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """`std` over axes of what is not NaN, as ``numpy.nanstd``; NaN of no more than `ddof`.

    NaN gets no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.
    """

def nansum(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`sum` over axes of what is not NaN, as ``numpy.nansum``; 0 of none.

    NaN gets no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def nanvar(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """`var` over axes of what is not NaN, as ``numpy.nanvar``; NaN of no more than `ddof`.

    NaN gets no gradient.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.
    """

def ndtr(x: Any) -> Node:
    """The normal distribution function, the integral of its density up to x.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.ndtr``, an extra: ``pip install 'actorgraph[special]'``.
    """

def ndtri(x: Any) -> Node:
    """Inverse of the normal distribution function.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.ndtri``, an extra: ``pip install 'actorgraph[special]'``.  The gradient at 0 and 1 is infinite.
    """

def neg(x: Any) -> Node:
    """Negate.

    Type ``n[*s] -> n[*s]``.
    """

def nextafter(x: Any, y: Any) -> Node:
    """The float next to x towards y.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  The gradient of x is 1, that of y zero.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def nll(log_probs: Node, targets: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str = 'mean', axis: int = -1) -> Node:
    """Return ``-weight[target] log_probs[target]``, reduced.

    Parameters
    ----------
    log_probs : node
        Float, shape (..., classes).
    targets : node or array
        Integers of the shape of `log_probs` without the classes, in ``[0, classes)`` or equal to
        `ignore_index`; others raise in the run.
    weight : node or array, optional
        One entry per class; a mean divides by the sum of the weights of the targets.
    ignore_index : int, optional
        Targets that do not count; PyTorch's default is -100, here none is ignored.
    reduction : {"mean", "sum", "none"}
    axis : int
        That of the classes; 1 in PyTorch.
    """

def nll_loss(log_probs: Node, targets: Any, weight: Any = None, *, ignore_index: int | None = None, reduction: str = 'mean', axis: int = -1) -> Node:
    """Return ``-weight[target] log_probs[target]``, reduced.

    Parameters
    ----------
    log_probs : node
        Float, shape (..., classes).
    targets : node or array
        Integers of the shape of `log_probs` without the classes, in ``[0, classes)`` or equal to
        `ignore_index`; others raise in the run.
    weight : node or array, optional
        One entry per class; a mean divides by the sum of the weights of the targets.
    ignore_index : int, optional
        Targets that do not count; PyTorch's default is -100, here none is ignored.
    reduction : {"mean", "sum", "none"}
    axis : int
        That of the classes; 1 in PyTorch.
    """

def norm(x: Node, p: float = 2, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of the elements over `axis` as of one vector: ``sum(abs(x) ** p) ** (1 / p)``.

    Type ``f[*s] -> f[*out]``; for complex numbers the norm of their lengths.  For a Frobenius norm
    name the two axes of the matrices.  Scaled, so that no power overflows.  The norm of no elements
    is 0.

    The gradient is finite everywhere: 0 at the origin, and 0 for an element that is 0; elements
    that tie for p = inf share it equally.  Higher derivatives at the origin have no limit (the
    Hessian for p = 2, ``(I - u u^T) / norm(x)``, grows without bound); they are 0, as for `abs`.

    Parameters
    ----------
    x : node
    p : float
        Any order; 0 counts what is not zero, inf takes the largest, -inf the smallest size.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def normal(graph: Graph | Node, shape: Any, mean: Any = 0.0, std: Any = 1.0, dtype: Any = 'float32') -> Node:
    """Draw normal numbers.

    Parameters
    ----------
    graph : Graph or node
    shape : tuple
        Dims may be symbols.
    mean, std : scalar or node
        Nodes get gradients.
    dtype : float dtype
    """

def not_equal(x: Any, y: Any, *, same_dtype: bool = False) -> Node:
    """x != y.

    Type ``a[*s] -> a[*t] -> bool[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    same_dtype : bool
        Give 0 and 1 in the dtype of x and y instead of bools.
    """

def ones(graph: Any, shape: Any, dtype: Any = 'float32') -> Node:
    """Return ones of a shape, whose dims may be symbols.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    shape : tuple of int, str or Dim
    dtype : dtype
    """

def pairwise_distance(x: Any, y: Any, p: float = 2.0, eps: float = 1e-06, keepdims: bool = False) -> Node:
    """Return the p-norm of ``x - y + eps`` along the last axis, as in PyTorch.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype, shapes that broadcast.
    p : float
        Order of the norm, as of `norm`.
    eps : float
        Keeps the gradient of equal vectors finite in PyTorch; here it only gives equal values.
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def percentile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = 'linear') -> Node:
    """`quantile` with `q` between 0 and 100, as ``numpy.percentile``.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 100; a number or of one dim.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    method : str
        One of the 13 of ``numpy.quantile``.
    """

def pick_neg_log_sigmoid(logits: Node, index: Any) -> Node:
    """Return ``-log(sigmoid(logits))`` at the index of each row; Ginn's `PickNegLogSigmoid`.

    Parameters
    ----------
    logits : node
        Float, shape (..., classes).
    index : node or array
        Integers in ``[0, classes)``, of the shape of `logits` without the classes; others raise in
        the run.
    """

def pick_softmax(logits: Node, index: Any) -> Node:
    """Return ``softmax(logits)`` at the index of each row, without the other entries.

    ``exp(-cross_entropy)``, so that small probabilities keep their digits.

    Parameters
    ----------
    logits : node
        Float, shape (..., classes).
    index : node or array
        Integers in ``[0, classes)``, of the shape of `logits` without the classes; others raise in
        the run.
    """

def poisson_nll_loss(x: Any, targets: Any, log_input: bool = True, full: bool = False, *, eps: float = 1e-08, reduction: str = 'mean') -> Node:
    """Return ``exp(x) - target x``: minus the log likelihood of counts, reduced.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    log_input : bool
        False takes x as the rate itself: ``x - target log(x + eps)``.
    full : bool
        Add Stirling's approximation of ``log(target!)`` for targets above 1.
    eps : float
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Product over axes; the dtype is kept.

    Type ``n[*s] -> n[*out]``.  The product of no elements is 1.  The gradient of an element is the product of the others, taken without a division: it is right where one or several factors are zero.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def psi(x: Any) -> Node:
    """Derivative of lgamma.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.psi``, an extra: ``pip install 'actorgraph[special]'``.
    """

def quantile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = 'linear') -> Node:
    """The value below which a share `q` of the values lies, as ``numpy.quantile``.

    The gradient goes to the one or two entries that are read, by their weights.  NaN where a value
    is NaN.

    Parameters
    ----------
    x : node
        Real numbers; ints only for methods that choose a value.
    q : float, sequence of float, or node
        Between 0 and 1; a number or of one dim.
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    method : str
        One of the 13 of ``numpy.quantile``.
    """

def rad2deg(x: Any) -> Node:
    """Radians to degrees.

    Type ``f[*s] -> f[*s]``.
    """

def reciprocal(x: Any) -> Node:
    """1 / x.

    Type ``x[*s] -> x[*s]``.
    """

def relu(x: Any) -> Node:
    """max(x, 0).

    Type ``r[*s] -> r[*s]``.  The gradient at 0 is 0.  An inactive unit gets 0 also of an infinite cotangent, as ``where(y > 0, ct, 0)`` gives it.
    """

def rfft(x: Node, n: Any = None, axis: int = -1, norm: str | None = None) -> Node:
    """Half of the spectrum of real signals, as ``numpy.fft.rfft``.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    n : int, str or Dim, optional
        Number of points: the axis is cut, or extended with zeros.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def rfft2(x: Node, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Node:
    """Transform over the last two axes by `rfftn`, as ``numpy.fft`` names it.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int
        The last two by default.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def rfftn(x: Node, s: Any = None, axes: Any = None, norm: str | None = None) -> Node:
    """Transform real signals over several axes, as ``numpy.fft.rfftn``: half of the spectrum.

    Parameters
    ----------
    x : node
        Float; float32 gives complex64.
    s : sequence of int, str or Dim, optional
        Number of points along each of the axes; -1 keeps those it has.
    axes : sequence of int, optional
        Default: all, or as many of the last ones as `s` has entries.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction divides by n, or by its root in both; default "backward".
    """

def right_shift(x: Any, y: Any) -> Node:
    """x divided by 2 ** y, rounded down.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def rms_norm(x: Node, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Node:
    """Divide by the root mean square over the trailing axes, as ``torch.nn.functional.rms_norm``.

    ``x / sqrt(mean(x^2) + eps) * weight``.

    Parameters
    ----------
    x : node
        Float.
    normalized_shape : int or tuple
        The last dims of `x`, over which mean and variance are taken.
    weight : node or array, optional
        Of that shape.
    eps : float, optional
        Default: the machine epsilon of the dtype.
    """

def rsqrt(x: Any) -> Node:
    """1 / sqrt(x).

    Type ``x[*s] -> x[*s]``.
    """

def running_batch_norm(x: Node, scale: Any, bias: Any, running_mean: Node, running_var: Node, *, training: bool, momentum: float = 0.1, eps: float = 1e-05) -> Node:
    """Normalise each channel by the batch in training, by running statistics in evaluation.

    In training every run that computes the result ends by moving the buffers towards the batch's
    mean and unbiased variance, ``running = (1 - momentum) running + momentum batch``, as PyTorch
    does.  Runs commit in the order of their numbers; each has read the statistics at its start,
    so of runs in flight together the last one's counts.  A failed run changes nothing.

    Parameters
    ----------
    x : node
        Float, shape (batch, channels, ...).
    scale, bias : node, array or None
        One entry per channel.
    running_mean, running_var : Buffer
        One entry per channel; usually zeros and ones at first.
    training : bool
        Build two nodes, one for each, where both are wanted.
    momentum : float
    eps : float
        Added to the variance.
    """

def scatter_add(x: Node, axis: int, index: Any, src: Any) -> Node:
    """Return `x` with `src` added along an axis, as ``torch.scatter_add``.

    For axis 1 of a matrix ``result[i, index[i, j]] += src[i, j]``; repeated positions add up.

    Parameters
    ----------
    x : node
        Numbers.
    axis : int
    index : integer array or node
        Of the rank of `x`, along the other axes at most as long as it.  Negative positions count
        from the end.
    src : node, array or scalar
        Broadcasts to the shape of the index; entries beyond it are left out.
    """

def scatter_reduce(x: Node, axis: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Node:
    """Return `x` with `src` reduced into it along an axis, as ``torch.scatter_reduce``.

    For axis 1 of a matrix and "prod" ``result[i, index[i, j]] *= src[i, j]``; `scatter_add` is
    "sum".  Entries that tie for "amax" and "amin" share the gradient equally.

    Parameters
    ----------
    x : node
        Numbers.
    axis : int
    index : integer array or node
        Of the rank of `x`, along the other axes at most as long as it.
    src : node, array or scalar
        Broadcasts to the shape of the index; entries beyond it are left out.
    reduce : str
        "sum", "mean" (of integers rounded down), "prod", "amax" or "amin".
    include_self : bool
        Whether the entry of `x` counts too where something is written.
    """

def signbit(x: Any) -> Node:
    """Whether the sign is minus, of -0.0 too.

    Type ``f[*s] -> bool[*s]``.
    """

def silu(x: Any) -> Node:
    """x * sigmoid(x), also called swish.

    Type ``f[*s] -> f[*s]``.
    """

def sin(x: Any) -> Node:
    """Sine of radians.

    Type ``x[*s] -> x[*s]``.
    """

def sinh(x: Any) -> Node:
    """Hyperbolic sine.

    Type ``x[*s] -> x[*s]``.
    """

def slogdet(x: Node) -> SlogdetResult:
    """Return sign and logarithm of the modulus of determinants, as ``numpy.linalg.slogdet``.

    The gradient of the logarithm is ``inv(A)^H`` (Giles 2008, 2.2.4, divided by the
    determinant).  A real sign is piecewise constant; a complex one has its gradient.  A singular
    matrix gives sign 0 and -inf, and its gradient raises in the run.

    Parameters
    ----------
    x : node
        Shape (..., n, n), float or complex of at least 32 bits a number.
    """

def smooth_l1(x: Any, y: Any, *, reduction: str = 'mean', beta: float = 1.0) -> Node:
    """Return ``d^2 / (2 beta)`` up to ``d = abs(x - y) = beta``, then ``d - beta / 2``, reduced.

    Huber's loss divided by beta; with ``beta = 0`` it is `l1_loss`.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    beta : float
    """

def smooth_l1_loss(x: Any, y: Any, *, reduction: str = 'mean', beta: float = 1.0) -> Node:
    """Return ``d^2 / (2 beta)`` up to ``d = abs(x - y) = beta``, then ``d - beta / 2``, reduced.

    Huber's loss divided by beta; with ``beta = 0`` it is `l1_loss`.

    Parameters
    ----------
    x, y : node or array
        Float, of one dtype and one shape: nothing broadcasts here, because (n, 1) against (n,)
        is a mistake more often than a wish.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    beta : float
    """

def soft_margin_loss(x: Any, targets: Any, *, reduction: str = 'mean') -> Node:
    """Return ``log(1 + exp(-target x))``, reduced, for targets 1 and -1.

    Parameters
    ----------
    x, targets : node or array
        Of one float dtype and one shape.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def softmin(x: Node, axis: int = -1) -> Node:
    """Return ``softmax(-x)`` along an axis.

    Parameters
    ----------
    x : node
        Float.
    axis : int
        Along which the result sums to 1; a scalar has axis 0.
    """

def softsign(x: Any) -> Node:
    """x / (1 + abs(x)).

    Type ``f[*s] -> f[*s]``.
    """

def spacing(x: Any) -> Node:
    """Distance to the next float away from zero.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.
    """

def sqrt(x: Any) -> Node:
    """Square root.

    Type ``x[*s] -> x[*s]``.  The gradient at 0 is infinite.
    """

def square(x: Any) -> Node:
    """x * x.

    Type ``n[*s] -> n[*s]``.
    """

def std(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Standard deviation over `axis`: the square root of `var`.

    Type ``f[*s] -> f[*out]``.  Its gradient is 0 where it is 0 (all elements equal), where the
    square root has none.  NaN, without a warning, where n is not above `ddof`.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.
    """

def subtract(x: Any, y: Any) -> Node:
    """Subtract.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def sum(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Sum over `axis`; the dtype is kept, also of integers.

    Type ``n[*s] -> n[*out]``.  The sum of no elements is 0.  Floats of two bytes (float16,
    bfloat16) are summed in float32 and rounded once.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def svdvals(x: Node) -> Node:
    """Return the singular values of matrices, as ``numpy.linalg.svdvals``.

    The gradient is ``U diag(ct) Vh``; of values that coincide, or are 0, it is one of several
    subgradients.

    Parameters
    ----------
    x : node
        Shape (..., m, n), float or complex of at least 32 bits a number.
    """

def tan(x: Any) -> Node:
    """Tangent of radians.

    Type ``x[*s] -> x[*s]``.
    """

def tanh(x: Any) -> Node:
    """Hyperbolic tangent.

    Type ``x[*s] -> x[*s]``.
    """

def tanhshrink(x: Any) -> Node:
    """x - tanh(x).

    Type ``x[*s] -> x[*s]``.
    """

def trace(x: Node, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Node:
    """Sum along diagonals, as ``numpy.trace``; integers keep their dtype.

    Built of `diagonal` and `sum`.  The gradient is the cotangent on the diagonal.

    Parameters
    ----------
    x : node
        At least two dims, numbers.
    offset : int
        Columns to the right of the main diagonal; negative for rows below it.
    axis1, axis2 : int
        The axes of the rows and of the columns.
    """

def triplet(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, *, reduction: str = 'mean') -> Node:
    """Return ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, reduced.

    ``d`` is `pairwise_distance`.  Source: V. Balntas et al., Learning shallow convolutional feature
    descriptors with triplet losses, 2016.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape.
    margin : float
    p : float
        Order of the norm, above 0.
    eps : float
    swap : bool
        Take the distance from positive to negative where it is smaller.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-06, swap: bool = False, *, reduction: str = 'mean') -> Node:
    """Return ``max(0, margin + d(anchor, positive) - d(anchor, negative))``, reduced.

    ``d`` is `pairwise_distance`.  Source: V. Balntas et al., Learning shallow convolutional feature
    descriptors with triplet losses, 2016.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape.
    margin : float
    p : float
        Order of the norm, above 0.
    eps : float
    swap : bool
        Take the distance from positive to negative where it is smaller.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def triplet_margin_with_distance_loss(anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None, margin: float = 1.0, swap: bool = False, reduction: str = 'mean') -> Node:
    """Return `triplet_margin_loss` for any distance of two nodes.

    Parameters
    ----------
    anchor, positive, negative : node or array
        Float, of one dtype and one shape.
    distance_function : callable, optional
        Default: `pairwise_distance`.
    margin : float
    swap : bool
        Take the distance from positive to negative where it is smaller.
    reduction : {"mean", "sum", "none"}
        Over all elements; "none" gives one loss per element.
    """

def triu(x: Node, k: int = 0) -> Node:
    """Keep the upper triangle of each matrix, with zeros below the `k`-th diagonal.

    Parameters
    ----------
    x : node
        Shape (..., m, n), any dtype.
    k : int
        The first diagonal that is kept; 0 is the main one.
    """

def trunc(x: Any) -> Node:
    """The nearest integer towards zero.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
    """

def truncated_normal(graph: Graph | Node, shape: Any, mean: Any = 0.0, std: Any = 1.0, *, low: float = -2.0, high: float = 2.0, dtype: Any = 'float32') -> Node:
    """Draw normal numbers that lie between `low` and `high` standard deviations from the mean.

    By the inverse of the distribution function, so that far tails take no longer.

    Parameters
    ----------
    graph : Graph or node
    shape : tuple
        Dims may be symbols.
    mean, std : scalar or node
        Nodes get gradients.
    low, high : float
        Multiples of `std`.
    dtype : float dtype
    """

def var(x: Node, axis: Any = None, keepdims: bool = False, *, ddof: int = 0) -> Node:
    """Variance over `axis`: ``sum(abs(x - mean(x)) ** 2) / (n - ddof)``.

    Type ``f[*s] -> f[*out]``; of complex numbers the sum of the variances of their parts, real.
    NaN, without a warning, where n is not above `ddof`.

    Parameters
    ----------
    x : node
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    ddof : int
        Degrees of freedom to subtract; 0 as in NumPy, where PyTorch takes 1.
    """

def vector_norm(x: Node, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Node:
    """Norm of the elements over `axis`, as ``numpy.linalg.vector_norm``: `norm` of order `ord`.

    Parameters
    ----------
    x : node
    ord : float
    axis : int, tuple of int, or None for all
    keepdims : bool
        Keep the axes as dims of size 1.
    """

def where(condition: Any, x: Any, y: Any) -> Node:
    """x where the condition holds, else y.

    Type ``bool[*s] -> a[*t] -> a[*u] -> a[*s|t|u]``.  The value that is not chosen gets gradient 0, whatever it is.

    Parameters
    ----------
    condition : bool node or array
    x, y : node, array or scalar
    """

def xlog1py(x: Any, y: Any) -> Node:
    """x * log(1 + y), 0 where x is 0.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def xlogy(x: Any, y: Any) -> Node:
    """x * log(y), 0 where x is 0.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.

    Parameters
    ----------
    x, y : node, array or scalar
        Shapes that broadcast.
    """

def y0(x: Any) -> Node:
    """Bessel function of the second kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.y0``, an extra: ``pip install 'actorgraph[special]'``.
    """

def y1(x: Any) -> Node:
    """Bessel function of the second kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.y1``, an extra: ``pip install 'actorgraph[special]'``.
    """

def zeros(graph: Any, shape: Any, dtype: Any = 'float32') -> Node:
    """Return zeros of a shape, whose dims may be symbols.

    Parameters
    ----------
    graph : Graph or node
        Where the node belongs.
    shape : tuple of int, str or Dim
    dtype : dtype
    """
