"""A trainer makes the steps that one writes by hand, whole ones, and tells what came of them."""

import os
import signal
from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from tests._each import each
from tests.train._cases import arrays, loader_of, network, state_of, trainer_of

MACHINES = {
    "lisp": ag.LispMachine,
    "tape": ag.TapeMachine,
    "actors": partial(ag.ActorMachine, workers=2),
    "one actor a node": partial(ag.ActorMachine, workers=2, fuse="none"),
}


class At(ag.train.Callback):
    """Does something after some step."""

    def __init__(self, step, what):
        self.step, self.what = step, what

    def on_step(self, trainer):
        if trainer.step == self.step:
            self.what()


class Moments(ag.train.Callback):
    def __init__(self):
        self.seen = []

    def on_begin(self, trainer):
        self.seen.append("begin")

    def on_step(self, trainer):
        self.seen.append(trainer.step)

    def on_epoch(self, trainer):
        self.seen.append(f"epoch {trainer.epoch}")

    def on_interrupt(self, trainer):
        self.seen.append("interrupt")

    def on_end(self, trainer):
        self.seen.append("end")


def failing():
    raise RuntimeError("enough")


def pressed():
    os.kill(os.getpid(), signal.SIGINT)


def by_hand(epochs):
    """Return the weights and losses of the loop that users write without a trainer."""
    net, solver, loader = network(), ag.solvers.Adam(lr=0.01), loader_of()
    g = ag.Graph("sequential")
    x, t = g.input("x", ("n", 4)), g.input("t", ("n",), "int64")
    loss = ag.ops.cross_entropy(net(x), t)
    step, means = 0, []
    with ag.LispMachine([loss]) as machine:
        for _ in range(epochs):
            total = rows = 0
            for xs, ts in loader:
                run = machine.run_sync({"x": xs, "t": ts}, backward=True, run_number=step)
                solver.step([run[one] for one in net.parameters()])
                total, rows, step = (
                    total + float(run[loss].value) * len(xs),
                    rows + len(xs),
                    step + 1,
                )
            means.append(total / rows)
    return {name: one.tobytes() for name, one in net.state_dict().items()}, means


@pytest.mark.parametrize("kind", MACHINES)
def test_weights_and_losses_are_those_of_the_loop_by_hand(kind):
    weights, losses = by_hand(2)
    trainer = trainer_of(machine=MACHINES[kind], metrics=["accuracy"])
    history = trainer.fit(loader_of(), epochs=2)
    assert state_of(trainer) == weights
    assert history["loss"] == losses
    assert set(history) == {"loss", "accuracy", "lr", "seconds"}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_afit_has_the_bits_of_fit(backend):
    async def fitted():
        return await trainer.afit(loader_of(), 2, validation=arrays())

    trainer, other = trainer_of(), trainer_of()
    history = anyio.run(fitted, backend=backend)
    wanted = other.fit(loader_of(), epochs=2, validation=arrays())
    assert state_of(trainer) == state_of(other)
    assert (history["loss"], history["val_loss"]) == (wanted["loss"], wanted["val_loss"])


def test_evaluation_is_in_evaluation_mode_and_leaves_modes_and_weights_alone():
    net = network()
    net[1].eval()
    before = {name: one.tobytes() for name, one in net.state_dict().items()}
    trainer = trainer_of(net, metrics=["accuracy"])
    found = trainer.evaluate(arrays())
    assert state_of(trainer) == before
    assert [one.training for one in net.children()] == [True, False, True, True, True]
    x, t = arrays()
    scores = net.eval()(x)
    assert found["accuracy"] == np.mean(scores.argmax(axis=1) == t)
    np.testing.assert_array_equal(trainer.predict(x), scores)
    loss = -np.mean(scores[np.arange(len(t)), t] - np.log(np.exp(scores).sum(axis=1)))
    assert found["loss"] == pytest.approx(loss, rel=1e-5)


def test_predictions_are_those_of_all_rows_whatever_the_batches():
    trainer, (x, t) = trainer_of(), arrays()
    whole = trainer.predict(x)
    np.testing.assert_allclose(trainer.predict(x, batch_size=7), whole, rtol=1e-6)
    np.testing.assert_allclose(trainer.predict([(x[:9], t[:9]), (x[9:], t[9:])]), whole, rtol=1e-6)


