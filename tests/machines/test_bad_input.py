"""Bad input is refused before anything starts, with a text that says what to do."""

import sys
import threading
import types

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each

MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]
machines = pytest.mark.parametrize("machine_type", MACHINES)


def model():
    graph = ag.Graph("model")
    x = graph.input("features", ("batch", 3), "float32")
    t = graph.input("targets", ("batch",), "int64")
    scale = graph.input("scale", (), "float32")
    w = graph.parameter("W", np.ones((3, 4), "float32"))
    logits = (x @ w) * scale
    loss = ag.ops.cross_entropy(logits, t)
    return graph, loss, logits


def feeds(size=2, **changed):
    found = {
        "features": np.ones((size, 3), "float32"),
        "targets": np.zeros(size, "int64"),
        "scale": 1,
    }
    return {**found, **changed}


@pytest.fixture
def refused(machine_type):
    """Check that a run is refused, by all ways to start one, and that nothing has happened."""
    graph, loss, logits = model()
    before = threading.enumerate()
    machine = machine_type([loss, logits])

    def check(error, match, given, **options):
        given = given(graph, loss, logits) if callable(given) else given
        options = {
            key: value(graph, loss, logits) if callable(value) else value
            for key, value in options.items()
        }
        for call in (machine.run_sync, machine.start):
            with pytest.raises(error, match=match):
                call(given, **options)
        assert set(threading.enumerate()) <= set(before)
        np.testing.assert_array_equal(graph["W"].value, 1)

    yield check
    run = machine.run_sync(feeds(), backward=True)
    assert run["W"].grad.shape == (3, 4)
    machine.close()


without_targets = {key: value for key, value in feeds().items() if key != "targets"}


@machines
@each(
    ("match", "given"),
    [
        (r"unknown feed 'feature'; did you mean 'features'\?; known are 'features'",
         feeds(feature=1)),
        (r"missing feed 'targets' \(int64\[batch\]\); got 'features', 'scale'", without_targets),
        (r"missing feed 'features'", None),
        (r"unknown feed 'SCALE'; did you mean 'scale'", feeds(SCALE=1)),
        (r"got int64\[2, 3\]: dtype int64, not float32; convert it with .astype\('float32'\)",
         feeds(features=np.ones((2, 3), "int64"))),
        (r"dtype float64, not float32", feeds(features=np.ones((2, 3)))),
        (r"dtype float64, not float32; convert it with np.asarray\(..., 'float32'\)",
         feeds(features=[[1.0, 2.0, 3.0]] * 2)),
        (r"dtype object", feeds(features=np.ones((2, 3), object))),
        (r"dtype object|is no array", feeds(features=[[1.0], [1.0, 2.0]])),
        (r"got list \[\['a', 'b'", feeds(features=[["a", "b", "c"]] * 2)),
        (r"dtype float64, not int64", feeds(targets=np.zeros(2))),
        (r"dtype >f4, not float32", feeds(features=np.ones((2, 3), ">f4"))),
        (r"rank 1, not 2", feeds(features=np.ones(3, "float32"))),
        (r"rank 0, not 2", feeds(features=np.float32(1))),
        (r"rank 1, not 0", feeds(scale=np.ones(1, "float32"))),
        (r"a dim 4, not 3", feeds(features=np.ones((2, 4), "float32"))),
        (r"batch = 3, but 'features' has batch = 2", feeds(targets=np.zeros(3, "int64"))),
        (r"feeds are a dict of name or node to array, got list", [1]),
        (r"named by a str or a node, got 1", {1: 2}),
        (r"the scalar 1j does not fit float32", feeds(scale=1j)),
        (r"the scalar 1180591620717411303424 does not fit", feeds(scale=2**70)),
        (r"is a masked array; use .filled", feeds(features=np.ma.ones((2, 3)))),
        (r"is the node .* feed an array", lambda g, *_: feeds(features=g["features"])),
        (r"is given twice, by name and by node", lambda g, *_: {**feeds(), g["scale"]: 1}),
        (r"is no feed .* another graph\)", lambda *_: {**feeds(), model()[0]["scale"]: 1}),
        (r"is no feed .* node.value = array", lambda g, *_: {**feeds(), g["W"]: np.ones((3, 4))}),
        (r"got NoneType None", feeds(features=None)),
    ],
)  # fmt: skip
def test_feeds_that_do_not_fit_are_refused(refused, match, given):
    refused(ag.FeedError, match, given)


