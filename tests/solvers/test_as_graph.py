"""A solver's step as nodes: any machine that runs them steps with the bits of `solver.step`."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import solvers as S
from tests._each import each
from tests.solvers.test_trajectories import MAKES as PLAIN

MACHINES = {
    "tape": ag.TapeMachine,
    "lisp": ag.LispMachine,
    "actor": ag.ActorMachine,
    "unfused": partial(ag.ActorMachine, fuse="none", workers=2),
    "virtual": partial(ag.TapeMachine, device="virtual:0"),
}
REFUSED = ("barzilai_borwein",)
MAKES = {
    **{name: make for name, make in PLAIN.items() if name not in REFUSED},
    "nesterov": lambda: S.SGD(0.05, momentum=0.9, nesterov=True, l1=1e-3),
    "scheduled": lambda: S.Adam(S.schedules.one_cycle(0.05, 20)),
    "clipped": lambda: S.Adam(0.05, clip_norm=0.5, clip_value=0.3, batch_size=3.0),
    "accumulated": lambda: S.Adam(0.05, accumulate=3, clip_norm=0.1),
    "skipping": lambda: S.SGD(0.05, momentum=0.9, skip_nonfinite=True),
    "scaled": lambda: S.SGD(0.05, loss_scale=2.0**20, growth_interval=3, accumulate=2),
}
ROWS = np.random.default_rng(1).normal(size=(11, 5, 4))


class Net:
    """A small net of one dtype, and a loss that is real."""

    def __init__(self, dtype="float32"):
        rng = np.random.default_rng(0)
        self.graph = ag.Graph()
        x = self.graph.input("x", ("n", 4), dtype)
        shapes = {"w": (4, 3), "b": 3}
        self.parameters = [
            self.graph.parameter(name, rng.normal(size=shape).astype(dtype))
            for name, shape in shapes.items()
        ]
        h = x @ self.parameters[0] + self.parameters[1]
        self.loss = (ag.ops.real(h * ag.ops.conj(h)) if dtype[0] == "c" else h * h).mean()

    def bits(self):
        return [one.value.tobytes() for one in self.parameters]


def fed(dtype, broken=False):
    rows = ROWS.astype(dtype)
    if broken:
        rows[4, 0, 0] = np.nan
    return [{"x": one} for one in rows]


def stepped(make, dtype, feeds):
    """Return the bits and the state after steps by hand."""
    net, solver = Net(dtype), make()
    with ag.TapeMachine(net.loss) as machine:
        for one in feeds:
            seed = np.asarray(solver.scale).astype(net.loss.dtype)
            run = machine.run_sync(one, backward={net.loss: seed})
            solver.step([run[node] for node in net.parameters])
    return net.bits(), repr(solver.state_dict())


@each("name", MAKES)
def test_runs_step_with_the_bits_of_the_solver(name):
    for dtype in ("float16", "float32", "float64", "complex64"):
        feeds = fed(dtype, broken=name in ("skipping", "scaled"))
        with np.errstate(all="ignore"):
            wanted = stepped(MAKES[name], dtype, feeds)
            machines = MACHINES if dtype == "float32" else {"tape": ag.TapeMachine}
            for kind in machines.values():
                net, solver = Net(dtype), MAKES[name]()
                step = solver.as_graph(net.loss)
                with kind([net.loss, step]) as machine:
                    for one in feeds:
                        run = machine.run_sync(one)
                assert (net.bits(), repr(solver.state_dict())) == wanted
                assert run[step].value == solver.steps


def test_groups_and_parameters_of_another_age_step_as_by_hand():
    found = []
    for in_graph in (False, True):
        net, solver = Net(), S.AdamW(0.05)
        w, b = net.parameters
        solver.add_group([b], weight_decay=0.5)
        with ag.TapeMachine(net.loss) as machine:
            for count, one in enumerate(fed("float32")):
                run = machine.run_sync(one, backward=True)
                if in_graph and count == 3:
                    break
                solver.step([run[w]] if count < 3 else [run[w], run[b]])
        if in_graph:
            step = solver.as_graph(net.loss, [w, b.held])
            with ag.TapeMachine(step) as machine:
                for one in fed("float32")[3:]:
                    machine.run_sync(one)
        found.append((net.bits(), repr(solver.state_dict())))
    assert found[0] == found[1]


def test_one_run_follows_the_other_however_they_are_started():
    wanted = stepped(S.Adam, "float32", [fed("float32")[0]] * 24)
    net, solver = Net(), S.Adam()
    step, feeds = solver.as_graph(net.loss), fed("float32")[0]
    with ag.ActorMachine([net.loss, step]) as machine:
        numbers = [int(run[step].value) for run in machine.stream([feeds] * 8)]
        runs = [machine.start(feeds, priority=number % 2) for number in range(8)]
        numbers += [int(run.result()[step].value) for run in runs]
        with ThreadPoolExecutor(4) as pool:
            made = [*pool.map(machine.run_sync, [feeds] * 8)]
    assert numbers == [*range(1, 17)]
    assert sorted(int(run[step].value) for run in made) == [*range(17, 25)]
    assert (net.bits(), repr(solver.state_dict())) == wanted


def test_a_run_that_fails_or_does_not_ask_for_the_step_changes_nothing():
    net, solver = Net(), S.Adam()
    step = solver.as_graph(net.loss)
    picky = ag.ops.opaque(lambda x: np.sqrt(x if x > 0 else 1 / 0), name="picky")
    before = net.bits()
    with ag.TapeMachine([step, picky(net.loss - 1e9)]) as machine:
        for _ in range(2):
            with pytest.raises(ag.NodeError, match="picky"):
                machine.run_sync(fed("float32")[0])
    with ag.TapeMachine(net.loss) as machine:
        machine.run_sync(fed("float32")[0])
    assert net.bits() == before
    assert solver.state_dict()["steps"] == 0
    with ag.TapeMachine(step) as machine:
        assert machine.run_sync(fed("float32")[0])[step].value == 1


@each("name", ["adam", "accumulated", "scaled"])
def test_a_state_goes_on_in_another_graph(name):
    feeds = fed("float32")
    with np.errstate(over="ignore"):
        wanted = stepped(MAKES[name], "float32", feeds)
        net, solver = Net(), MAKES[name]()
        with ag.TapeMachine(solver.as_graph(net.loss)) as machine:
            for one in feeds[:4]:
                machine.run_sync(one)
        state = pickle.loads(pickle.dumps(solver.state_dict()))
        again, resumed = Net(), MAKES[name]()
        step = resumed.as_graph(again.loss)
        resumed.load_state_dict(state)
        for one, other in zip(again.parameters, net.parameters, strict=True):
            one.value = other.value
        with ag.TapeMachine(step) as machine:
            for one in feeds[4:]:
                machine.run_sync(one)
    assert (again.bits(), repr(resumed.state_dict())) == wanted


def test_a_module_is_trained_by_runs_alone():
    ag.nn.manual_seed(0)
    points, labels = ag.data.moons(100)
    net, g = ag.nn.models.MLP(2, 16, 2), ag.Graph()
    x, t = g.input("x", ("n", 2)), g.input("t", ("n",), "int64")
    loss = ag.ops.cross_entropy(net(x), t)
    step = S.Adam(lr=0.05).as_graph(loss, net.parameters())
    with ag.ActorMachine([loss, step]) as machine:
        losses = [run[loss].value for run in machine.stream([{"x": points, "t": labels}] * 80)]
    assert losses[-1] < 0.1 < losses[0]
    assert (net(points).argmax(1) == labels).mean() > 0.95


def refusals():
    net, solver = Net(), S.Adam()
    step = solver.as_graph(net.loss)
    other = S.SGD()
    weight = Net().parameters[0]
    for name in REFUSED:
        yield (lambda name=name: PLAIN[name]().as_graph(Net().loss)), "more than lines of"
    yield (lambda: S.LBFGS().as_graph(net.loss)), "calls its closure"
    yield (lambda: solver.as_graph(net.loss)), "in a graph already"
    yield (lambda: other.as_graph(net.loss)), "stepped twice"
    yield (lambda: other.as_graph(weight)), "expected a real scalar"
    yield (lambda: other.as_graph(3.0)), "the node of a loss"
    yield (lambda: other.as_graph(Net().graph.input("y", ()))), "depends on none"
    made = Net()
    yield (lambda: other.as_graph(made.loss, [made.loss])), "is none"
    yield (lambda: ag.TapeMachine([net.loss, step]).compile_step(other)), "every run is a step"
    options = {"stages": 1, "microbatches": 2, "split": "n", "outputs": [step]}
    yield (lambda: ag.pipeline.Pipeline(net.loss, **options)), "runs of their own"
    run = ag.TapeMachine(net.loss).run_sync(fed("float32")[0], backward=True)
    yield (lambda: solver.step([run[node] for node in net.parameters])), "each run of .* is a step"


def test_what_no_run_can_step_is_refused():
    for act, told in refusals():
        with pytest.raises(ag.GraphError, match=told):
            act()
