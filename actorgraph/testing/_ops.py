"""The laws of ops, on the samples of their declarations.

A law gets an `Op`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from actorgraph.autodiff import gradients, tangents
from actorgraph.errors import GraphTypeError, shown
from actorgraph.machines import ActorMachine, LispMachine, TapeMachine
from actorgraph.op import Op, Sample, bind_attrs
from actorgraph.testing._cases import Case, check_first_order, check_second_order, check_type, close
from actorgraph.testing._evaluate import called, evaluate
from actorgraph.testing._laws import Law, Laws, claim, on, same_bits

OP_LAWS = Laws()
"""The laws of ops: functions of an `Op`."""

_law = OP_LAWS.law

_MACHINES: dict[str, Callable[..., Any]] = {
    "LispMachine": LispMachine,
    "TapeMachine": TapeMachine,
    "an actor per node": lambda outputs, **options: ActorMachine(
        outputs, workers=2, fuse="none", **options
    ),
    "ActorMachine": lambda outputs, **options: ActorMachine(outputs, workers=1, **options),
}


def check_op(op: Op | Callable[..., Any], *, without: Iterable[str] = ()) -> None:
    """Raise if an op breaks a law of ops on one of its samples.

    Results have the declared type and layout; arguments are only read, and may have any layout;
    rules of differentiation agree with each other and with differences, up to second order, also
    for complex numbers and with one node as every argument; all machines give the same bits.

    Parameters
    ----------
    op : function of `ag.ops.define`, or Op
        It has `samples`, whose arguments are drawn in float64 and, where its type admits them, in
        float32 and complex128.
    without : iterable of str, optional
        Names of laws that by design do not hold, such as
        ``"one_node_may_be_every_argument"`` if equal arguments are at a kink.

    Raises
    ------
    AssertionError
        The text says which law, on which sample, what was got and what was expected.

    Examples
    --------
    Check an op of your own:

    >>> import actorgraph as ag
    >>> cube = ag.ops.define(
    ...     "proven_cube", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x * x * x,
    ...     vjp=(lambda ct, y, x: ct * 3 * x * x,), jvp=lambda tans, y, x: tans[0] * 3 * x * x,
    ...     samples=[ag.ops.Sample(((3, 4),))])
    >>> ag.testing.check_op(cube)
    """
    record = getattr(op, "op", op)
    if not isinstance(record, Op):
        raise TypeError(
            f"expected an Op or a function of ag.ops.define, got {shown(op)}; an op of the library "
            "is in actorgraph.op.REGISTRY by its name"
        )
    OP_LAWS.check(record, without)


def _of_samples(law: Callable[[Op, Sample], None]) -> Law:
    """Turn a law for an op and a sample into a law for an op."""

    @wraps(law)
    def of_each(op: Op) -> None:
        for number, sample in enumerate(op.samples):
            with on(f"{op.name!r} on its sample {number}, {sample}"):
                law(op, sample)

    return _law(of_each)


@_law
def it_says_where_to_try_it(op: Op) -> None:
    claim(op.samples, f"op {op.name!r} has no samples; give samples=[ag.ops.Sample(((3, 4),))]")


# -- values ---------------------------------------------------------------------------------------


@_of_samples
def shape_and_dtype_are_those_of_the_result(op: Op, sample: Sample) -> None:
    check_type(Case(op, sample))
    if _admits(op, sample, "float32"):
        check_type(Case(op, sample, "float32"))


def _admits(op: Op, sample: Sample, dtype: str) -> bool:
    try:
        return bool(Case(op, sample, dtype).xs)
    except GraphTypeError:
        return False


@_of_samples
def layout_of_arguments_does_not_matter(op: Op, sample: Sample) -> None:
    case = Case(op, sample)
    spread = {
        x: np.repeat(value, 2, axis=-1)[..., ::2] for x, value in case.feeds.items() if x.ndim
    }
    flipped = {x: value.T.copy().T for x, value in case.feeds.items()}
    (wanted,) = evaluate([case.y], case.feeds)
    for name, feeds in (("spread", {**case.feeds, **spread}), ("transposed", flipped)):
        (value,) = evaluate([case.y], feeds)
        close(value, wanted, 1e-14, f"arguments are {name}")  # sums may be in another order


@_of_samples
def arguments_are_only_read(op: Op, sample: Sample) -> None:
    case = Case(op, sample)
    before = [value.copy() for value in case.feeds.values()]
    evaluate([case.y], case.feeds)  # passes read-only arrays
    for number, (old, value) in enumerate(zip(before, case.feeds.values(), strict=True)):
        np.testing.assert_array_equal(value, old, err_msg=f"argument {number}")


@_of_samples
def cost_is_positive(op: Op, sample: Sample) -> None:
    case = Case(op, sample)
    flops = op.flops(sample.shapes, case.shape_of(case.y), sample.attrs)
    claim(flops > 0, f"the cost is {flops}")


# -- memory ---------------------------------------------------------------------------------------


@_of_samples
def results_have_the_layout_that_the_op_declares(op: Op, sample: Sample) -> None:
    layout = op.memory.layout_with(sample.attrs)
    if layout == "any":
        return
    case = Case(op, sample)
    attrs = bind_attrs(sample.attrs, {})
    for arrays in _broadcast_variants([case.feeds[x] for x in case.xs]):
        result = np.asarray(called(op, arrays, attrs))
        if layout == "ordered":
            strides = [s for s, n in zip(result.strides, result.shape, strict=True) if s and n > 1]
            claim(strides == sorted(strides, reverse=True), f"not ordered: strides {strides}")
        else:
            claim(result.flags.c_contiguous, f"not C-contiguous: strides {result.strides}")
            shared = any(np.may_share_memory(result, array) for array in arrays)
            claim(not shared, f"layout {layout!r}, but the result shares memory with an argument")


def _broadcast_variants(arrays: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield the arrays as they are, with stride 0 along one axis of one array, and along all."""
    yield arrays
    for i, array in enumerate(arrays):
        for axis in range(array.ndim):
            flat = np.broadcast_to(array[(slice(None),) * axis + (slice(0, 1),)], array.shape)
            if flat.shape[axis]:
                yield [*arrays[:i], flat, *arrays[i + 1 :]]
    if all(array.size for array in arrays):
        yield [np.broadcast_to(array[(0,) * array.ndim], array.shape) for array in arrays]


