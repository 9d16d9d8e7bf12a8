import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest

import actorgraph as ag
from tests._soak import SOAK

MUTATIONS = 2000 if SOAK else 200


class Training:
    """A small training that can be stopped and resumed."""

    def __init__(self):
        ag.nn.manual_seed(3)
        self.net = ag.nn.Sequential(
            ag.nn.Linear(2, 8), ag.nn.BatchNorm1d(8), ag.nn.Tanh(), ag.nn.Linear(8, 3)
        )
        self.solver = ag.solvers.Adam(lr=1e-2)
        dataset = ag.data.ArrayDataset(*ag.data.spirals(30))
        self.loader = ag.data.DataLoader(dataset, batch_size=8, shuffle=True, seed=1)
        g = ag.Graph()
        x, t = g.input("x", ("batch", 2)), g.input("t", ("batch",), "int64")
        self.loss = ag.ops.cross_entropy(self.net(x), t)

    @property
    def parts(self):
        return {"model": self.net, "solver": self.solver, "loader": self.loader}

    def run(self, steps):
        """Take steps, in as many epochs as it takes."""
        with ag.TapeMachine([self.loss]) as machine:
            while steps:
                for x, t in self.loader:
                    run = machine.run_sync({"x": x, "t": t}, backward=True)
                    self.solver.step([run[one] for one in self.net.parameters()])
                    steps -= 1
                    if not steps:
                        break

    def bits(self):
        state = {**self.net.state_dict(), **flat(self.solver.state_dict()["states"])}
        return {name: np.asarray(one).tobytes() for name, one in state.items()}


def flat(states):
    return {f"{name}/{key}": one for name, state in states.items() for key, one in state.items()}


def resummed(place):
    """Write the sums anew, as who forges a checkpoint does."""
    lines = (place / "SHA256SUMS").read_text().splitlines()
    names = [line.split("  ")[1] for line in lines]
    text = "".join(f"{sha256((place / n).read_bytes()).hexdigest()}  {n}\n" for n in names)
    (place / "SHA256SUMS").write_text(text)


def contents(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


def restore(place, files, *names):
    for name in names:
        (place / name).write_bytes(files[name])


# -- what comes back --------------------------------------------------------------------------


def test_a_training_that_was_stopped_in_mid_epoch_ends_with_the_same_bits(tmp_path):
    whole, stopped, resumed = Training(), Training(), Training()
    whole.run(11)
    stopped.run(6)
    ag.io.save(tmp_path, **stopped.parts, step=6)
    assert ag.io.load(tmp_path, **resumed.parts) == {"step": 6}
    ag.io.save(tmp_path, **resumed.parts, step=6)  # before the first step, too
    resumed = Training()
    ag.io.load(tmp_path, **resumed.parts)
    resumed.run(5)
    assert resumed.bits() == whole.bits()


def test_extras_come_back_as_they_were(tmp_path):
    extras = {
        "text": "ä\ud800\n", "none": None, "flag": True, "big": 1 << 200,
        "lr": 0.1, "bad": float("inf"), "tree": {"a": [1, (2.5, np.float32(3))], "": {}},
        "epoch": np.int64(4),
        "rng": np.random.default_rng(0).bit_generator.state,
    }  # fmt: skip
    ag.io.save(tmp_path, **extras)
    found = ag.io.load(tmp_path)
    assert found == extras
    assert type(found["tree"]["a"][1][1]) is np.float32


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.broadcast_to(np.float32(2), (3, 2)),
        np.arange(6)[::-2],
        np.array(1.5 + 2j),
        np.full((2, 3), 1 - 1j, "complex64"),
        np.zeros((0, 4), "float16"),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
        np.uint64([1 << 63]),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_arrays_of_any_layout_come_back_bit_by_bit(tmp_path, array):
    ag.io.save(tmp_path, array=array, other=np.int8([1]))
    found = ag.io.load(tmp_path)["array"]
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array)
    assert found.flags.writeable
    assert found.flags.aligned