@machines
@each(
    ("error", "match", "options"),
    [
        (ag.FeedError, "backward and tangents .* ag.hvp", {"backward": True, "tangents": {}}),
        (ag.FeedError, "backward is True or a dict of output to seed, got 1", {"backward": 1}),
        (ag.FeedError, "seeds nothing; name at least one output", {"backward": {}}),
        (ag.FeedError, r"unknown seed 'los'", {"backward": {"los": 1}}),
        (ag.FeedError, r"<W.*> is no seed of this", {"backward": lambda g, *_: {g["W"]: 1}}),
        (ag.FeedError, r"should be float32\[\], got float64\[2\]: dtype float64",
         {"backward": lambda g, loss, _: {loss: np.ones(2)}}),
        (ag.FeedError, r"another shape",
         {"backward": lambda g, loss, _: {loss: np.ones(2, "float32")}}),
        (ag.FeedError, r"dtype float64, not float32",
         {"backward": lambda g, _, logits: {logits: np.ones((2, 4))}}),
        (ag.FeedError, r"another shape",
         {"backward": lambda g, _, logits: {logits: np.ones((4, 2), "float32")}}),
        (ag.FeedError, r"the scalar 1j does not fit float32",
         {"backward": lambda g, loss, _: {loss: 1j}}),
        (ag.FeedError, r"unknown tangent 'features_'; did you mean 'features'",
         {"tangents": {"features_": 1}}),
        (ag.FeedError, r"another shape", {"tangents": {"features": np.ones((3, 3), "float32")}}),
        (ag.FeedError, r"dtype float64, not float32", {"tangents": {"features": np.ones((2, 3))}}),
        (ag.FeedError, "tangents are a dict", {"tangents": [1]}),
        (ag.GraphTypeError, r"tangent of <targets.* int64", {"tangents": {"targets": np.ones(2)}}),
        (ValueError, "timeout_s is a number of seconds of at least 0, got -1", {"timeout_s": -1}),
        (ValueError, "timeout_s is a number of seconds", {"timeout_s": float("nan")}),
        ((TypeError, ValueError), "timeout_s|not supported", {"timeout_s": "1"}),
        ((TypeError, ValueError), "priority|invalid literal", {"priority": "high"}),
    ],
)  # fmt: skip
def test_options_of_a_run_that_do_not_fit_are_refused(refused, error, match, options):
    refused(error, match, feeds(), **options)


@machines
def test_backward_of_an_output_that_is_no_scalar_says_how_to_seed(machine_type):
    _, _, logits = model()
    with (
        machine_type([logits]) as machine,
        pytest.raises(ag.ShapeError, match=r"must be a scalar.*seed it with backward=\{'multiply"),
    ):
        machine.run_sync(feeds(), backward=True)


@machines
def test_backward_of_an_integer_output_is_refused(machine_type):
    x = ag.Graph().input("x", (), "int64")
    with (
        machine_type([x * 2]) as machine,
        pytest.raises(ag.GraphTypeError, match=r"is int64 and has no gradient.*astype"),
    ):
        machine.run_sync({"x": 1}, backward=True)


@machines
@each(
    ("error", "match", "options"),
    [
        (ValueError, "workers must be an int of at least 1, got 0", {"workers": 0}),
        (ValueError, "workers must be an int of at least 1, got True", {"workers": True}),
        (ValueError, "workers must be an int of at least 1, got 1.5", {"workers": 1.5}),
        (ValueError, "capacity must be an int of at least 1, got 0", {"capacity": 0}),
        (ValueError, "exact must be True or False, got 'no'", {"exact": "no"}),
        (ValueError, "statistics must be True or False, got 'no'", {"statistics": "no"}),
        (ValueError, "watch must be one of 'nan', 'inf', got 3", {"watch": 3}),
        (ValueError, "max_in_flight must be an int of at least 1, got -1", {"max_in_flight": -1}),
        (ValueError, "fuse must be one of 'none', 'auto', 'all', got 'x'", {"fuse": "x"}),
        (ValueError, "watch must be one of 'nan', 'inf', got 'zero'", {"watch": ("zero",)}),
        (ag.GraphError, r"'cuda:0' needs CuPy: pip install 'actorgraph\[cuda12\]'",
         {"device": "cuda:0"}),
        (ag.GraphError, "'cuda' has no number: write 'cuda:0'", {"device": "cuda"}),
        (ag.GraphError, "unknown device 'tpu'; use 'cpu'", {"device": "tpu"}),
        (ag.GraphError, "unknown device None", {"device": None}),
        (TypeError, r"Machine\(\) has no worker=: did you mean 'workers'", {"worker": 1}),
    ],
)  # fmt: skip
def test_options_of_a_machine_are_checked(machine_type, error, match, options):
    _, loss, _ = model()
    with pytest.raises(error, match=match):
        machine_type([loss], **options)


