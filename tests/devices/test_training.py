"""Steps on devices: parameters and solver states stay there, and bits are the CPU's."""

import copy
import pickle
import sys

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices.virtual import Virtual
from actorgraph.store import promised
from tests._each import each

LOOPS = {
    "SGD": lambda: ag.solvers.SGD(0.1),
    "SGD with all": lambda: ag.solvers.SGD(
        0.1, momentum=0.9, nesterov=True, weight_decay=0.01, l1=0.01
    ),
    "Adam": lambda: ag.solvers.Adam(0.05, amsgrad=True),
    "AdamW": lambda: ag.solvers.AdamW(0.05),
    "AdaGrad": lambda: ag.solvers.AdaGrad(0.1),
    "AdaDelta": lambda: ag.solvers.AdaDelta(1.0),
    "RMSProp": lambda: ag.solvers.RMSProp(0.01, momentum=0.5, centered=True),
    "NAdam": lambda: ag.solvers.NAdam(0.05),
    "RAdam": lambda: ag.solvers.RAdam(0.05),
    "Adamax": lambda: ag.solvers.Adamax(0.05),
    "Lion": lambda: ag.solvers.Lion(0.05),
    "clipped": lambda: ag.solvers.Adam(0.05, clip_norm=0.1, clip_value=0.05, batch_size=2.0),
    "LAMB": lambda: ag.solvers.LAMB(0.05, weight_decay=0.1),
    "Barzilai and Borwein": lambda: ag.solvers.BarzilaiBorwein(0.01),
    "accumulating": lambda: ag.solvers.Adam(0.05, accumulate=2, clip_norm=0.1),
    "skipping": lambda: ag.solvers.Adam(0.05, skip_nonfinite=True),
}


class Net:
    def __init__(self, dtype="float64"):
        draw = np.random.default_rng(0)
        g = self.graph = ag.Graph("net")
        x = g.input("x", ("n", 4), dtype)
        self.w = g.parameter("w", draw.normal(size=(4, 3)).astype(dtype))
        self.b = g.parameter("b", draw.normal(size=3).astype(dtype))
        self.v = g.parameter("v", draw.normal(size=(3, 2)).astype(dtype))
        self.unused = g.parameter("unused", np.ones(2, dtype))
        h = ag.ops.tanh(x @ self.w + self.b)
        out = h @ self.v
        self.loss = (out * ag.ops.conj(out)).real.mean() if dtype[0] == "c" else (out * out).mean()
        self.feeds = {"x": draw.normal(size=(5, 4)).astype(dtype)}
        self.parameters = [self.w, self.b, self.v, self.unused]

    def values(self):
        return [one.value.tobytes() for one in self.parameters]


def train(net, make, steps=4, **options):
    with ag.ActorMachine([net.loss], **options) as machine:
        step = machine.compile_step(make())
        losses = [step(net.feeds)[net.loss].value.tobytes() for _ in range(steps)]
        return losses, net.values(), machine.transfers


DEVICES = {
    "one lane": lambda: {"device": "virtual:0"},
    "checked": lambda: {"device": ag.devices.check("virtual:0"), "lanes": 3, "fuse": "none"},
    "two": lambda: {
        "devices": [
            ag.devices.check(ag.devices.adversary(f"virtual:{i}", seed=i)) for i in range(2)
        ],
        "lanes": 2,
        "fuse": "none",
    },
}


@each("options", DEVICES.values())
@each("make", LOOPS.values())
def test_a_step_on_devices_has_the_bits_of_the_cpu_and_copies_parameters_once(make, options):
    losses, values, _ = train(Net(), make, device="cpu")
    given = options()
    got_losses, got, transfers = train(Net(), make, **given)
    assert got_losses == losses
    assert got == values
    if "devices" not in given:
        assert transfers["parameters"] == 4
        assert transfers["results"] == 4  # the losses
    for device in given.get("devices", [given.get("device")]):
        assert list(getattr(device, "report", list)()) == []


