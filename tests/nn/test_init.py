"""Initial values: bounds, deviations and fans of PyTorch's, seeds, errors."""

import math
from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.nn import init
from tests._each import each

SHAPES = [(200, 300), (64, 16, 3, 3), (128, 8, 5), (32, 8, 2, 3, 4)]
SCALED = {
    "glorot_uniform": ({}, "xavier_uniform_", {}),
    "glorot_uniform with a gain": ({"gain": 5 / 3}, "xavier_uniform_", {"gain": 5 / 3}),
    "glorot_normal": ({}, "xavier_normal_", {}),
    "he_uniform": ({}, "kaiming_uniform_", {"nonlinearity": "relu"}),
    "he_uniform of a leaky relu": ({"negative_slope": 0.2}, "kaiming_uniform_", {"a": 0.2}),
    "he_normal": ({}, "kaiming_normal_", {"nonlinearity": "relu"}),
    "he_normal by fan out": (
        {"mode": "fan_out"}, "kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"},
    ),
    "lecun_uniform": ({}, "kaiming_uniform_", {"nonlinearity": "linear"}),
    "lecun_normal": ({}, "kaiming_normal_", {"nonlinearity": "linear"}),
}  # fmt: skip


def kolmogorov_distance(values, distribution):
    values = np.sort(values.astype("float64").ravel())
    wanted = np.array([distribution(value) for value in values])
    steps = np.arange(values.size + 1) / values.size
    return values.size**0.5 * max(abs(wanted - steps[1:]).max(), abs(wanted - steps[:-1]).max())


@pytest.mark.oracle
@each("shape", SHAPES)
@each("name", SCALED)
def test_deviation_and_bound_are_those_of_pytorch(name, shape):
    torch = pytest.importorskip("torch")
    ours, oracle, theirs = SCALED[name]
    torch.manual_seed(0)
    # PyTorch keeps the weight of a linear layer as (out, in).
    drawn = torch.empty(shape[::-1] if len(shape) == 2 else shape)
    wanted = getattr(torch.nn.init, oracle)(drawn, **theirs).numpy()
    got = getattr(init, name.split()[0])(shape, **ours, seed=3)
    assert got.shape == shape
    assert got.dtype == np.float32
    assert abs(got.mean()) < 5 * wanted.std() / math.sqrt(got.size)
    assert got.std() == pytest.approx(wanted.std(), rel=6 / math.sqrt(got.size))
    if "uniform" in name:
        assert np.abs(got).max() == pytest.approx(np.abs(wanted).max(), rel=20 / got.size)


@pytest.mark.oracle
def test_fans_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    fans = torch.nn.init._calculate_fan_in_and_fan_out
    for shape in SHAPES:
        stored = shape[::-1] if len(shape) == 2 else shape
        assert init.fans(shape) == fans(torch.empty(stored))
    layer = torch.nn.Conv2d(6, 4, 3, groups=2)
    assert init.fans(tuple(layer.weight.shape)) == fans(layer.weight) == (27, 36)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_known_defect_gorgonia_glorot_uniform_of_float32_is_normal(dtype):
    values = init.glorot_uniform((100, 200), dtype=dtype, seed=1)
    bound = math.sqrt(6 / 300)
    assert np.abs(values).max() <= bound
    assert kolmogorov_distance(values, lambda x: (x / bound + 1) / 2) < 1.63


def test_known_defect_gorgonia_he_is_not_what_its_documentation_says():
    values = init.he_normal((500, 100), seed=1).astype("float64")
    assert values.std() == pytest.approx(math.sqrt(2 / 500), rel=0.02)
    spread = math.sqrt(2 / 500)
    assert kolmogorov_distance(values, lambda x: math.erfc(-x / spread / 2**0.5) / 2) < 1.63


