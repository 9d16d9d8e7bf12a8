"""`GPT`: a transformer that says what comes next."""

from __future__ import annotations

from typing import Any

from actorgraph import ops
from actorgraph.errors import ShapeError
from actorgraph.nn import init
from actorgraph.nn.containers import ModuleDict, ModuleList
from actorgraph.nn.layers import Dropout
from actorgraph.nn.linear import Embedding, Linear
from actorgraph.nn.module import Module
from actorgraph.nn.normalisation import LayerNorm
from actorgraph.node import Node


class _CausalAttention(Module):
    """Each place looks at itself and those before, with several heads."""

    def __init__(self, width: int, heads: int, dropout: float, dtype: Any) -> None:
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
        self.heads, self.width, self.dropout = heads, width, dropout
        self.c_attn = Linear(width, 3 * width, dtype=dtype)
        self.c_proj = Linear(width, width, dtype=dtype)
        self.resid_dropout = Dropout(dropout)

    def forward(self, x: Node) -> Node:
        batch, length, _ = x.shape
        parts = self.c_attn(x).reshape((batch, length, 3, self.heads, self.width // self.heads))
        query, keys, values = [parts[:, :, part].transpose((0, 2, 1, 3)) for part in range(3)]
        looked = ops.scaled_dot_product_attention(
            query, keys, values, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        joined = looked.transpose((0, 2, 1, 3)).reshape((batch, length, self.width))
        return self.resid_dropout(self.c_proj(joined))  # type: ignore[no-any-return]


class _Feed(Module):
    """Two maps with the tanh form of gelu between."""

    def __init__(self, width: int, dropout: float, dtype: Any) -> None:
        self.c_fc = Linear(width, 4 * width, dtype=dtype)
        self.c_proj = Linear(4 * width, width, dtype=dtype)
        self.dropout = Dropout(dropout)

    def forward(self, x: Node) -> Node:
        active = ops.gelu(self.c_fc(x), approximate="tanh")
        return self.dropout(self.c_proj(active))  # type: ignore[no-any-return]


class _Layer(Module):
    def __init__(self, width: int, heads: int, dropout: float, dtype: Any) -> None:
        self.ln_1 = LayerNorm(width, dtype=dtype)
        self.attn = _CausalAttention(width, heads, dropout, dtype)
        self.ln_2 = LayerNorm(width, dtype=dtype)
        self.mlp = _Feed(width, dropout, dtype)

    def forward(self, x: Node) -> Node:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class GPT(Module):
    """A decoder of tokens, of the form of GPT-2; the table of tokens is that of the output too.

    Source: A. Radford et al., "Language models are unsupervised multitask learners", 2019.  Names
    of weights are those of GPT-2, maps as PyTorch's `Linear` has them; weights start as there.

    Parameters
    ----------
    tokens, length : int
        Kinds of tokens, and the most that a sequence has.
    width, heads, layers : int
    dropout : float
    dtype : float dtype

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> net = ag.nn.models.GPT(tokens=10, length=8, width=16, heads=2, layers=1)
    >>> net(np.zeros((2, 5), int)).shape
    (2, 5, 10)
    """

    def __init__(
        self, tokens: int, length: int, width: int = 128, heads: int = 4, layers: int = 4,
        dropout: float = 0.0, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.length = length
        made = [_Layer(width, heads, dropout, dtype) for _ in range(layers)]
        self.transformer = ModuleDict(
            {
                "wte": Embedding(tokens, width, dtype=dtype),
                "wpe": Embedding(length, width, dtype=dtype),
                "drop": Dropout(dropout),
                "h": ModuleList(made),
                "ln_f": LayerNorm(width, dtype=dtype),
            }
        )
        self.lm_head = Linear(width, tokens, bias=False, dtype=dtype)
        self.lm_head.weight = self.transformer["wte"].weight
        for name, parameter in self.named_parameters():
            narrow = (2 * layers) ** -0.5 if name.endswith("c_proj.weight") else 1.0
            if name.endswith("bias"):
                parameter.value = 0 * parameter.array
            elif parameter.array.ndim > 1:
                draw = init.normal(parameter.shape, dtype=dtype)
                parameter.value = (draw * (0.02 * narrow)).astype(parameter.dtype)

    def forward(self, index: Node) -> Node:
        """Return the scores of what comes after each place of (batch, length) tokens."""
        length = index.shape[1]
        if not isinstance(length, int) or length > self.length:
            raise ShapeError(f"sequences have a known length up to {self.length}, got {length}")
        parts = self.transformer
        x = parts["wte"](index) + parts["wpe"].weight[:length]
        x = parts["drop"](x)
        layers: Any = parts["h"]
        for layer in layers:
            x = layer(x)
        return self.lm_head(parts["ln_f"](x))  # type: ignore[no-any-return]