@each("dtype", ["float32", "complex128"])
@each("name", ["Adam", "SGD", "LAMB", "Barzilai and Borwein"])
def test_other_dtypes_too(dtype, name):
    make = LOOPS[name]
    assert train(Net(dtype), make, device="virtual:0")[:2] == train(Net(dtype), make)[:2]


def minimised(net, search, **where):
    """Return what three steps of L-BFGS find, and what they copy."""
    solver = ag.solvers.LBFGS(0.5, max_iter=4, line_search_fn=search)
    held = [one.held for one in net.parameters]
    with ag.ActorMachine([net.loss], **where) as machine:

        def closure():
            run = machine.run_sync(net.feeds, backward=True, fetch=not where)
            for one in net.parameters:
                one.held.grad = run[one].grad
            return run[net.loss].value

        losses = [solver.step(held, closure) for _ in range(3)]
        return losses, solver.state_dict(), dict(machine.transfers)


@each("search", [None, "strong_wolfe"])
@each("options", DEVICES.values())
def test_vectors_of_lbfgs_stay_on_the_device_of_the_gradients(options, search):
    there, here, given = Net(), Net(), options()
    losses, state, transfers = minimised(there, search, **given)
    wanted = minimised(here, search)
    assert losses == wanted[0]
    assert there.values() == here.values()
    assert state["direction"].tobytes() == wanted[1]["direction"].tobytes()
    assert transfers["results"] == 0
    assert transfers["parameters"] <= 2 * len(there.parameters)
    assert losses[-1] < losses[0]
    for device in given.get("devices", [given.get("device")]):
        assert list(getattr(device, "report", list)()) == []


def test_a_gradient_that_is_not_finite_leaves_all_as_it_was():
    net, other, make = Net(), Net(), LOOPS["skipping"]
    bad = {"x": np.full((5, 4), np.inf)}
    with ag.ActorMachine([net.loss], device="virtual:0") as machine:
        solver = make()
        step = machine.compile_step(solver)
        step(net.feeds)
        before = net.values()
        with np.errstate(invalid="ignore"):
            step(bad)
        assert net.values() == before
        assert solver.steps == 1
        step(net.feeds)
    train(other, make, steps=2)
    assert net.values() == other.values()


@pytest.mark.parametrize("name", ["clipped", "accumulating", "LAMB"])
def test_a_step_holds_no_memory_of_the_steps_before(name):
    net, held = Net(), []
    with ag.ActorMachine([net.loss], device="virtual:0", lanes=2) as machine:
        step = machine.compile_step(LOOPS[name]())
        for _ in range(6):
            step(net.feeds)
            there = promised(net.w.held.array)
            held.append(0 if there is None else len(there.memories))
    assert held[-1] == held[2] == 2


def test_gradients_that_wait_for_a_step_come_home_with_the_state():
    def make():
        return ag.solvers.Adam(0.05, accumulate=3)

    there, here = Net(), Net()
    for net, device in ((there, "virtual:0"), (here, "cpu")):
        solver = make()
        with ag.ActorMachine([net.loss], device=device) as machine:
            for _ in range(5):
                machine.compile_step(solver)(net.feeds)
        again = make()
        again.load_state_dict(solver.state_dict())
        assert again.accumulated == 2
        with ag.ActorMachine([net.loss], device="cpu" if device != "cpu" else "virtual:1") as other:
            other.compile_step(again)(net.feeds)
        assert again.steps == 2
    assert there.values() == here.values()


def test_groups_keep_their_settings():
    def made(net):
        solver = ag.solvers.AdamW(0.1, weight_decay=0.5)
        solver.add_group([net.b], weight_decay=0.0, lr=0.01)
        return solver

    found = []
    for device in ("cpu", "virtual:0"):
        net = Net()
        found.append(train(net, lambda net=net: made(net), device=device)[:2])
    assert found[0] == found[1]


