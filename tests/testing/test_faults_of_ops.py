"""The laws of ops catch a fault that is planted, and say which law it breaks, on which sample."""

import anyio.lowlevel
import pytest

import actorgraph as ag
from actorgraph.op import FRESH, REGISTRY, Memory, Op, Sample
from actorgraph.testing import OP_LAWS, check_op
from tests._each import each

SAMPLES = (Sample(((3, 4),)), Sample(((2, 2),), low=0.5))


def cube(**changed):
    """The record of a right op, but for what is changed."""
    return Op(**{
        "name": "planted_cube",
        "scheme": "f[*s] -> f[*s]",
        "forward": lambda xp, x: x * x * x,
        "vjp": (lambda ct, y, x: ct * 3 * x * x,),
        "jvp": lambda tans, y, x: tans[0] * 3 * x * x,
        "samples": SAMPLES,
        **changed,
    })  # fmt: skip


def wipes_its_argument(xp, x):
    result = x * x * x
    x = x.view()
    x.flags.writeable = True
    x[...] = 0
    return result


def remembers(xp, x, calls=[0]):  # noqa: B006 - the fault
    calls[0] += 1
    return x * x * x * (1 + calls[0] % 7 * 2**-52)


def writes_half(xp, x, out=None):
    if out is None:
        return x * x * x
    out[..., :1] = (x * x * x)[..., :1]
    return out


FAULTS = {
    "no sample": (
        {"samples": ()},
        "it says where to try it: op 'planted_cube' has no samples",
    ),
    "another dtype than its type says": (
        {"forward": lambda xp, x: (x * x * x).astype("float32")},
        "shape and dtype are those of the result: .*gave float32, expected float64 of shape",
    ),
    "another shape than its type says": (
        {"forward": lambda xp, x: (x * x * x).ravel()},
        r"shape and dtype are those of the result: .*gave \(12,\)",
    ),
    "a result that depends on strides": (
        {"forward": lambda xp, x: x * x * x + x.strides[-1]},
        "layout of arguments does not matter: .*arguments are spread",
    ),
    "an argument that it writes": (
        {"forward": wipes_its_argument},
        "arguments are only read: .*argument 0",
    ),
    "a gradient of another dtype": (
        {"vjp": (lambda ct, y, x: (ct * 3 * x * x).astype("float64"),)},
        "gradients in float32 are float32: .*float64",
    ),
    "a gradient without conjugates": (
        {"scheme": "x[*s] -> x[*s]"},
        "rules hold for complex numbers where the type admits them: .*not adjoint",
    ),
    "a rule that takes equal arguments for one": (
        {
            "scheme": "f[*s] -> f[*s] -> f[*s]",
            "forward": lambda xp, x, z: x * z,
            "vjp": (lambda ct, y, x, z: ct if x is z else ct * z, lambda ct, y, x, z: ct * x),
            "jvp": None,
            "samples": (Sample(((3,), (3,))),),
        },
        "one node may be every argument: .*vjp by <x0",
    ),
    "a negative cost": (
        {"cost": lambda shapes, result, attrs: -1.0},
        "cost is positive: .*cost of op 'planted_cube' is -1.0",
    ),
    "a layout that it does not have": (
        {"forward": lambda xp, x: (x * x * x).T.copy().T, "memory": FRESH},
        "results have the layout that the op declares: .*not C-contiguous: strides",
    ),
    "a view that is none": (
        {"memory": Memory(is_view=True)},
        "it is a view exactly .*says is_view=True, but not each .*; declare is_view=False",
    ),
    "a view that is not told": (
        {"forward": lambda xp, x: x, "vjp": (lambda ct, y, x: ct,), "jvp": lambda t, y, x: t[0]},
        "it is a view exactly .*is_view=False, but each .*is_view=True, or return a copy",
    ),
    "half of what it is to write": (
        {"forward": writes_half, "memory": Memory(takes_out=True)},
        "what is written to memory that is given is the result: .*not equal",
    ),
    "half of what it is to write over": (
        {"forward": writes_half, "memory": Memory(in_place=(0,))},
        "what is written over an operand is the result: .*over argument 0",
    ),
    "a wrong vjp": (
        {"vjp": (lambda ct, y, x: ct * 3.003 * x * x,)},
        r"rules agree .*'planted_cube' on its sample 0, Sample\(.*vjp and jvp .* not adjoint",
    ),
    "a wrong jvp and vjp": (
        {
            "vjp": (lambda ct, y, x: ct * 3.003 * x * x,),
            "jvp": lambda tans, y, x: tans[0] * 3.003 * x * x,
        },
        r"rules agree with each other and with differences: .*jvp by <x0.* \(ACTUAL\) and diff",
    ),
    "a wrong vjp alone": (
        {"vjp": (lambda ct, y, x: ct * 3.003 * x * x,), "jvp": None},
        "rules agree with each other and with differences: .*vjp by <x0",
    ),
    "a vjp that forgets what it depends on": (
        {
            "vjp": (lambda ct, y, x: ct * 3 * ag.stop_gradient(x) * x,),
            "jvp": lambda tans, y, x: tans[0] * 3 * ag.stop_gradient(x) * x,
        },
        "second order agrees with differences of the gradient: .*forward over reverse",
    ),
    "other bits each time": (
        {"forward": remembers},
        "every machine gives the bits of a sequential evaluation: .*to the bit",
    ),
}


@each(("changed", "law"), FAULTS.values())
def test_a_planted_fault_is_caught_by_the_law_that_it_breaks(changed, law):
    with pytest.raises(AssertionError, match=f"(?s)broken law: {law}"):
        check_op(cube(**changed))


def test_ops_that_are_right_pass():
    check_op(cube())
    check_op(cube(jvp=None))
    check_op(cube(vjp=None, jvp=None))
    check_op(REGISTRY["matmul"])


def test_an_asynchronous_op_of_a_user_proves_itself():
    async def doubled(xp, x):
        await anyio.lowlevel.checkpoint()
        return x * 2

    op = ag.ops.define(
        "planted_service", scheme="f[*s] -> f[*s]", forward=doubled,
        vjp=(lambda ct, y, x: ct * 2,), jvp=lambda tans, y, x: tans[0] * 2, samples=SAMPLES,
    )  # fmt: skip
    check_op(op)


def test_laws_that_do_not_hold_by_design_are_left_out_by_name():
    wrong = cube(memory=Memory(is_view=True))
    with pytest.raises(AssertionError, match="it is a view exactly"):
        check_op(wrong)
    check_op(
        wrong,
        without=["it_is_a_view_exactly_where_it_always_shows_memory_of_its_first_operand"],
    )
    with pytest.raises(ValueError, match="no law 'costs'; the laws are it_says_where.*, cost_is"):
        check_op(wrong, without=["costs"])


def test_what_is_no_op_is_told():
    with pytest.raises(TypeError, match="expected an Op or a function of ag.ops.define, got 3"):
        check_op(3)


def test_every_law_has_a_fault_that_it_catches():
    caught = " ".join(law for _, law in FAULTS.values())
    never = {law.__name__ for law in OP_LAWS if law.__name__.replace("_", " ")[:11] not in caught}
    assert never == set()
