"""A transformer encoder of two layers with token and position tables, against PyTorch.

::

    tokens -> table + places -> [ x + attention(norm(x)) -> x + gelu network(norm(x)) ] * 2
           -> norm -> mean over places -> linear -> cross entropy

Both orders of normalisation, with and without a causal mask.
"""

from functools import cache

import pytest

import actorgraph as ag
from tests.models._pytorch import (
    MACHINES,
    assert_machine_agrees,
    every_machine,
    parameters_of,
    results_of,
)

torch = pytest.importorskip("torch")
pytest.importorskip("scipy", reason="the exact gelu is computed by SciPy")
pytestmark = pytest.mark.oracle
ops = ag.ops

BATCH, LENGTH, WIDTH, HEADS, INNER, TOKENS, CLASSES, LAYERS = 3, 6, 16, 4, 32, 11, 5, 2
VARIANTS = [(True, False), (False, True)]


@cache
def theirs(norm_first, causal, dtype):
    """Return the module, its feeds and its results."""
    torch.manual_seed(5)
    layer = torch.nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, dropout=0.0, activation="gelu", batch_first=True,
        norm_first=norm_first,
    )  # fmt: skip
    encoder = torch.nn.TransformerEncoder(
        layer, LAYERS, torch.nn.LayerNorm(WIDTH), enable_nested_tensor=False
    )
    module = torch.nn.ModuleDict(
        {
            "tokens": torch.nn.Embedding(TOKENS, WIDTH),
            "places": torch.nn.Embedding(LENGTH, WIDTH),
            "encoder": encoder,
            "head": torch.nn.Linear(WIDTH, CLASSES),
        }
    ).to(getattr(torch, dtype))
    for name, parameter in module.named_parameters():
        if name.endswith("bias") or parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5)  # neither zeros nor ones
    tokens, targets = torch.randint(TOKENS, (BATCH, LENGTH)), torch.randint(CLASSES, (BATCH,))
    x = module["tokens"](tokens) + module["places"](torch.arange(LENGTH))
    mask = None
    if causal:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=x.dtype)
    encoded = encoder(x, mask=mask, is_causal=causal)
    logits = module["head"](encoded.mean(1))
    loss = torch.nn.functional.cross_entropy(logits, targets)
    wanted = results_of(module, {"logits": logits, "encoded": encoded}, loss)
    return module, {"tokens": tokens.numpy(), "t": targets.numpy()}, wanted


def attention(x, weights, name, causal):
    projected = x @ weights[f"{name}.in_proj_weight"].T + weights[f"{name}.in_proj_bias"]
    heads = [
        ops.permute(ops.reshape(part, ("batch", LENGTH, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))
        for part in ops.split(projected, 3, axis=-1)
    ]
    mixed = ops.scaled_dot_product_attention(*heads, is_causal=causal)
    joined = ops.reshape(ops.permute(mixed, (0, 2, 1, 3)), ("batch", LENGTH, WIDTH))
    return joined @ weights[f"{name}.out_proj.weight"].T + weights[f"{name}.out_proj.bias"]


def block(x, weights, name, norm_first, causal):
    def norm(x, which):
        return ops.layer_norm(
            x, WIDTH, weights[f"{name}.{which}.weight"], weights[f"{name}.{which}.bias"]
        )

    def network(x):
        hidden = x @ weights[f"{name}.linear1.weight"].T + weights[f"{name}.linear1.bias"]
        return (
            ops.gelu(hidden) @ weights[f"{name}.linear2.weight"].T + weights[f"{name}.linear2.bias"]
        )

    if norm_first:
        x = x + attention(norm(x, "norm1"), weights, f"{name}.self_attn", causal)
        return x + network(norm(x, "norm2"))
    x = norm(x + attention(x, weights, f"{name}.self_attn", causal), "norm1")
    return norm(x + network(x), "norm2")


def ours(norm_first, causal, dtype):
    """Return the outputs, the loss first, and the parameters."""
    graph = ag.Graph("transformer")
    tokens = graph.input("tokens", ("batch", LENGTH), "int64")
    targets = graph.input("t", ("batch",), "int64")
    weights = parameters_of(graph, theirs(norm_first, causal, dtype)[0])
    x = ops.embedding(tokens, weights["tokens.weight"]) + weights["places.weight"]
    for layer in range(LAYERS):
        x = block(x, weights, f"encoder.layers.{layer}", norm_first, causal)
    encoded = ops.layer_norm(x, WIDTH, weights["encoder.norm.weight"], weights["encoder.norm.bias"])
    pooled = ops.mean(encoded, axis=1)
    logits = pooled @ weights["head.weight"].T + weights["head.bias"]
    return {
        "loss": ops.cross_entropy(logits, targets),
        "logits": logits,
        "encoded": encoded,
    }, weights


@every_machine
@pytest.mark.parametrize(("norm_first", "causal"), VARIANTS)
def test_transformer_agrees_with_pytorch(norm_first, causal, machine, dtype):
    kind, options = MACHINES[machine]
    _, feeds, wanted = theirs(norm_first, causal, dtype)
    assert_machine_agrees(kind, *ours(norm_first, causal, dtype), feeds, wanted, **options)
