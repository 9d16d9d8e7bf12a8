"""Channels turned into pixels and back, and channels in another order."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.ops._docs import raises
from actorgraph.ops.grouping import group_dim, ungroup_dims
from actorgraph.ops.shaping import swapaxes, transpose
from actorgraph.ops.windows import per_axis
from actorgraph.types import Dim

__all__ = ["channel_shuffle", "pixel_shuffle", "pixel_unshuffle"]


def _check_blocks(x: Node, factor: Any, what: str) -> int:
    if x.ndim < 3:
        raise ShapeError(f"{what} takes rank 3 or more, got {x!r}")
    return per_axis(factor, 1, f"{what}: factor")[0]


@raises(shapes="The rank is below 3, or the channels are no multiple of the square.")
def pixel_shuffle(x: Node, upscale_factor: int) -> Node:
    """Turn channels into pixels: (..., c r^2, h, w) to (..., c, h r, w r), as PyTorch does.

    Source: W. Shi et al., Real-time single image and video super-resolution, 2016.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    upscale_factor : int
        r; its square divides the channels.
    """
    factor = _check_blocks(x, upscale_factor, "pixel_shuffle")
    lead = x.ndim - 3
    channels = x.dims[lead]
    if isinstance(channels, Dim) or channels % factor**2:
        raise ShapeError(f"pixel_shuffle: channels {channels} are no known multiple of {factor**2}")
    # (..., c, r, r, h, w)
    x = group_dim(group_dim(x, lead, size=factor), lead, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 3, lead + 1, lead + 4, lead + 2))
    return ungroup_dims(ungroup_dims(x, lead + 1), lead + 2)


@raises(shapes="The rank is below 3, or height or width are no known multiples of the factor.")
def pixel_unshuffle(x: Node, downscale_factor: int) -> Node:
    """Turn pixels into channels: the inverse of `pixel_shuffle`.

    Parameters
    ----------
    x : node
        Rank 3 or more, any dtype.
    downscale_factor : int
        Divides height and width, which have to be known.
    """
    factor = _check_blocks(x, downscale_factor, "pixel_unshuffle")
    lead = x.ndim - 3
    for dim in x.dims[lead + 1 :]:
        if isinstance(dim, Dim) or dim % factor:
            raise ShapeError(f"pixel_unshuffle: size {dim} is no known multiple of {factor}")
    # (..., c, h, r, w, r)
    x = group_dim(group_dim(x, lead + 2, size=factor), lead + 1, size=factor)
    x = transpose(x, (*range(lead + 1), lead + 2, lead + 4, lead + 1, lead + 3))
    return ungroup_dims(ungroup_dims(x, lead), lead)


@raises(shapes="There are no channels, or `groups` does not divide them.")
def channel_shuffle(x: Node, groups: int) -> Node:
    """Interleave groups of channels: channel j of group i becomes channel i of group j.

    As ``torch.nn.functional.channel_shuffle``.  Source: X. Zhang et al., ShuffleNet, 2018.

    Parameters
    ----------
    x : node
        Shape (batch, channels, ...), any dtype.
    groups : int
        Divides the channels.
    """
    parts = per_axis(groups, 1, "channel_shuffle: groups")[0]
    if x.ndim < 3 or isinstance(x.dims[1], Dim) or x.dims[1] % parts:
        raise ShapeError(f"channel_shuffle: the channels of {x!r} are no known multiple of {parts}")
    return ungroup_dims(swapaxes(group_dim(x, 1, parts), 1, 2), 1)