@machines
def test_outputs_and_wrt_are_nodes_of_one_graph(machine_type):
    graph, loss, _ = model()
    with pytest.raises(ag.GraphError, match="at least one output"):
        machine_type([])
    for outputs in ("loss", ["loss"]):
        with pytest.raises(ag.GraphTypeError, match="got str 'loss'; look it up in the graph"):
            machine_type(outputs)
    with pytest.raises(ag.GraphTypeError, match=r"outputs such as \[loss\], not <Graph 'model' of"):
        machine_type(graph)
    with pytest.raises(
        ag.GraphTypeError, match="expected a node, a list or a dict of nodes, got 1"
    ):
        machine_type(1)
    with pytest.raises(ag.GraphError, match="another graph that is also named 'model'"):
        machine_type([loss, model()[1]])
    with pytest.raises(ag.GraphError, match="also named 'model'"):
        machine_type([loss], wrt=[model()[0]["W"]])
    with pytest.raises(ag.GraphTypeError, match=r"wrt .* is int64 and has no gradient.*astype"):
        machine_type([loss], wrt=[graph["targets"]])


@machines
def test_a_closed_machine_says_so(machine_type):
    _, loss, _ = model()
    machine = machine_type([loss])
    machine.run_sync(feeds())
    machine.close()
    machine.close()
    for call in (machine.run_sync, machine.start):
        with pytest.raises(ag.MachineClosedError, match="was closed; make a new one"):
            call(feeds())
    assert "closed" in repr(machine)
    never_started = machine_type([loss])
    never_started.close()
    with pytest.raises(ag.MachineClosedError, match="was closed"):
        never_started.run_sync(feeds())


@machines
@pytest.mark.anyio
async def test_inside_a_loop_run_sync_says_to_await(machine_type, anyio_backend):
    _, loss, _ = model()
    async with machine_type([loss]) as machine:
        with pytest.raises(ag.GraphError, match=r"write `await machine.run\(...\)`"):
            machine.run_sync(feeds())
        run = await machine.run(feeds())
        assert run[loss].value.shape == ()
    with pytest.raises(ag.MachineClosedError, match="was closed"):
        await machine.run(feeds())


@machines
@pytest.mark.anyio
async def test_bad_feeds_are_refused_by_run_too(machine_type, anyio_backend):
    _, loss, _ = model()
    async with machine_type([loss]) as machine:
        with pytest.raises(ag.FeedError, match="missing feed 'features'"):
            await machine.run({})


@machines
@pytest.mark.anyio
async def test_under_the_kernel_of_ipython_run_sync_works(machine_type, anyio_backend, monkeypatch):
    shell = types.SimpleNamespace(kernel=object())
    module = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    _, loss, _ = model()
    async with machine_type([loss]) as machine:
        run = machine.run_sync(feeds(), backward=True)
        assert run["W"].grad.shape == (3, 4)
        assert machine.start(feeds()).result()[loss].value == run[loss].value
        shell.kernel = None  # plain IPython: the prompt of a terminal
        with pytest.raises(ag.GraphError, match="await machine.run"):
            machine.run_sync(feeds())


@machines
def test_reading_what_was_not_asked_for_is_a_key_error(machine_type):
    _, loss, logits = model()
    with machine_type({"loss": loss}) as machine:
        run = machine.run_sync(feeds())
        assert run["loss"] is run[loss] is run[loss.name]
        with pytest.raises(
            KeyError, match="'los' is neither an output nor a wrt.*did you mean 'loss'"
        ):
            run["los"]
        with pytest.raises(KeyError, match="name it among the outputs to read it"):
            run[logits]
        with pytest.raises(KeyError, match="belongs to another graph"):
            run[model()[1]]
        with pytest.raises(KeyError, match="neither an output nor a wrt"):
            run[7]


@machines
def test_reading_a_run_that_has_not_ended_says_to_wait(machine_type):
    _, loss, _ = model()
    with machine_type([loss]) as machine:
        run = machine.start(feeds())
        if not run.done:
            with pytest.raises(ag.GraphError, match="has not ended; await it or call .result"):
                run[loss]
        run.result()


@machines
def test_arrays_of_any_layout_and_permission_are_accepted(machine_type):
    _, loss, logits = model()
    plain = np.arange(6, dtype="float32").reshape(2, 3)
    strided = np.zeros((4, 9), "float32")[::2, ::-3]
    strided[...] = plain
    locked = plain.copy()
    locked.flags.writeable = False
    subclass = plain.view(type("Sub", (np.ndarray,), {}))
    with machine_type([loss, logits]) as machine:
        wanted = machine.run_sync(feeds(features=plain))[logits].value
        for given in (strided, locked, np.asfortranarray(plain), subclass):
            got = machine.run_sync(feeds(features=given), backward=True)
            np.testing.assert_allclose(got[logits].value, wanted, rtol=1e-6)
            assert type(got[logits].value) is np.ndarray
            assert got[logits].value.flags.writeable


