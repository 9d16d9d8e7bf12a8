"""Laws that every op of the registry obeys, on the samples that its own declaration gives.

A new op is found by itself: it needs `samples`, and nothing here.  `test_drawn_laws` tries the
same laws on shapes, axes and options that hypothesis chooses.
"""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError
from actorgraph.op import REGISTRY, Op, Sample, bind_attrs
from tests._evaluate import evaluate
from tests.ops._laws import Case, check_first_order, check_second_order, check_type

LIBRARY = [op for op in REGISTRY.values() if not op.checked]  # the others are ops of tests
CASES = [
    pytest.param(op, sample, id=f"{op.name}-{number}")
    for op in LIBRARY
    for number, sample in enumerate(op.samples)
]
WITHOUT_SECOND_ORDER = ("ctc_pull", "ctc_curvature")


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_op_says_where_to_try_it_and_what_it_is(op):
    assert op.samples
    assert op.doc.endswith(".")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_shape_and_dtype_are_those_of_the_result(op, sample, dtype):
    case = Case(op, sample, dtype)
    check_type(case)
    (value,) = evaluate([case.y], case.feeds)
    if value.dtype.kind == "f" and "dtype" not in sample.attrs:
        assert value.dtype == dtype


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_layout_of_arguments_does_not_matter(op, sample):
    case = Case(op, sample)
    spread = {
        x: np.repeat(value, 2, axis=-1)[..., ::2] for x, value in case.feeds.items() if x.ndim
    }
    flipped = {x: value.T.copy().T for x, value in case.feeds.items()}
    (wanted,) = evaluate([case.y], case.feeds)
    for feeds in ({**case.feeds, **spread}, flipped):
        (value,) = evaluate([case.y], feeds)
        np.testing.assert_allclose(value, wanted, rtol=1e-14)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_arguments_are_only_read(op, sample):
    case = Case(op, sample)
    before = [value.copy() for value in case.feeds.values()]
    evaluate([case.y], case.feeds)  # which hands out read-only arrays
    for old, value in zip(before, case.feeds.values(), strict=True):
        np.testing.assert_array_equal(value, old)


def layout_of(op, sample):
    ordered = op.ordered is not None and op.ordered(sample.attrs)
    return "ordered" if ordered else op.layout


def _broadcast_variants(arrays):
    """The arrays, and the same with strides of 0 along one axis of one array, and along all."""
    yield arrays
    for i, array in enumerate(arrays):
        for axis in range(array.ndim):
            flat = np.broadcast_to(array[(slice(None),) * axis + (slice(0, 1),)], array.shape)
            if flat.shape[axis]:
                yield [*arrays[:i], flat, *arrays[i + 1 :]]
    if all(array.size for array in arrays):
        yield [np.broadcast_to(array[(0,) * array.ndim], array.shape) for array in arrays]


@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if layout_of(*c.values) != "any"])
def test_results_have_the_layout_that_the_op_declares(op, sample):
    case = Case(op, sample)
    attrs = bind_attrs(sample.attrs, {})
    for arrays in _broadcast_variants([case.feeds[x] for x in case.xs]):
        result = np.asarray(op.forward(np, *arrays, **attrs))
        if layout_of(op, sample) == "ordered":
            strides = [s for s, n in zip(result.strides, result.shape, strict=True) if s and n > 1]
            assert strides == sorted(strides, reverse=True)
        else:
            assert result.flags.c_contiguous
            assert not any(np.may_share_memory(result, array) for array in arrays)


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_an_op_is_a_view_exactly_where_it_always_shows_memory_of_its_first_operand(op):
    shown = []
    for sample in op.samples:
        case, attrs = Case(op, sample), bind_attrs(sample.attrs, {})
        arrays = [case.feeds[x] for x in case.xs]
        spread = [np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x for x in arrays]
        for first, *others in (arrays, spread, [x.T.copy().T for x in arrays]) if arrays else ():
            result = np.asarray(op.forward(np, first, *others, **attrs))
            if result.size:
                shown.append(np.shares_memory(result, first))
    assert op.is_view == (bool(shown) and all(shown))