@_law
def it_is_a_view_exactly_where_it_always_shows_memory_of_its_first_operand(op: Op) -> None:
    shown_memory = []
    for sample in op.samples:
        case, attrs = Case(op, sample), bind_attrs(sample.attrs, {})
        arrays = [case.feeds[x] for x in case.xs]
        spread = [np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x for x in arrays]
        for first, *others in (arrays, spread, [x.T.copy().T for x in arrays]) if arrays else ():
            result = np.asarray(called(op, [first, *others], attrs))
            if result.size:
                shown_memory.append(np.shares_memory(result, first))
    wanted = bool(shown_memory) and all(shown_memory)
    which = "each of its results is" if wanted else "not each of its results is"
    claim(
        op.memory.is_view == wanted,
        f"{op.name!r} says is_view={op.memory.is_view}, but {which} memory of its first argument; "
        f"declare is_view={wanted}{', or return a copy' if wanted else ''}",
    )


@_of_samples
def what_is_written_to_memory_that_is_given_is_the_result(op: Op, sample: Sample) -> None:
    if not op.memory.takes_out:
        return
    case = Case(op, sample)
    arrays, attrs = [case.feeds[x] for x in case.xs], bind_attrs(sample.attrs, {})
    expected = np.asarray(called(op, arrays, attrs))
    if expected.ndim:
        out = np.full(expected.shape, 7, expected.dtype)
        np.testing.assert_array_equal(called(op, arrays, attrs, out=out), expected)


@_of_samples
def what_is_written_over_an_operand_is_the_result(op: Op, sample: Sample) -> None:
    case = Case(op, sample)
    attrs = bind_attrs(sample.attrs, {})
    for number in op.memory.in_place:
        arrays = [np.array(case.feeds[x]) for x in case.xs]
        expected = np.asarray(called(op, [case.feeds[x] for x in case.xs], attrs))
        if expected.ndim and arrays[number].shape == expected.shape:
            written = called(op, arrays, attrs, out=arrays[number])
            np.testing.assert_array_equal(written, expected, err_msg=f"over argument {number}")


# -- derivatives ----------------------------------------------------------------------------------


@_of_samples
def rules_agree_with_each_other_and_with_differences(op: Op, sample: Sample) -> None:
    check_first_order(Case(op, sample))


@_of_samples
def gradients_in_float32_are_float32(op: Op, sample: Sample) -> None:
    if not _admits(op, sample, "float32"):
        return
    case = Case(op, sample, "float32")
    if not case.wrt:
        return
    (ct,) = evaluate([case.y], case.feeds)
    for node in gradients([case.y], case.wrt, seeds=[ct]):
        (value,) = evaluate([node], case.feeds)
        claim(value.dtype == node.dtype, f"{node!r} gave {value.dtype}")
        single = value.dtype in (np.float32, np.complex64)
        claim(single, f"a gradient is {value.dtype}, of arguments in float32")


@_of_samples
def second_order_agrees_with_differences_of_the_gradient(op: Op, sample: Sample) -> None:
    check_second_order(Case(op, sample))


@_of_samples
def rules_hold_for_complex_numbers_where_the_type_admits_them(op: Op, sample: Sample) -> None:
    if "dtype" not in sample.attrs and _admits(op, sample, "complex128"):
        check_first_order(Case(op, sample, "complex128"))
        check_second_order(Case(op, sample, "complex128"))


@_of_samples
def one_node_may_be_every_argument(op: Op, sample: Sample) -> None:
    same_shape = len(sample.shapes) > 1 and len(set(sample.shapes)) == 1
    if same_shape and not (sample.ints or sample.bools):
        check_first_order(Case(op, sample, repeat=True))
        check_second_order(Case(op, sample, repeat=True))


# -- machines -------------------------------------------------------------------------------------


@_of_samples
def every_machine_gives_the_bits_of_a_sequential_evaluation(op: Op, sample: Sample) -> None:
    case = Case(op, sample)
    wrt, y = case.wrt, case.y
    ct, directions = case.random_like(y), {x: case.random_like(x) for x in wrt}
    constants = {x: case.graph.constant(v) for x, v in directions.items()}
    pulled = gradients([y], wrt, seeds=[ct]) if wrt else []
    pushed = tangents([y], constants) if wrt and op.jvp is not None else []
    wanted = evaluate([y, *pulled, *pushed], case.feeds)
    for name, make in _MACHINES.items():
        with make([y], wrt=wrt) as machine, on(name):
            plain = machine.run_sync(case.feeds)
            same_bits(plain[y].value, wanted[0], "the value")
            if pulled:
                back = machine.run_sync(case.feeds, backward={y: ct})
                for x, gradient in zip(wrt, wanted[1:], strict=False):
                    same_bits(back[x].grad, gradient, f"the gradient by {x!r}")
            if pushed:
                ahead = machine.run_sync(case.feeds, tangents=directions)
                same_bits(ahead[y].tangent, wanted[-1], "the tangent")