@machines
def test_an_empty_batch_works(machine_type):
    _, _, logits = model()
    with machine_type([logits.sum(), logits]) as machine:
        run = machine.run_sync(feeds(0), backward=True)
        assert run[logits].value.shape == (0, 4)
        np.testing.assert_array_equal(run["W"].grad, np.zeros((3, 4)))


@machines
def test_nan_passes_unless_it_is_watched(machine_type):
    _, _, logits = model()
    given = feeds(features=np.full((2, 3), np.nan, "float32"))
    with machine_type([logits]) as machine:
        assert np.isnan(machine.run_sync(given)[logits].value).all()
    with machine_type([logits], watch=("nan", "inf")) as machine:
        with pytest.raises(ag.NodeError, match=r"node 'matmul_\d+' .*the result has NaN"):
            machine.run_sync(given)
        assert machine.run_sync(feeds())[logits].value.all()


@machines
def test_scalars_feed_scalar_inputs_in_its_dtype(machine_type):
    graph = ag.Graph()
    small, flag = graph.input("small", (), "int8"), graph.input("flag", (), "bool")
    with machine_type([small * 1, ag.ops.logical_not(flag)]) as machine:
        run = machine.run_sync({"small": 7, "flag": True})
        assert [dual.value.dtype.name for dual in run.duals.values()] == ["int8", "bool"]
        for wrong in (300, -1000, 1.5):
            with pytest.raises(ag.FeedError, match="'small'"):
                machine.run_sync({"small": wrong, "flag": True})
        with pytest.raises(ag.FeedError, match="'flag'"):
            machine.run_sync({"small": 7, "flag": 2})


@machines
def test_a_parameter_refuses_another_shape_or_dtype(machine_type):
    graph, loss, _ = model()
    w = graph["W"]
    with machine_type([loss]) as machine:
        with pytest.raises(ag.ShapeError, match=r"has shape \(3, 4\), got \(4, 3\)"):
            w.value = np.ones((4, 3), "float32")
        with pytest.raises(
            ag.GraphTypeError, match=r"is float32, got float64; convert with .astype"
        ):
            w.value = np.ones((3, 4))
        np.testing.assert_array_equal(w.value, 1)
        machine.run_sync(feeds())


@machines
def test_dims_known_only_in_a_run_are_checked_there(machine_type):
    x = ag.Graph().input("x", (None,), "float64")
    y = ag.ops.tanh(x)
    with machine_type([y], wrt=[x]) as machine:
        run = machine.run_sync({"x": np.ones(3)}, backward={y: np.ones(3)})
        assert run[x].grad.shape == (3,)
        with pytest.raises(ag.FeedError, match="known only in a run; give an array"):
            machine.run_sync({"x": np.ones(3)}, backward={y: 1})
        mismatch = "but in this run the node has shape|could not be broadcast"  # the op came first
        for wrong in (np.ones(1), np.ones(2)):
            with pytest.raises(ag.GraphError, match=mismatch):
                machine.run_sync({"x": np.ones(3)}, backward={y: wrong})
            with pytest.raises(ag.GraphError, match=mismatch):
                machine.run_sync({"x": np.ones(3)}, tangents={"x": wrong})
    fed = ag.ops.exp(x)  # and where nobody reads what is fed
    with machine_type([fed], wrt=[]) as machine, pytest.raises(ag.GraphError, match=mismatch):
        machine.run_sync({"x": np.ones(3)}, tangents={"x": np.ones(1)})


@machines
@each("number", [1.5, "1"])
def test_a_run_number_that_is_no_whole_number_is_refused_not_cut_off(machine_type, number):
    _, loss, _ = model()
    with (
        machine_type([loss]) as machine,
        pytest.raises(ValueError, match=f"run_number must be an int, got {number!r}"),
    ):
        machine.run_sync(feeds(), run_number=number)


@machines
def test_numbers_of_numpy_are_options_too(machine_type):
    _, loss, _ = model()
    options = {"workers": np.int64(1), "max_in_flight": np.uint8(3), "max_bytes": np.int64(10**9)}
    with machine_type([loss], **options) as machine:
        machine.run_sync(feeds(), timeout_s=np.float32(30.0))
        assert repr(machine.workers) == "1"
