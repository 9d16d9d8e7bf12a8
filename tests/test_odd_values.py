"""Whatever is given where, what does not fit is refused by us, and before anything starts."""

import decimal
import fractions
import linecache
import os
import traceback
from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import cli
from tests._each import each

HOME = os.path.dirname(ag.__file__)
ODD = [
    None, True, np.bool_(True), 0, -1, 2**63, 2**70, 10**400, 10**5000, 1.5, float("nan"),
    float("inf"), float("-inf"), 1e308, 1e-320, np.float32(1), np.int64(1), np.uint8(1), "x", "",
    "\ud800\x1b", b"x", [], [1], (), {}, {"x": 1}, {1}, np.ones(3), [[[1]]], lambda *a: 1,
    decimal.Decimal(1), fractions.Fraction(10**500, 3), 1j, np.datetime64("NaT", "s"), ...,
    slice(3), np.array([None]), np.array(["a"]),
]  # fmt: skip
HUGE = (2**63, 2**70, 10**400, 10**5000)
FEEDS = {"x": np.ones((4, 2))}
NAMES = iter(range(10**6))


def model():
    g = ag.Graph("m")
    x, w = g.input("x", ("batch", 2), "float64"), g.parameter("w", np.ones((2, 2)))
    return g, x, w, (x @ w).mean().named("loss")


def machine(**options):
    outputs = options.pop("outputs", None)
    made = ag.ActorMachine(model()[3] if outputs is None else outputs, **options)
    with made:
        made.run_sync(FEEDS, backward=True)


def run(**options):
    with ag.ActorMachine(model()[3]) as made:
        made.start(**{"feeds": FEEDS, **options}).result()
        made.run_sync(**{"feeds": FEEDS, **options})


def stream(source=None, **options):
    with ag.ActorMachine(model()[3]) as made:
        list(made.stream([FEEDS] if source is None else source, **options))


def result(value):
    with ag.ActorMachine(model()[3]) as made:
        made.start(FEEDS).result(value)


def read(value):
    with ag.ActorMachine(model()[3]) as made:
        made.run_sync(FEEDS)[value]


def check(**options):
    ag.ActorMachine(model()[3]).check(**options)


def pipeline(**options):
    loss = options.pop("loss", None)
    options = {"stages": 2, "microbatches": 2, **options}
    with ag.pipeline.Pipeline(model()[3] if loss is None else loss, **options) as made:
        made.run_sync(FEEDS)


def pipeline_run(**options):
    with ag.pipeline.Pipeline(model()[3], stages=2, microbatches=2) as made:
        made.run_sync(**{"feeds": FEEDS, **options})


def set_value(value):
    model()[2].value = value


def placed(value):
    g = model()[0]
    with g.stage(value):
        g.input("y")


def used(op):
    with ag.TapeMachine([op(model()[1])]) as made:
        made.run_sync(FEEDS)


def opaque(**options):
    used(ag.ops.opaque(lambda a: a * 1.0, **options))


def define(**options):
    given = {
        "name": f"odd_{next(NAMES)}", "scheme": "f[*s] -> f[*s]", "forward": lambda xp, a: a * 1.0,
    }  # fmt: skip
    used(ag.ops.define(**{**given, **options}))


PLAN = {"stages": 2, "microbatches": 2}
COSTS = {**PLAN, "costs": (1, 1, 1)}


def options_of(call, names, **given):
    return [(f"{name}=", lambda v, n=name: call(**{**given, n: v})) for name in names.split()]