@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if c.values[0].takes_out])
def test_what_is_written_to_memory_that_is_given_is_the_result(op, sample):
    case = Case(op, sample)
    arrays, attrs = [case.feeds[x] for x in case.xs], bind_attrs(sample.attrs, {})
    expected = np.asarray(op.forward(np, *arrays, **attrs))
    if expected.ndim:
        out = np.full(expected.shape, 7, expected.dtype)
        np.testing.assert_array_equal(op.forward(np, *arrays, out=out, **attrs), expected)


@pytest.mark.parametrize(("op", "sample"), [c for c in CASES if c.values[0].in_place])
def test_what_is_written_over_an_operand_is_the_result(op, sample):
    case = Case(op, sample)
    attrs = bind_attrs(sample.attrs, {})
    expected = np.asarray(op.forward(np, *(case.feeds[x] for x in case.xs), **attrs))
    for number in op.in_place:
        arrays = [np.array(case.feeds[x]) for x in case.xs]
        if expected.ndim and arrays[number].shape == expected.shape:
            found = op.forward(np, *arrays, out=arrays[number], **attrs)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_cost_is_positive(op, sample):
    case = Case(op, sample)
    assert op.flops(sample.shapes, case.shape_of(case.y), sample.attrs) > 0


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.name)
def test_float_results_of_floats_have_both_rules(op):
    case = Case(op, op.samples[0])
    if case.y.dtype.kind == "f" and any(x.dtype.kind == "f" for x in case.xs):
        assert op.vjp is not None
        assert op.jvp is not None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("op", "sample"), CASES)
def test_rules_agree_with_each_other_and_with_differences(op, sample, dtype):
    case = Case(op, sample, dtype)
    if dtype == "float64":
        check_first_order(case)
    elif case.wrt:
        (ct,) = evaluate([case.y], case.feeds)
        for node in ag.gradients([case.y], case.wrt, seeds=[ct]):
            (value,) = evaluate([node], case.feeds)
            assert value.dtype == node.dtype
            assert value.dtype in (np.float32, np.complex64)


# Complex vectors are defined up to phases: see test_decompositions_singular.py.
PHASES = ("eigh", "svd", "complement", "turn_free")


def _admits_complex(op, sample):
    if "dtype" in sample.attrs or op.name in PHASES:
        return False
    try:
        return bool(Case(op, sample, "complex128").wrt)
    except GraphTypeError:
        return False


@pytest.mark.parametrize(
    ("op", "sample"), [case for case in CASES if _admits_complex(*case.values)]
)
def test_rules_hold_for_complex_numbers_where_the_type_admits_them(op, sample):
    check_first_order(Case(op, sample, "complex128"))
    check_second_order(Case(op, sample, "complex128"))


@pytest.mark.parametrize("wrong", ["vjp", "jvp", "vjp and jvp"])
def test_a_rule_wrong_by_one_in_a_thousand_is_caught(wrong):
    def slope(x, rule):
        return x * x * (3.003 if rule in wrong else 3)

    cube = Op(
        "cube",
        "f[*s] -> f[*s]",
        lambda xp, x: x * x * x,
        vjp=(lambda ct, y, x: ct * slope(x, "vjp"),),
        jvp=lambda tans, y, x: tans[0] * slope(x, "jvp"),
    )
    with pytest.raises(AssertionError, match=r"tolerance|comparison|==|abs"):
        check_first_order(Case(cube, Sample(((3, 4),))))


@pytest.mark.parametrize(("op", "sample"), CASES)
def test_second_order_agrees_with_differences_of_the_gradient(op, sample):
    if op.name not in WITHOUT_SECOND_ORDER:
        check_second_order(Case(op, sample))


# Of x against x these make a tie or a step, where differences say nothing.
STEPS = ("maximum", "minimum", "clip", "mod", "fmod", "floor_divide")
REPEATABLE = [
    pytest.param(op, sample, id=f"{op.name}-{number}")
    for op in LIBRARY
    for number, sample in enumerate(op.samples)
    if len(sample.shapes) > 1
    and len(set(sample.shapes)) == 1
    and not sample.ints
    and not sample.bools
    and op.name not in STEPS
]


@pytest.mark.parametrize(("op", "sample"), REPEATABLE)
def test_one_node_may_be_every_argument(op, sample):
    check_first_order(Case(op, sample, repeat=True))
    check_second_order(Case(op, sample, repeat=True))