def test_a_model_of_several_inputs_and_results_is_trained():
    class Two(ag.nn.Module):
        def __init__(self):
            self.a, self.b = ag.nn.Linear(4, 2), ag.nn.Linear(3, 2)

        def forward(self, x, more):
            return {"sum": self.a(x) + self.b(more["z"]), "more": more["z"]}

    x, _ = arrays()
    z, wanted = x[:, :3] * 2, x[:, :2] + 1

    def loss(prediction, target):
        return ag.ops.mse_loss(prediction["sum"], target)

    trainer = ag.train.Trainer(Two(), loss, ag.solvers.Adam(lr=0.05), callbacks=[])
    history = trainer.fit([(x, {"z": z}, wanted)], epochs=200)
    assert history["loss"][-1] < 1e-3 * history["loss"][0]
    assert trainer.predict([(x, {"z": z}, wanted)])["sum"].shape == (48, 2)


def test_moments_come_in_order_and_training_goes_on_where_it_was():
    moments = Moments()
    trainer = trainer_of(callbacks=[moments])
    trainer.fit(loader_of(24), epochs=2)
    assert moments.seen == ["begin", 1, 2, "epoch 1", 3, 4, "epoch 2", "end"]
    trainer.fit(loader_of(24), epochs=1)
    assert (trainer.epoch, trainer.step, trainer.history.epochs) == (3, 6, 3)


def test_lbfgs_is_given_the_closure_that_it_asks_for():
    x, _ = arrays()
    wanted = x @ np.array([[1.0], [2.0], [3.0], [4.0]], "float32") + 0.5
    net = ag.nn.Linear(4, 1)
    solver = ag.solvers.LBFGS(line_search_fn="strong_wolfe")
    trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[])
    trainer.fit([(x, wanted)], epochs=3)
    np.testing.assert_allclose(net.weight.value, [[1, 2, 3, 4]], atol=1e-3)


# -- bad input ------------------------------------------------------------------------------------


def poisoned(what):
    x, t = arrays()
    x[30] = what
    return [(x[:24], t[:24]), (x[24:], t[24:])]


@pytest.mark.parametrize("kind", MACHINES)
def test_a_loss_that_is_not_finite_changes_nothing_and_names_the_layer(kind):
    trainer = trainer_of(machine=MACHINES[kind])
    states = []
    trainer.callbacks.append(
        At(1, lambda: states.append((state_of(trainer), trainer.solver.steps)))
    )
    with pytest.raises(GraphError, match=r"loss is nan in step 1 \(epoch 1\); the batch itself has "
                       r"a NaN; the first nan is that of layer '0'.*clip_norm"):  # fmt: skip
        trainer.fit(poisoned(np.nan), epochs=1)
    assert [(state_of(trainer), trainer.solver.steps)] == states


def test_parameters_that_are_not_finite_are_named():
    trainer = trainer_of()
    trainer.model[4].bias.value[1] = np.nan
    with pytest.raises(GraphError, match=r"layer '4'.*not finite since an earlier.* 4\.bias"):
        trainer.fit(loader_of(), epochs=1)


def test_a_solver_may_leave_out_such_steps():
    solver = ag.solvers.Adam(lr=0.01, skip_nonfinite=True)
    trainer = trainer_of(ag.nn.Linear(4, 3), solver=solver)
    history = trainer.fit(poisoned(np.nan), epochs=1)
    assert (solver.steps, trainer.step) == (1, 2)
    assert np.isfinite(history["loss"]).all()


def plain():
    ag.nn.manual_seed(0)
    return ag.nn.Sequential(ag.nn.Linear(4, 8), ag.nn.Tanh(), ag.nn.Linear(8, 3))


STAGED = {
    "stages=2": {"stages": 2},
    "options of a pipeline": {
        "machine": partial(ag.pipeline.Pipeline, stages=2, microbatches=3, schedule="zb-h1")
    },
}


@pytest.mark.parametrize("kind", STAGED)
def test_a_pipeline_trains_to_the_weights_of_one_machine(kind):
    trainer = trainer_of(plain(), metrics=["accuracy"], **STAGED[kind])
    other = trainer_of(plain(), metrics=["accuracy"])
    history = trainer.fit(loader_of(), epochs=2, validation=arrays())
    wanted = other.fit(loader_of(), epochs=2, validation=arrays())
    for name, value in other.model.state_dict().items():
        np.testing.assert_allclose(trainer.model.state_dict()[name], value, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-5)
    np.testing.assert_allclose(history["accuracy"], wanted["accuracy"])
    assert trainer.predict(arrays()[0][:1]).shape == (1, 3)  # fewer rows than microbatches


def test_a_pipeline_of_a_trainer_runs_stages_on_lanes_of_their_own():
    with ag.trace.record() as trace:
        trainer_of(plain(), stages=2).fit(loader_of(), epochs=1)
    assert {"stage 0", "stage 1"} <= set(trace.lanes)