CALLS = {
    "ActorMachine": options_of(
        machine,
        "outputs wrt workers fuse exact jit passes seed max_in_flight capacity max_bytes device "
        "watch costs statistics",
    ),
    "run": options_of(run, "feeds backward tangents timeout_s priority run_number"),
    "stream": options_of(stream, "source max_in_flight ordered timeout_s"),
    "result": [("", result)],
    "read": [("", read)],
    "check": options_of(check, "lanes credits backward"),
    "Pipeline": options_of(
        pipeline,
        "loss wrt stages schedule microbatches split reduce outputs chunks extra_warmup workers "
        "max_in_flight max_bytes seed training exact jit passes watch",
    ),
    "pipeline_run": options_of(pipeline_run, "feeds timeout_s priority backward run_number"),
    "schedule": options_of(
        ag.pipeline.schedule, "name stages microbatches chunks extra_warmup", name="1f1b", **PLAN
    ),
    "simulate": options_of(
        ag.pipeline.simulate,
        "schedule stages microbatches chunks extra_warmup costs t_fb latency bandwidth "
        "message_size speeds activation_size weight_size",
        schedule="1f1b", **COSTS,
    ),
    "recommend": options_of(
        ag.pipeline.recommend, "stages microbatches costs memory chunks schedules", **COSTS
    ),
    "dynamic": options_of(
        ag.pipeline.dynamic, "stages microbatches costs credits prefer split", **COSTS
    ),
    "Schedule": [
        ("lanes", ag.pipeline.Schedule),
        ("stage", lambda v: ag.pipeline.Schedule((((v, "F", 0), (0, "BW", 0)),))),
        ("kind", lambda v: ag.pipeline.Schedule((((0, v, 0), (0, "BW", 0)),))),
        ("microbatch", lambda v: ag.pipeline.Schedule((((0, "F", v), (0, "BW", 0)),))),
    ],
    "measure": [
        ("pipelines", lambda v: ag.pipeline.measure(v, FEEDS, runs=1)),
        ("runs", lambda v: ag.pipeline.measure([], FEEDS, runs=v)),
    ],
    "Graph": [
        ("name", ag.Graph),
        ("seed", lambda v: ag.Graph(seed=v)),
        ("input name", lambda v: ag.Graph().input(v)),
        ("input shape", lambda v: ag.Graph().input("x", v)),
        ("input dim", lambda v: ag.Graph().input("x", (v,))),
        ("input dtype", lambda v: ag.Graph().input("x", (), v)),
        ("parameter name", lambda v: ag.Graph().parameter(v, np.ones(2))),
        ("parameter value", lambda v: ag.Graph().parameter("p", v)),
        ("new value", set_value),
        ("constant", lambda v: ag.Graph().constant(v)),
        ("constant dtype", lambda v: ag.Graph().constant(1, dtype=v)),
        ("constant name", lambda v: ag.Graph().constant(1, name=v)),
        ("stage", placed),
        ("named", lambda v: (model()[1] * 2).named(v)),
        ("gradients outputs", lambda v: ag.gradients(v, [model()[2]])),
        ("gradients wrt", lambda v: ag.gradients(model()[3], v)),
        ("gradients seeds", lambda v: ag.gradients(model()[3], [], v)),
    ],
    "opaque": [
        ("fn", ag.ops.opaque), *options_of(opaque, "shape dtype vjp jvp name concurrent"),
    ],
    "define": options_of(
        define, "name scheme forward vjp jvp shape cost samples is_view concurrent doc"
    ),
    "SGD": options_of(ag.solvers.SGD, "lr momentum nesterov weight_decay l1"),
    "Adam": options_of(ag.solvers.Adam, "lr betas eps weight_decay"),
    "AdamW": options_of(ag.solvers.AdamW, "lr betas eps weight_decay"),
    "trace": [
        ("use", lambda v: ag.trace.use(v).__enter__()),
        ("per_second", lambda v: ag.trace.top(per_second=v)),
        ("summary", lambda v: recorded().summary(v)),
        ("slices", lambda v: recorded().predict(v)),
        ("unit_s", lambda v: recorded().predict([], unit_s=v)),
        ("name", lambda v: recorded().predict([], name=v)),
    ],
}  # fmt: skip


def recorded():
    with ag.trace.record() as found:
        pass
    return found