@pytest.fixture
def trained():
    """A net whose parameters have been stepped on a device, and one stepped on the CPU."""
    there, here = Net(), Net()
    solvers = [LOOPS["Adam"]() for _ in range(2)]
    with ag.ActorMachine([here.loss]) as machine:
        step = machine.compile_step(solvers[1])
        step(here.feeds)
    with ag.ActorMachine([there.loss], device="virtual:0") as machine:
        step = machine.compile_step(solvers[0])
        step(there.feeds)
        yield there, here, machine, step, solvers


def test_a_value_comes_home_when_the_host_asks_for_it(trained):
    there, here, *_ = trained
    assert copy.copy(pickle.loads(pickle.dumps(there.w.held))).value.tobytes() == (
        here.w.value.tobytes()
    )
    assert there.values() == here.values()


@pytest.mark.parametrize("kind", [ag.ActorMachine, ag.TapeMachine, ag.LispMachine])
def test_machines_of_the_cpu_see_what_was_stepped_on_a_device(trained, kind):
    there, here, *_ = trained
    runs = []
    for net in (there, here):
        with kind([net.loss]) as machine:
            run = machine.run_sync(net.feeds, backward=True)
            runs.append([run[net.loss].value, run[net.w].value, run[net.w].grad])
    for got, wanted in zip(*runs, strict=True):
        assert np.asarray(got).tobytes() == np.asarray(wanted).tobytes()


def test_another_machine_of_the_device_takes_it_without_a_copy(trained):
    there, here, *_ = trained
    with ag.ActorMachine([there.loss], device="virtual:0") as machine:
        run = machine.run_sync(there.feeds, backward=True)
        assert machine.transfers["parameters"] == 0
        assert run[there.w].value.tobytes() == here.w.value.tobytes()
    with ag.ActorMachine([there.loss], device="virtual:1") as machine:
        assert machine.run_sync(there.feeds)[there.loss].value.shape == ()


def test_what_the_user_sets_is_what_the_next_step_begins_with(trained):
    there, here, _, step, solvers = trained
    for net in (there, here):
        net.w.value = net.w.value * 2.0
        net.v.value[0] = 3.0
    step(there.feeds)
    with ag.ActorMachine([here.loss]) as machine:
        machine.compile_step(solvers[1])(here.feeds)
    assert there.values() == here.values()


def test_a_state_is_saved_and_goes_on_anywhere(trained):
    there, here, machine, _, (solver, other) = trained
    saved, wanted = solver.state_dict(), other.state_dict()
    assert saved["steps"] == wanted["steps"] == 1
    for name, state in wanted["states"].items():
        for key, array in state.items():
            assert np.asarray(saved["states"][name][key]).tobytes() == np.asarray(array).tobytes()
    again = LOOPS["Adam"]()
    again.load_state_dict(wanted)
    machine.compile_step(again)(there.feeds)
    with ag.ActorMachine([here.loss]) as on_cpu:
        on_cpu.compile_step(other)(here.feeds)
        assert there.values() == here.values()
        run = on_cpu.run_sync(here.feeds, backward=True)
        other.step([run[one] for one in here.parameters])
    run = machine.run_sync(there.feeds, backward=True)
    again.step([run[one] for one in there.parameters])  # on the host, from a state of the device
    assert there.values() == here.values()


@pytest.mark.anyio
async def test_steps_are_awaited(trained):
    there, here, _, step, (_, other) = trained
    await step.run(there.feeds)
    with ag.TapeMachine([here.loss]) as machine:
        await machine.compile_step(other).run(here.feeds)
    assert there.values() == here.values()


def test_a_step_that_fails_changes_nothing_and_the_next_is_right():
    failing = []

    class Small(Virtual):
        @property
        def xp(self):
            return self if failing else np

        def __getattr__(self, name):
            def missing(*_):
                raise MemoryError("no room")

            return missing

    net, other = Net(), Net()
    train(other, LOOPS["Adam"], steps=2)
    with ag.ActorMachine([net.loss], device=Small("small")) as machine:
        step = machine.compile_step(LOOPS["Adam"]())
        step(net.feeds)
        before = net.values()
        failing.append(True)
        with pytest.raises(ag.NodeError, match="no room"):
            step(net.feeds)
        assert net.values() == before
        failing.clear()
        step(net.feeds)
    assert net.values() == other.values()