def test_bfloat16_comes_back(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ag.io.save(tmp_path, array=np.arange(4).astype(ml_dtypes.bfloat16))
    assert ag.io.load(tmp_path)["array"].dtype.name == "bfloat16"


def test_arrays_whose_paths_read_alike_stay_apart(tmp_path):
    extras = {"a": {"b.c": np.ones(1), "b": {"c": np.zeros(1)}}, "x": {"y": np.int8([2])}}
    ag.io.save(tmp_path, **extras)
    assert repr(ag.io.load(tmp_path)) == repr(extras)


@pytest.mark.parametrize(
    ("extra", "match"),
    [
        (object(), "extras.extra is <object .* which cannot be saved in a checkpoint"),
        ({1: 2}, "extras.extra has the key 1; keys in a checkpoint have to be strings"),
        ({"$array": "x"}, "has the key '\\$array'"),
        (
            np.array([None]),
            "'extras.extra' is an array of object, which the format does not support",
        ),
        (np.array(["text"]), "is an array of <U4, which the format does not support"),
    ],
)
def test_what_no_file_can_hold_is_refused_before_anything_is_written(tmp_path, extra, match):
    with pytest.raises(ag.GraphTypeError, match=match):
        ag.io.save(tmp_path / "run", extra=extra)
    assert not (tmp_path / "run").exists()


# -- versions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "names"), [(1, [4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])])
def test_as_many_checkpoints_stay_as_asked_for(tmp_path, keep, names):
    for step in range(1, 5):
        place = ag.io.save(tmp_path, step=step, keep=keep)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        f"checkpoint-{number:08d}" for number in names
    ]
    assert ag.io.load(tmp_path) == ag.io.load(place) == {"step": 4}
    assert ag.io.load(tmp_path / f"checkpoint-{names[0]:08d}") == {"step": names[0]}


@pytest.mark.parametrize("failing", ["fsync", "rename"])
@pytest.mark.parametrize("at", range(1, 4))
def test_a_save_that_fails_leaves_the_checkpoints_before(tmp_path, monkeypatch, failing, at):
    ag.io.save(tmp_path, step=1, array=np.ones(2))
    calls = []

    def strike(*args):
        calls.append(args)
        if failing == "rename" or len(calls) == at:
            raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(*((Path, "rename", strike) if failing == "rename" else (os, "fsync", strike)))
        with pytest.raises(OSError, match="no space"):
            ag.io.save(tmp_path, step=2, array=np.ones(2))
    assert ag.io.load(tmp_path)["step"] == 1
    assert len([*tmp_path.iterdir()]) == 1


KILLED = """
import os, sys, numpy, actorgraph as ag
ag.io.save(sys.argv[1], step=1)
force, calls = os.fsync, []
def kill(number):
    calls.append(number)
    force(number)
    if len(calls) == int(sys.argv[2]):
        os._exit(9)
os.fsync = kill
ag.io.save(sys.argv[1], step=2, array=numpy.ones(2))
"""


@pytest.mark.parametrize(("call", "step"), [(2, 1), (5, 2)])
def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_checkpoint(tmp_path, call, step):
    ended = subprocess.run([sys.executable, "-c", KILLED, tmp_path, str(call)], timeout=50)
    assert ended.returncode == 9
    assert ag.io.load(tmp_path)["step"] == step
    ag.io.save(tmp_path, step=3)
    assert [path.name for path in tmp_path.iterdir()] == [f"checkpoint-0000000{step + 1}"]


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_schedules_and_generators_go_on(tmp_path, kind):
    rate, rng = ag.solvers.schedules.plateau(0.5, patience=0), kind(3)
    rate.tell(1.0)
    rng.random(3)
    ag.io.save(tmp_path, schedule=rate, rng=rng)
    again, other = ag.solvers.schedules.plateau(0.5, patience=0), kind(4)
    ag.io.load(tmp_path, schedule=again, rng=other)
    assert vars(again) == vars(rate)
    assert other.random(5).tolist() == rng.random(5).tolist()
    with pytest.raises(ag.GraphError, match="does not fit"):
        ag.io.load(tmp_path, schedule=again, rng=np.random.Generator(np.random.SFC64(1)))
    assert vars(again) == vars(rate)
    ag.io.save(tmp_path, schedule=ag.solvers.schedules.cosine(0.1, 5))
    with pytest.raises(ag.GraphError, match="3 has no state"):
        ag.io.save(tmp_path, rng=3)


def test_a_directory_without_a_checkpoint_says_so(tmp_path):
    with pytest.raises(ag.GraphError, match="there is no checkpoint in"):
        ag.io.load(tmp_path / "nowhere")


def test_a_file_is_no_directory_for_checkpoints(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ag.GraphError, match="is a file; give a directory"):
        ag.io.save(tmp_path / "file", step=1)


def test_a_checkpoint_of_another_format_says_who_wrote_it(tmp_path):
    place = ag.io.save(tmp_path, step=1)
    tree = json.loads((place / "checkpoint.json").read_text())
    (place / "checkpoint.json").write_text(json.dumps({**tree, "format": 2, "actorgraph": "9.9"}))
    resummed(place)
    with pytest.raises(ag.GraphError, match="its format is 2, expected 1.*actorgraph '9.9'"):
        ag.io.load(tmp_path)


# -- all or nothing ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    training = Training()
    training.run(3)
    return training


def unchanged(training, before):
    return (training.bits(), training.loader.state_dict()) == before


def snapshot(training):
    return training.bits(), training.loader.state_dict()


def test_parts_that_were_not_saved_are_named(tmp_path, trained):
    ag.io.save(tmp_path, loader=trained.loader)
    with pytest.raises(ag.GraphError, match="has no model and no solver; it has loader"):
        ag.io.load(tmp_path, **trained.parts)


