"""What `actorgraph.ops` exports, for editors and type checkers.

Written by `python docs/generate.py`; do not edit.
"""

from collections.abc import Callable
from typing import Any

from actorgraph.graph import Node
from actorgraph.op import Sample as Sample, Together as Together

ABOVE: dict[str, Callable[[], Any] | None]
LATE: dict[str, str]
from actorgraph.ops.activations import celu as celu, elu as elu, expit as expit, gelu as gelu, glu as glu, hardshrink as hardshrink, hardtanh as hardtanh, leaky_relu as leaky_relu, prelu as prelu, relu6 as relu6, selu as selu, sigmoid as sigmoid, softplus as softplus, softshrink as softshrink, sparsemax as sparsemax, threshold as threshold
from actorgraph.ops.arithmetic import abs as abs, imag as imag, power as power, real as real, sign as sign
from actorgraph.ops.assignment import index_add as index_add, index_put as index_put, put as put, scatter as scatter, scatter_add as scatter_add
from actorgraph.ops.attention import multi_head_attention as multi_head_attention, scaled_dot_product_attention as scaled_dot_product_attention
from actorgraph.ops.broadcasting import broadcast_like as broadcast_like, broadcast_to as broadcast_to, conj as conj, expand_dims as expand_dims, squeeze as squeeze, sum as sum
from actorgraph.ops.clipping import clip_by_global_norm as clip_by_global_norm, clip_by_norm as clip_by_norm
from actorgraph.ops.comparison import allclose as allclose, array_equal as array_equal, float_power as float_power, frexp as frexp, isclose as isclose, ldexp as ldexp, modf as modf
from actorgraph.ops.convolution import bilinear as bilinear, linear as linear
from actorgraph.ops.counting import bincount as bincount, digitize as digitize, histogram as histogram, nanargmax as nanargmax, nanargmin as nanargmin, nancumprod as nancumprod, nancumsum as nancumsum
from actorgraph.ops.creation import arange as arange, eye as eye, full as full, full_like as full_like, linspace as linspace, logspace as logspace, meshgrid as meshgrid, ones as ones, ones_like as ones_like, zeros as zeros, zeros_like as zeros_like
from actorgraph.ops.criteria import bce_with_logits as bce_with_logits, binary_cross_entropy as binary_cross_entropy, binary_cross_entropy_with_logits as binary_cross_entropy_with_logits, cosine_embedding_loss as cosine_embedding_loss, cross_entropy as cross_entropy, gaussian_nll_loss as gaussian_nll_loss, hinge as hinge, hinge_embedding_loss as hinge_embedding_loss, hinge_loss as hinge_loss, kl_div as kl_div, linear_cross_entropy as linear_cross_entropy, margin_ranking_loss as margin_ranking_loss, multi_margin_loss as multi_margin_loss, multilabel_margin_loss as multilabel_margin_loss, multilabel_soft_margin_loss as multilabel_soft_margin_loss, nll as nll, nll_loss as nll_loss, pick_neg_log_sigmoid as pick_neg_log_sigmoid, pick_neg_log_softmax as pick_neg_log_softmax, pick_softmax as pick_softmax, poisson_nll_loss as poisson_nll_loss, soft_margin_loss as soft_margin_loss, triplet as triplet, triplet_margin_loss as triplet_margin_loss, triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from actorgraph.ops.ctc import ctc_loss as ctc_loss
from actorgraph.ops.decompositions import cholesky as cholesky, cholesky_solve as cholesky_solve, householder_product as householder_product, qr as qr, solve_triangular as solve_triangular
from actorgraph.ops.define import define as define, opaque as opaque
from actorgraph.ops.einsum import einsum as einsum
from actorgraph.ops.elementwise import astype as astype, clip as clip, round as round
from actorgraph.ops.embedding import embedding as embedding, embedding_bag as embedding_bag
from actorgraph.ops.fourier import fft as fft, fftn as fftn, fftshift as fftshift, hfft as hfft, hfftn as hfftn, ifft as ifft, ifftn as ifftn, ifftshift as ifftshift, ihfft as ihfft, ihfftn as ihfftn, irfft as irfft, irfftn as irfftn, rfft as rfft, rfftn as rfftn
from actorgraph.ops.gathering import at as at, gather as gather, gather_nd as gather_nd, pick as pick, size_of as size_of, take_along_axis as take_along_axis
from actorgraph.ops.indexing import getitem as getitem, one_hot as one_hot, take as take
from actorgraph.ops.inverses import det as det, inv as inv, matrix_power as matrix_power, matrix_rank as matrix_rank, pinv as pinv, slogdet as slogdet, solve as solve
from actorgraph.ops.linalg import bmm as bmm, dot as dot, kron as kron, matmul as matmul, matvec as matvec, multi_dot as multi_dot, outer as outer, tensordot as tensordot, vander as vander, vecdot as vecdot, vecmat as vecmat
from actorgraph.ops.losses import cdist as cdist, cosine_similarity as cosine_similarity, huber as huber, huber_loss as huber_loss, l1 as l1, l1_loss as l1_loss, log_softmax as log_softmax, mse as mse, mse_loss as mse_loss, normalize as normalize, pairwise_distance as pairwise_distance, pdist as pdist, smooth_l1 as smooth_l1, smooth_l1_loss as smooth_l1_loss, softmax as softmax, softmin as softmin
from actorgraph.ops.lu import lstsq as lstsq, lu as lu, lu_factor as lu_factor, lu_solve as lu_solve, tensorinv as tensorinv, tensorsolve as tensorsolve
from actorgraph.ops.matrices import diag as diag, diag_embed as diag_embed, diagflat as diagflat, diagonal as diagonal, trace as trace, tril as tril, triu as triu
from actorgraph.ops.matrix_norms import cond as cond, matrix_exp as matrix_exp, matrix_norm as matrix_norm, vector_norm as vector_norm
from actorgraph.ops.normalisation import batch_norm as batch_norm, group_norm as group_norm, instance_norm as instance_norm, layer_norm as layer_norm, local_response_norm as local_response_norm, running_batch_norm as running_batch_norm
from actorgraph.ops.placement import to_device as to_device
from actorgraph.ops.pooling import global_avg_pool as global_avg_pool, global_max_pool as global_max_pool
from actorgraph.ops.random import alpha_dropout as alpha_dropout, bernoulli as bernoulli, binomial as binomial, categorical as categorical, dropout as dropout, feature_alpha_dropout as feature_alpha_dropout, gumbel_softmax as gumbel_softmax, normal as normal, rrelu as rrelu, truncated_normal as truncated_normal, uniform as uniform
from actorgraph.ops.rearranging import flip as flip, moveaxis as moveaxis, pad as pad, permute as permute, repeat as repeat, roll as roll, tile as tile
from actorgraph.ops.recurrent import gru_cell as gru_cell, lstm_cell as lstm_cell, rnn_cell as rnn_cell
from actorgraph.ops.reductions import cummax as cummax, cummin as cummin, cumprod as cumprod, cumsum as cumsum, logaddexp as logaddexp, logcumsumexp as logcumsumexp
from actorgraph.ops.resampling import affine_grid as affine_grid, channel_shuffle as channel_shuffle, grid_sample as grid_sample, interpolate as interpolate, pixel_shuffle as pixel_shuffle, pixel_unshuffle as pixel_unshuffle, upsample as upsample, yolo_decode as yolo_decode
from actorgraph.ops.reshaping import flatten as flatten, ravel as ravel, reshape as reshape
from actorgraph.ops.sampled import convolve as convolve, cumulative_trapezoid as cumulative_trapezoid, interp as interp, istft as istft, stft as stft, trapezoid as trapezoid
from actorgraph.ops.scatter_reductions import aminmax as aminmax, block_diag as block_diag, bucketize as bucketize, cartesian_prod as cartesian_prod, dist as dist, histc as histc, index_copy as index_copy, index_fill as index_fill, index_reduce as index_reduce, index_select as index_select, kthvalue as kthvalue, lerp as lerp, masked_fill as masked_fill, masked_select as masked_select, narrow as narrow, renorm as renorm, scatter_reduce as scatter_reduce, segment_reduce as segment_reduce, select_scatter as select_scatter, slice_scatter as slice_scatter
from actorgraph.ops.shaping import array as array, concatenate as concatenate, split as split, stack as stack, swapaxes as swapaxes, transpose as transpose, unstack as unstack
from actorgraph.ops.sorting import argsort as argsort, argwhere as argwhere, flatnonzero as flatnonzero, isin as isin, masked_scatter as masked_scatter, mode as mode, nonzero as nonzero, searchsorted as searchsorted, sort as sort, topk as topk, unique as unique
from actorgraph.ops.special import angle as angle, cot as cot, csc as csc, logit as logit, multigammaln as multigammaln, polygamma as polygamma, sec as sec, sinc as sinc, zeta as zeta
from actorgraph.ops.spectral import eig as eig, eigh as eigh, eigvals as eigvals, eigvalsh as eigvalsh, svd as svd, svdvals as svdvals
from actorgraph.ops.statistics import average as average, corrcoef as corrcoef, cov as cov, median as median, nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile, norm as norm, percentile as percentile, quantile as quantile, std as std, var as var
from actorgraph.ops.windows import fold as fold, im2col as im2col, unfold as unfold
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
    """

def all(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether no element over axes is zero.

    Type ``a[*s] -> bool[*out]``.  Of no elements True; no gradient.
    """