@pytest.mark.oracle
@each("shape", [(5, 3), (3, 5), (4, 4), (6, 2, 3), (2, 3, 2)])
def test_orthogonal_weights_are_orthonormal_along_the_shorter_side_as_in_pytorch(shape):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64), gain=2.0).numpy()
    for weight in (init.orthogonal(shape, 2.0, "float64", seed=1), theirs):
        flat = weight.reshape(shape[0], -1)
        gram = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-12)


def test_orthogonal_matrices_are_drawn_uniformly():
    """Signs by the diagonal of R: without them the first entry would be negative always."""
    first = [init.orthogonal((2, 2), dtype="float64", seed=seed)[0, 0] for seed in range(400)]
    angle = kolmogorov_distance(np.array(first), lambda x: 1 - math.acos(x) / math.pi)
    assert angle < 1.63


DRAWN = sorted({name.split()[0] for name in SCALED} | {"orthogonal", "uniform", "normal"})
EVERY = [partial(getattr(init, name), (3, 4)) for name in DRAWN]


@each("make", EVERY)
def test_a_seed_gives_one_array_and_another_seed_another(make):
    np.testing.assert_array_equal(make(seed=1), make(seed=1))
    assert not np.array_equal(make(seed=1), make(seed=2))
    for bad in (-1, 1.5, True, 2**64):
        with pytest.raises(ag.GraphError, match=r"a seed is an int in \[0, 2\*\*64\), got"):
            make(seed=bad)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtypes_are_kept_and_arrays_are_writable(dtype):
    for array in (
        init.zeros((2, 3), dtype), init.ones(3, dtype), init.constant((2,), 0.5, dtype),
        *(make(dtype=dtype) for make in EVERY),
    ):  # fmt: skip
        assert array.dtype == dtype
        array[...] = 1
    assert init.uniform((0, 3), dtype=dtype).shape == (0, 3)
    assert init.constant((2,), 0.5).tolist() == [0.5, 0.5]


def test_weights_are_no_draw_of_a_graph_of_the_same_seed():
    g = ag.Graph(seed=3)
    drawn = [ag.ops.normal(g, (4,)) for _ in range(3)]
    with ag.LispMachine(drawn) as machine:
        run = machine.run_sync()
    weights = init.normal((4,), seed=3)
    assert not any(np.array_equal(run[node].value, weights) for node in drawn)


def test_bad_arguments_say_what_is_wrong():
    with pytest.raises(ag.ShapeError, match=r"at least two dims, got shape \(3,\)"):
        init.glorot_uniform((3,))
    with pytest.raises(ag.ShapeError, match=r"at least two dims, got shape \(3,\)"):
        init.orthogonal(3)
    with pytest.raises(ag.ShapeError, match=r"ints of at least 0, got \('batch', 3\)"):
        init.zeros(("batch", 3))
    with pytest.raises(ag.GraphTypeError, match="weights are floats, got dtype int64"):
        init.ones((2,), "int64")
    with pytest.raises(ag.GraphError, match="mode is one of fan_in, fan_out, fan_avg, got 'out'"):
        init.he_normal((2, 3), mode="out")


DRAWN = ["glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal",
         "lecun_uniform", "normal", "orthogonal", "uniform"]  # fmt: skip


@each("name", DRAWN)
def test_two_weights_of_one_shape_differ_and_follow_from_one_seed(name):
    draw = getattr(init, name)

    def drawn():
        ag.nn.manual_seed(5)
        return draw((3, 4)), draw((3, 4)), ag.nn.Linear(3, 4).weight.value

    first, second, layer = drawn()
    assert (first != second).any()
    for one, again in zip((first, second, layer), drawn(), strict=True):
        np.testing.assert_array_equal(one, again)


def test_a_seed_of_a_call_moves_no_other_draw():
    ag.nn.manual_seed(5)
    plain = init.normal((3,))
    ag.nn.manual_seed(5)
    init.normal((2,), seed=9)
    np.testing.assert_array_equal(init.normal((3,)), plain)