@pytest.mark.parametrize("odd", ["model", "solver", "loader"])
def test_a_checkpoint_of_which_one_part_does_not_fit_changes_none(tmp_path, trained, odd):
    other = {
        "model": ag.nn.Linear(2, 3), "solver": ag.solvers.SGD(0.1),
        "loader": ag.data.DataLoader([1, 2]),
    }  # fmt: skip
    later = Training()
    later.run(2)
    before = snapshot(later)
    ag.io.save(tmp_path, **{**trained.parts, odd: other[odd]})
    with pytest.raises(ag.GraphError, match="does not fit"):
        ag.io.load(tmp_path, **later.parts)
    assert unchanged(later, before)


@pytest.mark.soak
def test_every_byte_that_is_changed_is_noticed(tmp_path, trained):
    place = ag.io.save(tmp_path, **trained.parts, step=3)
    files, before, random = contents(place), snapshot(trained), Random(0)
    assert len(files) == 4
    for number in range(MUTATIONS):
        name = sorted(files)[number % 4]
        (place / name).write_bytes(mutated(files[name], random))
        with pytest.raises(ag.GraphError, match="is damaged"):
            ag.io.load(tmp_path, **trained.parts)
        restore(place, files, name)
    assert unchanged(trained, before)
    ag.io.load(tmp_path, **trained.parts)


@pytest.mark.parametrize("name", ["checkpoint.json", "model.safetensors", "SHA256SUMS"])
def test_a_file_that_is_missing_is_noticed(tmp_path, trained, name):
    place = ag.io.save(tmp_path, **trained.parts)
    (place / name).unlink()
    with pytest.raises(ag.GraphError, match="is damaged"):
        ag.io.load(place, **trained.parts)


def mutated(data, random):
    """Return other bytes: some changed, cut off, taken out or put in, most of them at the start."""
    while True:
        place = random.randrange(random.choice([9, len(data), len(data)]))
        kind = random.randrange(5)
        if kind == 0:
            found = data[:place]
        elif kind == 1:
            found = data[:place] + random.randbytes(random.randrange(1, 9)) + data[place:]
        elif kind == 2:
            found = data[:place] + data[place + random.randrange(1, 30) :]
        elif kind == 3:
            digits = bytes(random.choice(b"0123456789") for _ in range(random.randrange(1, 20)))
            found = data[:place] + digits + data[place + len(digits) :]
        else:
            found = data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]
        if found != data:
            return found


@pytest.mark.soak
def test_a_forged_checkpoint_is_taken_whole_or_raises_a_graph_error(tmp_path, trained):
    place = ag.io.save(tmp_path, **trained.parts, step=3, mean=np.ones(3))
    files, random, refused = contents(place), Random(1), 0
    names = sorted(files.keys() - {"SHA256SUMS"})
    before = snapshot(trained)
    for number in range(MUTATIONS):
        name = names[number % 3]
        (place / name).write_bytes(mutated(files[name], random))
        resummed(place)
        try:
            ag.io.load(tmp_path, **trained.parts)
        except ag.GraphError:
            refused += 1
            assert unchanged(trained, before)
        else:
            restore(place, files, name, "SHA256SUMS")
            ag.io.load(tmp_path, **trained.parts)
        restore(place, files, name)
    assert refused > MUTATIONS // 3


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format": ' + "1" * 5000 + "}",
        "null",
        '{"format": 1, "model": true, "states": [], "extras": {}}',
        '{"format": 1, "model": false, "states": {}, "extras": {"x": {"$array": "none"}}}',
        '{"format": 1, "model": false, "states": {}, "extras": {"x": {"$tuple": 3}}}',
        '{"format": 1, "model": false, "states": {}, "extras": 5}',
    ],
    ids=range(7),
)
def test_a_tree_that_is_none_raises(tmp_path, text):
    place = ag.io.save(tmp_path, step=1)
    (place / "checkpoint.json").write_text(text)
    resummed(place)
    with pytest.raises(ag.GraphError, match="is damaged"):
        ag.io.load(tmp_path)


def test_a_forged_weight_that_is_empty_does_not_size_a_lazy_layer(tmp_path):
    place = ag.io.save(tmp_path, model=ag.nn.Linear(2, 3))
    forged = {"weight": np.zeros((0, 1 << 28), "float32"), "bias": np.zeros(3, "float32")}
    ag.io.write_arrays(place / "model.safetensors", forged)
    resummed(place)
    net = ag.nn.Linear(None, 3)
    with pytest.raises(ag.GraphError, match="does not fit"):
        ag.io.load(tmp_path, model=net)
    assert net.state_dict() == {}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    place = ag.io.save(tmp_path, step=1)
    (place / "checkpoint.json").unlink()
    os.mkfifo(place / "checkpoint.json")
    with pytest.raises(ag.GraphError, match="is damaged"):
        ag.io.load(tmp_path)
