"""Attention of several heads, and the layers of a transformer."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from actorgraph import ops
from actorgraph.errors import GraphTypeError
from actorgraph.nn import _draws
from actorgraph.nn._sized import Layer
from actorgraph.nn.layers import Dropout
from actorgraph.nn.linear import Linear
from actorgraph.nn.module import Module
from actorgraph.nn.normalisation import LayerNorm
from actorgraph.node import Node
from actorgraph.options import choice, real


class MultiheadAttention(Layer):
    """Attention of several heads, as PyTorch's class of that name.

    Source: A. Vaswani et al., "Attention is all you need", 2017.

    Parameters
    ----------
    embed_dim, num_heads : int
    dropout : float
        Of the weights of attention, in training.
    bias, batch_first : bool
        Shapes are (length, batch, features), with `batch_first` (batch, length, features).
    dtype : float dtype
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        batch_first: bool = False, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        if embed_dim % num_heads:
            raise GraphTypeError(f"{num_heads} heads cannot share {embed_dim} features evenly")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = real("dropout", dropout)
        bound = sqrt(6 / (4 * embed_dim))  # Glorot's, of all three projections
        self.in_proj_weight: Any = _draws.uniform((3 * embed_dim, embed_dim), bound, dtype)
        self.in_proj_bias: Any = _draws.filled((3 * embed_dim,), 0, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        if bias:
            self.out_proj.bias.value[...] = 0

    def forward(
        self, query: Node, key: Any, value: Any, key_padding_mask: Any = None,
        need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Node, Node | None]:  # fmt: skip
        """Return the result, and the weights of attention where they are needed.

        Parameters
        ----------
        query, key, value : node
        key_padding_mask : bool node, optional
            (batch, keys): True where a key is hidden.
        need_weights, average_attn_weights : bool
            Whether to return weights, and whether their mean over heads.
        attn_mask : node, optional
            (queries, keys) or (batch * heads, queries, keys): True where a key is hidden from a
            query, or what is added to the scores.
        is_causal : bool
            Hide later keys.
        """
        nodes = [query.graph.lift(one) for one in (query, key, value)]
        turned = not self.batch_first and query.ndim == 3
        if turned:
            nodes = [ops.swapaxes(one, 0, 1) for one in nodes]
        bias = self.in_proj_bias
        weights = ops.split(self.in_proj_weight, 3)
        biases = [None] * 3 if bias is None else ops.split(bias, 3)
        heads, size = self.num_heads, self.embed_dim // self.num_heads
        rows = [ops.linear(*each) for each in zip(nodes, weights, biases, strict=True)]
        q, k, v = [ops.swapaxes(ops.reshape(x, (*x.shape[:-1], heads, size)), -2, -3) for x in rows]
        scores = (q * (1 / sqrt(size))) @ ops.swapaxes(k, -1, -2)
        for mask in self._masks(scores, attn_mask, key_padding_mask, is_causal):
            scores = (
                ops.where(mask, float("-inf"), scores) if mask.dtype.kind == "b" else scores + mask
            )
        attention = ops.softmax(scores)
        kept = ops.dropout(attention, self.dropout, self.training)
        y = ops.flatten(ops.swapaxes(kept @ v, -2, -3), -2)
        y = self.out_proj(y)
        if turned:
            y = ops.swapaxes(y, 0, 1)
        if not need_weights:
            return y, None
        return y, ops.mean(attention, axis=-3) if average_attn_weights else attention

    def _masks(self, scores: Node, attn_mask: Any, padding: Any, is_causal: bool) -> list[Node]:
        masks = []
        if attn_mask is not None:
            mask = scores.graph.lift(attn_mask)
            if mask.ndim == 3:
                mask = ops.reshape(mask, (-1, self.num_heads, *mask.shape[1:]))
            masks.append(mask)
        elif is_causal:
            masks.append(ops.triu(ops.ones_like(scores, dtype="bool"), 1))
        if padding is not None:
            masks.append(ops.expand_dims(scores.graph.lift(padding), (-3, -2)))
        return masks


class _TransformerLayer(Module):
    """What the layers of encoder and decoder share."""

    norms = 2

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        """Take the settings.

        Parameters
        ----------
        d_model, nhead, dim_feedforward : int
        dropout : float
        activation : {"relu", "gelu"}
        layer_norm_eps : float
        batch_first, norm_first, bias : bool
            `norm_first` normalises before each part and not after it.
        dtype : float dtype
        """
        self.activation = choice("activation", activation, ("relu", "gelu"))
        self.norm_first = norm_first
        parts = ["self_attn", "multihead_attn"][: self.norms - 1]
        for part in parts:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first, dtype)
            setattr(self, part, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype)
        for number in range(1, self.norms + 1):
            setattr(
                self, f"norm{number}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
            )
            setattr(self, f"dropout{number}", Dropout(dropout))

    def _attend(self, x: Node, *parts: Any) -> Node:
        """Return `x` after the parts, functions of nodes, each with a residual and a norm."""
        for number, part in enumerate(parts, 1):
            norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
            x = x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))
        return x

    def _feed(self, x: Node) -> Node:
        active = getattr(ops, self.activation)(self.linear1(x))
        return self.linear2(self.dropout(active))  # type: ignore[no-any-return]


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and two affine maps."""

    self_attn: MultiheadAttention

    def forward(
        self, src: Node, src_mask: Any = None, src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Node:  # fmt: skip
        """Return what the layer makes of `src`; masks as those of `MultiheadAttention`."""
        look = _looking(self.self_attn, None, src_key_padding_mask, src_mask, is_causal)
        return self._attend(src, look, self._feed)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to what an encoder returned, and two affine maps."""

    norms = 3
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def forward(
        self, tgt: Node, memory: Any, tgt_mask: Any = None, memory_mask: Any = None,
        tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Node:  # fmt: skip
        """Return what the layer makes of `tgt`; masks as those of `MultiheadAttention`."""
        look = _looking(self.self_attn, None, tgt_key_padding_mask, tgt_mask, tgt_is_causal)
        look_back = _looking(
            self.multihead_attn, memory, memory_key_padding_mask, memory_mask, memory_is_causal
        )
        return self._attend(tgt, look, look_back, self._feed)


def _looking(
    attention: MultiheadAttention, memory: Any, padding: Any, mask: Any, causal: bool
) -> Callable[[Node], Node]:
    """Return what attention makes of `x` and a memory, by default `x` itself, as a function."""

    def look(x: Node) -> Node:
        seen = x if memory is None else memory
        result: tuple[Node, None] = attention(
            x, seen, seen, padding, need_weights=False, attn_mask=mask, is_causal=causal
        )
        return result[0]

    return look