def is_ours(error):
    """Whether the error was raised by a statement of ours, and is of a kind that we promise."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    statement = linecache.getline(last.filename, last.lineno).strip()
    kinds = (ag.GraphError, ValueError, TypeError, KeyError, TimeoutError)
    return (
        isinstance(error, kinds)
        and last.filename.startswith(HOME)
        and statement.startswith("raise")
        and len(str(error)) < 1500
    )


def refusal(call, value):
    """Return what the call raises, None where it takes the value."""
    try:
        call(value)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("called", CALLS)
def test_what_does_not_fit_is_refused_by_an_error_of_ours(called):
    raw = [
        (what, type(value).__name__, type(error).__name__, error)
        for what, call in CALLS[called]
        for value in ODD
        if (error := refusal(call, value)) is not None and not is_ours(error)
    ]
    assert raw == []


COUNTED = {
    "ActorMachine": ("workers=", "max_in_flight=", "capacity=", "max_bytes="),
    "stream": ("max_in_flight=",),
    "Pipeline": ("stages=", "microbatches=", "chunks=", "workers=", "max_in_flight=", "max_bytes="),
    "schedule": ("stages=", "microbatches=", "chunks=", "extra_warmup="),
    "measure": ("runs",),
    "Graph": ("stage", "input dim"),
}


@each(("called", "what"), [(called, what) for called in COUNTED for what in COUNTED[called]])
@each("value", HUGE)
def test_more_than_can_be_counted_or_held_is_refused_at_once(called, what, value):
    error = refusal(dict(CALLS[called])[what], value)
    assert error is not None
    assert is_ours(error)


def test_the_most_that_is_allowed_takes_little_time_and_memory():
    most = {"workers": 1 << 16, "max_in_flight": 10**6, "capacity": 10**6, "max_bytes": 2**63 - 1}
    machine(**most)
    machine(fuse="none", **most)


def test_numpy_scalars_are_numbers_everywhere():
    one = np.int64(1)
    machine(workers=one, max_in_flight=one, capacity=one, seed=one)
    for seconds in (np.float32(30), np.float64(30), np.int64(30), 2**70, float("inf")):
        run(timeout_s=seconds, priority=one, run_number=one)
        result(seconds)
    found = ag.pipeline.simulate("1f1b", **PLAN, costs=(one, np.float32(1), one))
    assert found.makespan > 0


COMMANDS = [
    ["pipeline", "--costs", "{},1,1"], ["pipeline", "--memory", "{}"],
    ["pipeline", "--latency", "{}"], ["pipeline", "--stages", "{}"],
    ["pipeline", "--microbatches", "{}"], ["pipeline", "--load", "{}"],
    ["pipeline", "--schedule", "{}"], ["demo", "--workers", "{}"], ["demo", "--epochs", "{}"],
    ["demo", "--seed", "{}"], ["top", "nobody", "--every", "{}"], ["top", "{}"], ["trace", "{}"],
    ["trace", "x.py:f", "--workers", "{}"], ["trace", "x.py:f", "--runs", "{}"],
    ["pipeline", "run", "{}"], ["pipeline", "run", "x.py:f", "--runs", "{}"],
]  # fmt: skip
WORDS = [
    "nan", "inf", "-inf", "-1", "1e308", "1e400", "1e99999999", "1e-99999999", "1/0", "x",
    "\x1b[31m\n", "\ud800", "9" * 5000, "0x10", "[]",
]  # fmt: skip
NO_COUNTS = ["1.5", "1e3", str(10**20)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_in_one_line_what_does_not_fit(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    takes_amounts = command[1] in ("--costs", "--memory", "--latency")
    for word in WORDS if takes_amounts else WORDS + NO_COUNTS:
        code = None
        try:
            code = cli.main([part.format(word) for part in command])
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr().err.removesuffix("\n").split("\n")
        if told[-1].startswith("more: actorgraph explain"):
            told.pop()
        assert code in (1, 2), word[:20]
        assert told[-1].startswith("actorgraph"), word[:20]
        assert told[-1].isprintable(), word[:20]


CELLS = "0F0,0BW0\n"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xff\xfe0F0", "is no schedule: 'utf-8' codec.*; expected a CSV file in UTF-8"),
        (CELLS.encode("utf-16"), "is no schedule: 'utf-8' codec"),
        (b"x" * 200_000, "is no schedule: field larger than field limit"),
        (b"0F" + b"9" * 5000, "is no action; expected"),
        (b"0F99999999999999999999,0BW0", "is no action; expected"),
        (b"0F0\0,0BW0", r"'0F0\\x00' is no action"),
        (b"0F0\x1b[31m", r"'0F0\\x1b\[31m' is no action"),
    ],
)
def test_a_file_that_is_no_schedule_says_why(content, text, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    for notation in ("actorgraph", "torch"):
        with pytest.raises(ag.ScheduleError, match=text.replace("action;", "action.*;")):
            ag.pipeline.load(path, notation=notation)


def test_a_file_may_begin_with_a_mark_of_its_byte_order(tmp_path):
    path = tmp_path / "marked.csv"
    path.write_text(CELLS, encoding="utf-8-sig")
    assert ag.pipeline.load(path).microbatches == 1


@each("amount", [1e308, 1e-320, 10**400, fractions.Fraction(1, 10**400), True])
def test_amounts_whose_sums_are_no_numbers_are_refused(amount):
    with pytest.raises(ag.ScheduleError, match="expected a number of at least 0"):
        ag.pipeline.simulate("1f1b", **PLAN, costs=(amount, 1, 1))


def test_a_schedule_that_no_memory_holds_is_refused_before_it_is_made():
    for made in (
        partial(ag.pipeline.schedule, "1f1b"),
        partial(ag.pipeline.dynamic, costs=(1,) * 3),
    ):
        with pytest.raises(ag.ScheduleError, match=r"10,000,000,000 pairs.* at most 100,000"):
            made(stages=100_000, microbatches=100_000)
    with pytest.raises(ag.ScheduleError, match="a schedule has at most"):
        ag.pipeline.schedule("interleaved", stages=100_000, microbatches=1)