def test_a_check_stops_a_step_before_it_changes_anything():
    net = Net()
    before = net.values()

    def check(duals):
        raise ValueError(float(duals[net.loss].value))

    with ag.ActorMachine([net.loss], device="virtual:0") as machine:
        step = machine.compile_step(LOOPS["Adam"](), check=check)
        with pytest.raises(ValueError, match=r"\d"):
            step(net.feeds)
    assert net.values() == before


def test_a_parameter_that_was_set_meanwhile_stops_the_step():
    net = Net()

    def check(duals):
        net.w.value = np.zeros((4, 3))

    with ag.ActorMachine([net.loss], device="virtual:0") as machine:
        step = machine.compile_step(LOOPS["Adam"](), check=check)
        before = net.b.value.tobytes()
        with pytest.raises(ag.GraphError, match="'w' was set while a step was under way"):
            step(net.feeds)
    assert not net.w.value.any()
    assert net.b.value.tobytes() == before


def test_a_solver_goes_on_on_another_device():
    net, other, solver = Net(), Net(), LOOPS["Adam"]()
    for name in ("virtual:0", "virtual:1", "virtual:0"):
        with ag.ActorMachine([net.loss], device=name) as machine:
            machine.compile_step(solver)(net.feeds)
    train(other, LOOPS["Adam"], steps=3)
    assert net.values() == other.values()


@pytest.mark.parametrize("seed", range(3))
def test_steps_on_the_stand_in_for_a_gpu_are_right_and_no_race(seed, monkeypatch):
    world = stand_in.World(seed)
    monkeypatch.setattr(stand_in, "world", world)
    for name, module in stand_in.MODULES.items():
        monkeypatch.setitem(sys.modules, name, module)
    try:
        names = (
            "clipped",
            "SGD with all",
            "LAMB",
            "Barzilai and Borwein",
            "accumulating",
            "skipping",
        )
        for name in names:
            net, other = Net(), Net()
            train(other, LOOPS[name])
            _, _, transfers = train(net, LOOPS[name], device="cuda:0", lanes=3, fuse="none")
            assert transfers["parameters"] == 4
            for got, wanted in zip(net.parameters, other.parameters, strict=True):
                np.testing.assert_allclose(got.value, wanted.value, 1e-12)
        net, other = Net(), Net()
        losses = minimised(net, "strong_wolfe", device="cuda:0", lanes=2)[0]
        np.testing.assert_allclose(losses, minimised(other, "strong_wolfe")[0], 1e-9)
        assert world.races == []
        assert world.on_null == 0
    finally:
        devices._known.pop("cuda:0", None)


def saved(net, tmp_path):
    ag.io.save(tmp_path / "net", model=net)
    other = ag.nn.Linear(4, 2)
    ag.io.load(tmp_path / "net", model=other)
    return other.state_dict()


ASKED = {
    "state_dict": lambda net, _: net.state_dict(),
    "a checkpoint": saved,
    "a copy": lambda net, _: copy.deepcopy(net).state_dict(),
    "a pickle": lambda net, _: pickle.loads(pickle.dumps(net)).state_dict(),
    "a conversion": lambda net, _: net.to(dtype="float64").state_dict(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_module_trained_on_a_device_gives_what_it_has_learnt(asked, tmp_path):
    nets = [ag.nn.Linear(4, 2)]
    nets.append(copy.deepcopy(nets[0]))
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    for net, device in zip(nets, ("cpu", "virtual:0"), strict=True):
        loss = (net(ag.Graph().input("x", ("n", 4))) ** 2.0).mean()
        with ag.TapeMachine([loss], device=device) as machine:
            step = machine.compile_step(ag.solvers.Adam(0.1))
            for _ in range(3):
                step({"x": x})
    assert promised(nets[1].weight.array) is not None
    expected, found = nets[0].state_dict(), ASKED[asked](nets[1], tmp_path)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
