"""Every layer and loss gives PyTorch's outputs and gradients, with PyTorch's weights."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._soak import SOAK

pytestmark = pytest.mark.oracle
RNG = np.random.default_rng(0)
TOLERANCE = {"float32": 1e-5, "float64": 1e-9}
DTYPES = [*TOLERANCE] if SOAK else ["float64"]


class Case(NamedTuple):
    name: str
    args: tuple = ()
    shapes: tuple = ((2, 3, 4),)
    options: Mapping = MappingProxyType({})
    feed: Mapping = MappingProxyType(
        {}
    )  # by place: what is fed there; but the first has no gradient
    call: Mapping = MappingProxyType({})


def positive(shape):
    return np.abs(RNG.normal(size=shape)) + 0.1


def signs(*shape):
    return np.sign(RNG.normal(size=shape))


IMAGE = ((2, 4, 6, 6),)
SERIES = ((2, 4, 7),)
VOLUME = ((2, 2, 3, 4, 4),)
PAIR = ((3, 5), (3, 5))
TRIPLE = ((3, 5),) * 3
CLASSES = RNG.integers(0, 5, 3)

ACTIVATIONS = [
    Case(name)
    for name in """CELU ELU GELU Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish
        ReLU ReLU6 SELU Sigmoid SiLU Softsign Tanh Tanhshrink""".split()
] + [
    Case("Hardshrink", (0.3,)),
    Case("Softshrink", (0.3,)),
    Case("Softplus", options={"beta": 2.0}),
    Case("Threshold", (0.1, 20.0)),
    Case("GLU", (1,), ((2, 4, 3),)),
    Case("Softmax", options={"dim": 1}),
    Case("Softmax2d", shapes=((2, 3, 4, 5),)),
    Case("PReLU"),
    Case("PReLU", (3, 0.1), ((2, 3, 4),)),
    Case("Softmin", options={"dim": 1}),
    Case("LogSoftmax", options={"dim": 1}),
    Case("Dropout", (0.0,)),
]  # fmt: skip
LAYERS = [
    Case("Linear", (4, 5)),
    Case("Linear", (4, 5, False)),
    Case("Bilinear", (4, 3, 5), ((2, 4), (2, 3))),
    Case("Embedding", (7, 3), options={"padding_idx": 2}, feed={0: RNG.integers(0, 7, (2, 4))}),
    Case("Conv1d", (4, 6, 3), SERIES, {"padding": 1, "stride": 2}),
    Case("Conv2d", (4, 6, 3), IMAGE, {"padding": "same"}),
    Case("Conv2d", (4, 6, (3, 2)), IMAGE, {"groups": 2, "dilation": (1, 2), "bias": False}),
    Case("Conv2d", (4, 6, 3), IMAGE, {"padding": 2, "padding_mode": "circular"}),
    Case("Conv2d", (4, 6, 3), IMAGE, {"padding": (1, 2), "padding_mode": "reflect"}),
    Case("Conv3d", (2, 3, 2), ((2, 2, 4, 4, 4),)),
    Case("ConvTranspose1d", (4, 6, 3), SERIES, {"stride": 2, "output_padding": 1}),
    Case("ConvTranspose2d", (4, 6, 3), IMAGE, {"stride": 2, "padding": 1, "groups": 2}),
    Case("ConvTranspose3d", (2, 4, 2), VOLUME, {"stride": (1, 2, 1), "groups": 2, "dilation": 2}),
    Case("BatchNorm1d", (4,), ((5, 4),)),
    Case("BatchNorm1d", (4,), SERIES, {"track_running_stats": False}),
    Case("BatchNorm2d", (4,), IMAGE, {"momentum": 0.3}),
    Case("BatchNorm3d", (2,), VOLUME, {"eps": 1e-3}),
    Case("LayerNorm", (4,)),
    Case("LayerNorm", ((3, 4),), options={"bias": False}),
    Case("GroupNorm", (2, 4), IMAGE),
    Case("InstanceNorm1d", (4,), SERIES),
    Case("InstanceNorm2d", (4,), IMAGE, {"affine": True}),
    Case("InstanceNorm3d", (2,), VOLUME, {"affine": True}),
    Case("RMSNorm", (4,), options={"eps": 1e-6}),
    Case("RMSNorm", (4,)),
    Case("MaxPool1d", (2,), SERIES),
    Case("MaxPool2d", (3, 2, 1), IMAGE),
    Case("MaxPool3d", (2,), ((1, 2, 4, 4, 4),)),
    Case("AvgPool1d", (2,), SERIES),
    Case("AvgPool2d", (3,), IMAGE, {"stride": 2, "padding": 1, "count_include_pad": False}),
    Case("AvgPool3d", (2,), ((1, 2, 4, 4, 4),)),
    Case("LPPool1d", (2, 3), ((2, 4, 7),)),
    Case("LPPool2d", (2, 2), IMAGE),
    Case("LPPool3d", (2, 2), ((1, 2, 4, 4, 4),)),
    Case("MaxUnpool1d", (2,), ((2, 1, 2),), feed={1: np.array([[[3, 1]], [[0, 2]]])}),
    Case("MaxUnpool2d", (2,), ((2, 1, 2),), feed={1: np.array([[[5, 1]], [[0, 6]]])}),
    Case("MaxUnpool3d", (2,), ((1, 2, 1, 1),), feed={1: np.array([[[[3]], [[9]]]])}),
    Case("AdaptiveAvgPool1d", (3,), SERIES),
    Case("AdaptiveAvgPool2d", ((3, 2),), IMAGE),
    Case("AdaptiveAvgPool3d", (2,), ((1, 2, 4, 4, 4),)),
    Case("AdaptiveMaxPool1d", (3,), SERIES),
    Case("AdaptiveMaxPool2d", (3,), IMAGE),
    Case("AdaptiveMaxPool3d", (2,), ((1, 2, 4, 4, 4),)),
    Case("RNN", (4, 3, 2), ((5, 2, 4),)),
    Case("RNN", (4, 3), ((2, 5, 4),), {"nonlinearity": "relu", "batch_first": True}),
    Case("LSTM", (4, 3, 2), ((5, 2, 4),), {"bidirectional": True}),
    Case("LSTM", (4, 3), ((5, 4),), {"bias": False}),
    Case("GRU", (4, 3, 2), ((2, 5, 4),), {"batch_first": True, "bidirectional": True}),
    Case("RNNCell", (4, 3), ((2, 4), (2, 3)), {"nonlinearity": "relu"}),
    Case("GRUCell", (4, 3), ((2, 4), (2, 3))),
    Case("GRUCell", (4, 3), ((4,),)),
    Case("LSTMCell", (4, 3), ((2, 4),)),
    Case("LSTMCell", (4, 3), ((4,),), {"bias": False}),
    Case("MultiheadAttention", (4, 2), ((3, 2, 4), (5, 2, 4), (5, 2, 4))),
    Case("MultiheadAttention", (4, 2), ((2, 3, 4),) * 3, {"batch_first": True, "bias": False},
         call={"average_attn_weights": False, "attn_mask": np.triu(np.ones((3, 3), bool), 1)}),
    Case("MultiheadAttention", (4, 2), ((3, 2, 4), (5, 2, 4), (5, 2, 4)),
         call={"key_padding_mask": np.arange(10).reshape(2, 5) % 5 > 2}),
    Case("TransformerEncoderLayer", (4, 2, 8, 0.0), ((3, 2, 4),)),
    Case("TransformerEncoderLayer", (4, 2, 8, 0.0, "gelu"), ((2, 3, 4),),
         {"norm_first": True, "batch_first": True}),
    Case("TransformerDecoderLayer", (4, 2, 8, 0.0), ((3, 2, 4), (5, 2, 4)),
         call={"tgt_mask": np.triu(np.ones((3, 3), bool), 1)}),
    Case("Flatten", (1,)),
    Case("Upsample", options={"scale_factor": 2, "mode": "bilinear"}, shapes=IMAGE),
    Case("PixelShuffle", (2,), ((2, 8, 3, 3),)),
    Case("PixelUnshuffle", (2,), IMAGE),
    Case("ChannelShuffle", (2,), IMAGE),
    Case("LocalResponseNorm", (2,), IMAGE),
    Case("Unfold", (2,), IMAGE),
    Case("Fold", ((6, 6), 2), ((2, 8, 25),)),
]  # fmt: skip
LOSSES = [
    Case("MSELoss", (), PAIR),
    Case("MSELoss", (), PAIR, {"reduction": "sum"}),
    Case("L1Loss", (), PAIR, {"reduction": "none"}),
    Case("SmoothL1Loss", (), PAIR, {"beta": 0.5}),
    Case("HuberLoss", (), PAIR, {"delta": 0.5}),
    Case("BCELoss", (), PAIR, {}, {0: RNG.uniform(0.1, 0.9, (3, 5)), 1: RNG.uniform(0, 1, (3, 5))}),
    Case("BCEWithLogitsLoss", (), PAIR, feed={1: RNG.uniform(0, 1, (3, 5))}),
    Case("CrossEntropyLoss", (), ((3, 5),), {"label_smoothing": 0.1}, {1: CLASSES}),
    Case("CrossEntropyLoss", (), ((3, 5, 2),), {}, {1: RNG.choice([0, 3, -100], (3, 2))}),
    Case("LinearCrossEntropyLoss", (5, 6), ((3, 5),), {"bias": True}, {1: CLASSES}),
    Case("LinearCrossEntropyLoss", (5, 6), ((4, 5),), {"label_smoothing": 0.1},
         {1: np.array([1, -100, 5, 0])}),
    Case("LinearCrossEntropyLoss", (5, 6), ((3, 5),),
         {"out_features": (2, 2), "bias": True, "reduction": "sum", "ignore_index": 2},
         {1: RNG.integers(0, 6, (3, 2, 2))}),
    Case("LinearCrossEntropyLoss", (5, 6), ((3, 5), (3, 6, 2)),
         {"out_features": (2,), "reduction": "none"}),
    Case("LinearCrossEntropyLoss", (5, 6), ((5,),), {}, {1: np.array(3)}),
    Case("AdaptiveLogSoftmaxWithLoss", (9, 12, (3, 5, 10)), ((7, 9),), {"div_value": 2.0},
         {1: np.array([0, 11, 3, 4, 2, 10, 3])}),
    Case("AdaptiveLogSoftmaxWithLoss", (9, 12, [3, 5], 3.0), ((9,),), {"head_bias": True},
         {1: np.array(7)}),
    Case("NLLLoss", (), ((3, 5),), {}, {1: CLASSES}),
    Case("KLDivLoss", (), PAIR, {"reduction": "sum"}, {1: RNG.uniform(0.1, 1, (3, 5))}),
    Case("PoissonNLLLoss", (), PAIR, {}, {1: positive((3, 5))}),
    Case("GaussianNLLLoss", (), TRIPLE, {}, {2: positive((3, 5))}),
    Case("HingeEmbeddingLoss", (), PAIR, {}, {1: signs(3, 5)}),
    Case("MarginRankingLoss", (), TRIPLE, {"margin": 0.2}, {2: signs(3, 5)}),
    Case("CosineEmbeddingLoss", (), PAIR, {"margin": 0.1}, {2: signs(3)}),
    Case("TripletMarginLoss", (), TRIPLE, {"swap": True}),
    Case("TripletMarginWithDistanceLoss", (), TRIPLE),
    Case("MultiMarginLoss", (), ((3, 5),), {}, {1: CLASSES}),
    Case("MultiLabelMarginLoss", (), ((2, 3),), {}, {1: np.array([[0, 2, -1], [1, -1, 0]])}),
    Case("MultiLabelSoftMarginLoss", (), PAIR, {}, {1: (signs(3, 5) + 1) / 2}),
    Case("SoftMarginLoss", (), PAIR, {}, {1: signs(3, 5)}),
    Case("CosineSimilarity", (), PAIR),
    Case("PairwiseDistance", (), PAIR),
]  # fmt: skip
CASES = [*ACTIVATIONS, *LAYERS, *LOSSES]


def arrays(case, dtype):
    places = range(max(len(case.shapes), max(case.feed, default=0) + 1))
    made = [case.feed.get(i, None if i in case.feed else RNG.normal(size=case.shapes[i]))
            for i in places]  # fmt: skip
    return [one if one.dtype.kind in "iub" else one.astype(dtype) for one in made]


def leaves(tree):
    parts = tree if isinstance(tree, (tuple, list)) else [tree]
    return [leaf for part in parts if part is not None
            for leaf in (leaves(part) if isinstance(part, (tuple, list)) else [part])]  # fmt: skip


@each("dtype", DTYPES)
@each("case", CASES)
def test_layers_give_the_outputs_and_gradients_of_pytorch(case, dtype):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, case.name)(*case.args, **case.options).to(getattr(torch, dtype))
    ours = getattr(ag.nn, case.name)(*case.args, **case.options).to(dtype)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: value.shape for name, value in state.items()
    }
    assert [*ours.state_dict()] == [*state]
    ours.load_state_dict(state)

    def moves(place, array):
        return array.dtype.kind == "f" and (place == 0 or place not in case.feed)

    given = arrays(case, dtype)
    moved = [torch.tensor(one, requires_grad=moves(i, one)) for i, one in enumerate(given)]
    call = {name: torch.tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in case.call.items()}  # fmt: skip
    expected = [one for one in leaves(theirs(*moved, **call)) if one.dtype.is_floating_point]
    seeds = [RNG.normal(size=one.shape).astype(dtype) for one in expected]
    torch.autograd.backward(expected, [torch.tensor(seed) for seed in seeds])
    graph = ag.Graph()
    nodes = [graph.input(f"x{i}", one.shape, one.dtype) for i, one in enumerate(given)]
    results = leaves(ours(*nodes, **case.call))
    parameters = dict(ours.named_parameters())
    wanted = [
        *parameters.values(),
        *[node for node, tensor in zip(nodes, moved, strict=True) if tensor.requires_grad],
    ]
    with ag.TapeMachine(results, wrt=wanted) as machine:
        feeds = {f"x{i}": one for i, one in enumerate(given)}
        run = machine.run_sync(feeds, backward=dict(zip(results, seeds, strict=True)))
    rounded = case.name == "Hardsigmoid"  # PyTorch's 1/6 is a float32, also in float64
    atol = 1e-7 if rounded else TOLERANCE[dtype]
    tolerance = {"rtol": 10 * atol, "atol": atol}
    for result, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(run[result].value, want.detach().numpy(), **tolerance)
    for name, parameter in theirs.named_parameters():
        grad = np.zeros(parameter.shape) if parameter.grad is None else parameter.grad.numpy()
        np.testing.assert_allclose(run[parameters[name]].grad, grad, err_msg=name, **tolerance)
    for node, tensor in zip(nodes, moved, strict=True):
        if tensor.requires_grad:
            grad = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
            np.testing.assert_allclose(run[node].grad, grad, **tolerance)
    for name, value in theirs.named_buffers():
        np.testing.assert_allclose(ours.state_dict()[name], value.numpy(), **tolerance)


def test_an_adaptive_softmax_has_the_probabilities_and_predictions_of_pytorch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50])
    ours = ag.nn.AdaptiveLogSoftmaxWithLoss(16, 100, [10, 50])
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    x = RNG.normal(size=(7, 16)).astype("float32")
    expected = theirs.log_prob(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours.log_prob(x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(torch.tensor(x)).numpy())


@pytest.mark.parametrize("target", [-1, 20])
def test_an_adaptive_softmax_refuses_targets_that_are_no_class(target):
    net = ag.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10])
    with pytest.raises(ag.NodeError, match="out of range"):
        net(np.zeros((2, 8), "float32"), np.array([0, target]))


@each("cutoffs", [[], [3, 3], [5, 3], [0, 3], [20], [1.5]])
def test_cutoffs_that_do_not_ascend_are_refused(cutoffs):
    with pytest.raises(ag.GraphTypeError, match="cutoffs are ascending ints from 1 to 19"):
        ag.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)


def test_weights_of_classes_are_in_the_state_of_a_linear_cross_entropy_as_in_pytorchs():
    torch = pytest.importorskip("torch")
    weight = np.arange(1, 7, dtype="float32")
    theirs = torch.nn.LinearCrossEntropyLoss(5, 6, weight=torch.tensor(weight))
    ours = ag.nn.LinearCrossEntropyLoss(5, 6, weight=weight)
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    assert [*ours.state_dict()] == [*state]
    ours.load_state_dict(state)
    x, target = RNG.normal(size=(4, 5)).astype("float32"), np.array([0, 1, 5, -100])
    expected = theirs(torch.tensor(x), torch.tensor(target)).item()
    np.testing.assert_allclose(ours(x, target), expected, rtol=1e-5)


def test_every_layer_has_a_case():
    without = {
        "AlphaDropout", "BatchNorm", "Buffer", "CTCLoss", "Dropout1d", "Dropout2d", "Dropout3d",
        "FractionalMaxPool2d", "FractionalMaxPool3d", "HingeLoss", "Lambda", "Module", "ModuleDict",
        "ModuleList", "Parameter", "RReLU", "Sequential", "Sparsemax", "Stateless", "TreeLSTM",
    }  # fmt: skip
    layers = {name for name in ag.nn.__all__ if name[0].isupper()}
    assert layers - without == {case.name for case in CASES}