def test_an_error_of_a_callback_or_loader_leaves_whole_steps():
    wanted = {}
    trainer = trainer_of()
    trainer.callbacks += [
        At(3, lambda: wanted.update(state_of(trainer))),
        At(3, failing),
        Moments(),
    ]
    with pytest.raises(RuntimeError, match="enough"):
        trainer.fit(loader_of(), epochs=1)
    assert state_of(trainer) == wanted

    def batches():
        x, t = arrays()
        yield x, t
        failing()

    with pytest.raises(RuntimeError, match="enough"):
        trainer.fit(batches(), epochs=1)
    assert trainer.step == 4


@each(
    ("call", "error", "told"),
    [
        (lambda: ag.train.Trainer(abs, abs, ag.solvers.SGD()), GraphTypeError, "ag.nn.Module"),
        (lambda: ag.train.Trainer(network(), 1, ag.solvers.SGD()), GraphTypeError, "loss has to"),
        (lambda: ag.train.Trainer(network(), abs, 0.1), GraphTypeError, "expected a solver"),
        (lambda: trainer_of(machine="tape"), GraphTypeError, "machine= has to make machines"),
        (lambda: trainer_of(stages=0), ValueError, "stages must be an int"),
        (lambda: trainer_of(stages=2, machine=ag.TapeMachine), GraphTypeError, "stages=2 makes"),
        (lambda: trainer_of(callbacks=[print]), GraphError, "has to be an ag.train.Callback"),
        (lambda: trainer_of().fit(3, 1), GraphTypeError, "over batches, got 3; .*DataLoader"),
        (lambda: trainer_of().fit(loader_of(), 0), ValueError, "epochs must be an int"),
        (lambda: trainer_of().fit(arrays(), 1), GraphError, "has to be a tuple.*ArrayDataset"),
        (lambda: trainer_of().fit(iter([arrays()]), 2), GraphError, "no batch in epoch 2"),
        (lambda: trainer_of().fit([], 1), GraphError, "no batch in epoch 1"),
        (lambda: trainer_of().evaluate([]), GraphError, "no batch to evaluate"),
        (lambda: trainer_of().evaluate(arrays()[0]), GraphTypeError, "expected a loader"),
        (lambda: trainer_of().fit([(np.zeros((2, 5), "float32"), np.zeros(2, int))], 1),
         ShapeError, "0 .Linear.*features"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_to_write(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_a_loss_that_is_no_scalar_is_refused():
    loss = partial(ag.ops.cross_entropy, reduction="none")
    trainer = ag.train.Trainer(network(), loss, ag.solvers.SGD(), callbacks=[])
    with pytest.raises(ShapeError, match="expected a scalar; take its .mean"):
        trainer.fit(loader_of(), epochs=1)


# -- stops ----------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c_is_heard():
    """A shell has what it starts in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_ends_after_a_whole_step_and_gives_the_signal_back():
    moments, wanted, before = Moments(), {}, signal.getsignal(signal.SIGINT)
    trainer = trainer_of()
    trainer.callbacks += [At(2, pressed), moments, At(2, lambda: wanted.update(state_of(trainer)))]
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(loader_of(), epochs=1)
    assert moments.seen == ["begin", 1, 2, "interrupt", "end"]
    assert state_of(trainer) == wanted
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_a_second_ctrl_c_raises_at_once():
    seen = Moments()

    def twice():
        pressed()
        pressed()
        seen.seen.append("never")

    with pytest.raises(KeyboardInterrupt):
        trainer_of(callbacks=[At(1, twice), seen]).fit(loader_of(), epochs=1)
    assert seen.seen == ["begin", "interrupt", "end"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_training_is_saved_and_leaves_whole_steps(backend, tmp_path):
    async def cancelled():
        with anyio.CancelScope() as scope:
            trainer.callbacks.append(At(3, scope.cancel))
            await trainer.afit(loader_of(), epochs=5)
        assert scope.cancelled_caught

    trainer = trainer_of(callbacks=[ag.train.Checkpoint(tmp_path)])
    anyio.run(cancelled, backend=backend)
    assert 3 <= trainer.step <= 4
    resumed = trainer_of(callbacks=[ag.train.Checkpoint(tmp_path)])
    resumed.fit(loader_of(), epochs=2, resume=tmp_path)
    whole = trainer_of()
    whole.fit(loader_of(), epochs=2)
    assert state_of(resumed) == state_of(whole)