def any(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether an element over axes is not zero.

    Type ``a[*s] -> bool[*out]``.  Of no elements False; no gradient.
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

def bitwise_and(*values: Any) -> Node:
    """Bits that both integers have.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.  Of bools it is `logical_and`.
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
    """

def bitwise_xor(*values: Any) -> Node:
    """Bits in which two integers differ.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.  Of bools it is `logical_xor`.
    """

def cbrt(x: Any) -> Node:
    """Cube root, also of negative numbers.

    Type ``f[*s] -> f[*s]``.  The gradient at 0 is infinite.
    """

def ceil(x: Any) -> Node:
    """The smallest integer >= x.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
    """

def col2im(columns: Node, size: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Node:
    """Add rows of windows, as of `im2col`, into an image; where windows overlap, entries add up.

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
    """

def cos(x: Any) -> Node:
    """Cosine of radians.

    Type ``x[*s] -> x[*s]``.
    """

def cosh(x: Any) -> Node:
    """Hyperbolic cosine.

    Type ``x[*s] -> x[*s]``.
    """

def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Number of elements over axes that are not zero.

    Type ``a[*s] -> int64[*out]``.  NaN is not zero; no gradient.
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

def cube(x: Any) -> Node:
    """x * x * x.

    Type ``n[*s] -> n[*s]``.
    """

def deg2rad(x: Any) -> Node:
    """Degrees to radians.

    Type ``f[*s] -> f[*s]``.
    """

def digamma(x: Any) -> Node:
    """Derivative of lgamma.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.psi``, an extra: ``pip install 'actorgraph[special]'``.
    """

def divide(x: Any, y: Any) -> Node:
    """Divide floats; integers have to be converted with ``.astype`` first.

    Type ``x[*s] -> x[*t] -> x[*s|t]``.
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

def floor(x: Any) -> Node:
    """The largest integer <= x.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
    """

def floor_divide(x: Any, y: Any) -> Node:
    """The largest integer <= x / y.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Piecewise constant: its gradient is zero.
    """

def fmax(x: Any, y: Any) -> Node:
    """The larger of x and y; of a number and NaN the number.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient; two of NaN get none.
    """

def fmin(x: Any, y: Any) -> Node:
    """The smaller of x and y; of a number and NaN the number.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient; two of NaN get none.
    """

def fmod(x: Any, y: Any) -> Node:
    """Remainder of a division rounded towards zero, with the sign of x.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Gradients: 1 for x, -trunc(x / y) for y.
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

def gammaln(x: Any) -> Node:
    """Logarithm of the absolute value of the gamma function.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.gammaln``, an extra: ``pip install 'actorgraph[special]'``.
    """

def gcd(x: Any, y: Any) -> Node:
    """Greatest common divisor.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.
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

def hypot(x: Any, y: Any) -> Node:
    """sqrt(x * x + y * y), without overflow.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  At the origin all derivatives are 0.
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

def lcm(x: Any, y: Any) -> Node:
    """Least common multiple.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.
    """

def left_shift(x: Any, y: Any) -> Node:
    """x times 2 ** y, without the bits that are shifted out.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.
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

def logaddexp2(x: Any, y: Any) -> Node:
    """log2(2**x + 2**y), without overflow.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.  Two of -inf give -inf, with gradient 0.
    """

def logical_and(x: Any, y: Any) -> Node:
    """x and y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.
    """

def logical_not(x: Any) -> Node:
    """not x.

    Type ``bool[*s] -> bool[*s]``.
    """

def logical_or(x: Any, y: Any) -> Node:
    """x or y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.
    """

def logical_xor(x: Any, y: Any) -> Node:
    """x != y.

    Type ``bool[*s] -> bool[*t] -> bool[*s|t]``.
    """

def logsigmoid(x: Any) -> Node:
    """log(sigmoid(x)), computed as -log(1 + exp(-x)).

    Type ``f[*s] -> f[*s]``.
    """

def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """log(sum(exp(x))) over axes, without overflow.

    Type ``f[*s] -> f[*out]``.  Computed as ``max(x) + log(sum(exp(x - max(x))))`` where the sum would overflow or vanish.  A row of -inf gives -inf, with gradient 0, and so does an empty axis.
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

def max(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Maximum over axes.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where a value is NaN, which then gets the gradient.
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
    """

def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Arithmetic mean over axes.

    Type ``x[*s] -> x[*out]``.  Integers have to be converted with ``.astype`` first.  The mean of no elements is NaN.
    """

def min(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Minimum over axes.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where a value is NaN, which then gets the gradient.
    """

def minimum(x: Any, y: Any) -> Node:
    """The smaller of x and y; NaN where either is NaN.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Where they are equal each gets half of the gradient.
    """

def mish(x: Any) -> Node:
    """x * tanh(softplus(x)).

    Type ``f[*s] -> f[*s]``.
    """

def mod(x: Any, y: Any) -> Node:
    """Remainder of `floor_divide`, with the sign of y.

    Type ``r[*s] -> r[*t] -> r[*s|t]``.  Gradients: 1 for x, -floor(x / y) for y.
    """

def multiply(x: Any, y: Any) -> Node:
    """Multiply.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.
    """

def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Maximum over axes of what is not NaN.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where all values are.
    """

def nanmean(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`mean` over axes of what is not NaN, as ``numpy.nanmean``; NaN of none, without a warning.

    NaN gets no gradient.
    """

def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Minimum over axes of what is not NaN.

    Type ``r[*s] -> r[*out]``.  Elements that tie share the gradient equally.  NaN where all values are.
    """

def nanprod(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """`prod` over axes of what is not NaN, as ``numpy.nanprod``; 1 of none.

    NaN gets no gradient.
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

def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
    """Product over axes; the dtype is kept.

    Type ``n[*s] -> n[*out]``.  The product of no elements is 1.  The gradient of an element is the product of the others, taken without a division: it is right where one or several factors are zero.
    """

def psi(x: Any) -> Node:
    """Derivative of lgamma.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.psi``, an extra: ``pip install 'actorgraph[special]'``.
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

def right_shift(x: Any, y: Any) -> Node:
    """x divided by 2 ** y, rounded down.

    Type ``i[*s] -> i[*t] -> i[*s|t]``.
    """

def rms_norm(x: Node, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Node:
    """Divide by the root mean square over the trailing axes, as ``torch.nn.functional.rms_norm``.

    ``x / sqrt(mean(x^2) + eps) * weight``; otherwise as `layer_norm`.

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

def subtract(x: Any, y: Any) -> Node:
    """Subtract.

    Type ``n[*s] -> n[*t] -> n[*s|t]``.
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

def trunc(x: Any) -> Node:
    """The nearest integer towards zero.

    Type ``f[*s] -> f[*s]``.  Piecewise constant: its gradient is zero.  Integers are returned as they are.
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
    """

def xlogy(x: Any, y: Any) -> Node:
    """x * log(y), 0 where x is 0.

    Type ``f[*s] -> f[*t] -> f[*s|t]``.
    """

def y0(x: Any) -> Node:
    """Bessel function of the second kind, of order 0.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.y0``, an extra: ``pip install 'actorgraph[special]'``.
    """

def y1(x: Any) -> Node:
    """Bessel function of the second kind, of order 1.

    Type ``f[*s] -> f[*s]``.  By ``scipy.special.y1``, an extra: ``pip install 'actorgraph[special]'``.
    """
