"""What modules have, how they are called, and what wrong calls say."""

import copy
import gc
import pickle
from functools import partial
from weakref import ref

import numpy as np
import pytest

import actorgraph as ag

nn = ag.nn


class Net(nn.Module):
    def __init__(self, hidden=3):
        self.scales = [nn.Parameter(np.ones(4, "float32")), nn.Parameter(np.ones(4, "float32"))]
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.heads = {"a": nn.Linear(hidden, 2), "b": nn.Linear(hidden, 2, bias=False)}
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = x * self.scales[0] + self.scales[1]
        y = self.drop(self.body(x))
        return self.heads["a"](y), self.heads["b"](y)


NAMES = [
    "scales.0", "scales.1", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias",
    "body.1.running_mean", "body.1.running_var", "body.1.num_batches_tracked", "heads.a.weight",
    "heads.a.bias", "heads.b.weight",
]  # fmt: skip
XS = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")


def test_what_is_an_attribute_or_in_a_container_belongs_to_the_module():
    net = Net()
    assert [*net.state_dict()] == NAMES
    assert [name for name, _ in net.named_buffers()] == NAMES[6:9]
    assert len(net.parameters()) == 9
    assert [name for name, _ in net.named_modules()] == [
        "", "body", "body.0", "body.1", "body.2", "heads.a", "heads.b", "drop",
    ]  # fmt: skip
    assert [*net.children()] == [net.body, *net.heads.values(), net.drop]
    seen = []
    assert net.apply(seen.append) is net
    assert seen == [*reversed([*net.modules()])]


def test_a_call_on_nodes_binds_parameters_and_names_nodes_by_layer():
    net, graph = Net(), ag.Graph()
    a, b = net(graph.input("x", ("batch", 4)))
    assert (a.shape, b.shape) == (("batch", 2), ("batch", 2))
    assert [node.name for node in graph.parameters] == [name for name, _ in net.named_parameters()]
    assert graph["body.0.weight"].held is net.body[0].weight
    assert b.name.startswith("heads.b.matmul_")
    assert graph.scope_of(b) == "heads.b"
    with ag.ActorMachine([a, b]) as machine:
        run = machine.run_sync({"x": XS}, backward={a: np.ones((6, 2), "float32")})
        assert run[net.heads["a"].bias].grad.tolist() == [6, 6]


def test_two_modules_in_one_graph_have_names_of_their_own():
    graph = ag.Graph()
    x = graph.input("x", ("batch", 4))
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two(one(one(x)))
    assert [node.name for node in graph.parameters] == [
        "weight", "bias", "linear.weight", "linear.bias",
    ]  # fmt: skip


def test_a_call_on_arrays_keeps_its_machine_for_other_numbers_of_rows():
    built = []

    class Counted(nn.Linear):
        def forward(self, x):
            built.append(x.shape)
            return super().forward(x)

    net = Counted(4, 2)
    for rows in (6, 3, 1):
        np.testing.assert_allclose(
            net(XS[:rows]), XS[:rows] @ net.weight.array.T + net.bias.array, rtol=1e-5
        )
    assert len(built) == 1
    net.to("float64")(XS.astype("float64"))
    net(np.stack([XS, XS]).astype("float64"))
    assert len(built) == 3
    net.weight.value[...] = 0
    np.testing.assert_array_equal(net(XS.astype("float64")), [net.bias.array] * 6)


def test_a_further_call_on_arrays_goes_through_the_parts_without_their_names(monkeypatch):
    net = Net()
    net.again = net.body  # twice is once
    net.eval()(XS)
    modules, held = net._all_own()
    assert sorted(map(id, modules)) == sorted(map(id, net.modules()))
    assert sorted(map(id, held)) == sorted(map(id, [*net.parameters(), *net.buffers()]))
    expected = net(XS)
    monkeypatch.setattr(nn.Module, "named_modules", None)
    for found, one in zip(net(XS), expected, strict=True):
        np.testing.assert_array_equal(found, one)


def test_parts_that_are_exchanged_inside_of_others_are_seen_by_the_next_call():
    net = Net().eval()
    net(XS)
    net.heads["a"] = nn.Linear(3, 2)
    net.body[1].weight = nn.Parameter(np.full(3, 2.0, "float32"))
    net.scales[1] = nn.Parameter(np.zeros(4, "float32"))
    outputs = net(ag.Graph().input("x", ("batch", 4)))
    with ag.TapeMachine(outputs) as machine:
        run = machine.run_sync({"x": XS})
        for found, node in zip(net(XS), outputs, strict=True):
            np.testing.assert_array_equal(found, run[node].value)


def test_layers_that_must_know_the_number_of_rows_are_built_for_it():
    net = nn.RNN(4, 2)  # over time, its first axis
    for steps in (3, 5):
        output, last = net(np.zeros((steps, 2, 4), "float32"))
        assert (output.shape, last.shape) == ((steps, 2, 2), (1, 2, 2))


def test_training_is_part_of_what_is_built():
    net = Net()
    before = net.state_dict()["body.1.running_mean"]
    first, second = net(XS)[0], net(XS)[0]
    assert not np.array_equal(first, second)  # dropout
    assert net.body[1].num_batches_tracked.value == 2
    assert not np.array_equal(net.state_dict()["body.1.running_mean"], before)
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    np.testing.assert_array_equal(net(XS)[0], net(XS)[0])
    assert net.body[1].num_batches_tracked.value == 2
    assert net.train().drop.training


def test_sizes_that_are_left_out_are_those_of_the_first_input():
    lazy, other = [
        nn.Sequential(nn.Conv2d(None, 4, 2, groups=2), nn.BatchNorm2d(None), nn.Flatten(),
                      nn.Linear(None, 5))
        for _ in range(2)
    ]  # fmt: skip
    assert lazy.state_dict() == {}
    assert lazy(np.zeros((2, 4, 5, 5), "float32")).shape == (2, 5)
    assert lazy[0].in_channels == 4
    assert lazy[3].weight.shape == (5, 64)
    other.load_state_dict(lazy.state_dict())
    np.testing.assert_array_equal(other[3].weight.array, lazy[3].weight.array)
    with pytest.raises(ag.ShapeError, match=r"0 \(Linear.*in_features is taken from axis -1"):
        nn.Sequential(nn.Linear(None, 2))(ag.Graph().input("x", ("batch", "features")))


def test_a_shared_weight_is_one_value_with_one_gradient():
    class Tied(nn.Module):
        def __init__(self):
            self.table, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.out.weight = self.table.weight

        def forward(self, index):
            return self.out(self.table(index))

    net, graph = Tied(), ag.Graph()
    assert [*net.state_dict()] == ["table.weight"]
    loss = net(graph.input("i", ("n",), "int64")).sum()
    assert len(graph.parameters) == 1
    run = ag.TapeMachine(loss).run_sync({"i": np.array([1, 2])}, backward=True)
    w = net.table.weight.array
    expected = np.tile(w[1] + w[2], (5, 1))
    expected[[1, 2]] += w.sum(0)
    np.testing.assert_allclose(run[net.out.weight].grad, expected, rtol=1e-5)
    assert copy.deepcopy(net).out.weight is not net.out.weight
    twin = copy.deepcopy(net)
    assert twin.out.weight is twin.table.weight


def test_modules_are_copied_and_pickled_with_their_values_only():
    net = Net()
    net(XS)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        for name, value in twin.state_dict().items():
            np.testing.assert_array_equal(value, net.state_dict()[name])
        np.testing.assert_array_equal(twin.eval()(XS)[1], net.eval()(XS)[1])
        twin.scales[0].value[...] = 7
        assert net.scales[0].value[0] == 1
        net.train()


def test_a_state_is_taken_as_a_whole_or_not_at_all():
    net, other = Net(), Net()
    other.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(other.eval()(XS)[0], net.eval()(XS)[0])
    state = net.state_dict()
    state["body.0.weight"] = np.zeros((2, 2), "float32")
    state["extra"] = state.pop("scales.1")
    state["scales.0"] = np.zeros(4, "complex64")
    before = other.state_dict()
    with pytest.raises(ag.GraphError) as told:
        other.load_state_dict(state)
    assert str(told.value) == (
        "the state does not fit Net: missing are scales.1; unexpected are extra; "
        "scales.0 is complex64[4], expected float32[4]; "
        "body.0.weight is float32[2, 2], expected float32[3, 4]"
    )
    assert all(np.array_equal(value, before[name]) for name, value in other.state_dict().items())
    with pytest.raises(ag.GraphError, match="fit Linear: bias is"):
        nn.Linear(2, 2).load_state_dict({"bias": np.zeros(3)}, strict=False)
    with pytest.raises(ag.GraphError, match="a state is a mapping of name to array, got 3"):
        net.load_state_dict(3)


def test_hooks_see_and_change_what_goes_in_and_out():
    net, seen = nn.Linear(4, 2), []
    remove = net.register_forward_hook(lambda module, args, result: seen.append(result.shape))
    double = net.register_forward_pre_hook(lambda module, args: args[0] * 2)
    x = ag.Graph().input("x", ("n", 4))
    first = net(x)
    remove()
    double()
    assert seen == [("n", 2)]
    assert net(x) is not first
    assert len(seen) == 1


def test_a_module_says_what_it_is_made_of():
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.LeakyReLU(0.2), nn.Dropout(0.1))
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Conv2d(in_channels=1, out_channels=2, kernel_size=(3, 3), padding=1)\n"
        "  (1): LeakyReLU(negative_slope=0.2)\n"
        "  (2): Dropout(p=0.1)\n"
        ")"
    )
    rows = Net().summary((6, 4)).rows
    assert [row.layer for row in rows[:2]] == ["body", "body.0"]
    assert (rows[-1].layer, rows[-1].shape) == ("total", "(6, 2), (6, 2)")
    assert rows[-1].parameters == sum(p.array.size for p in Net().parameters())
    assert rows[1].flops == 2 * 6 * 4 * 3 + 6 * 3


def test_containers_are_indexed_and_extended():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    net.append(nn.Linear(3, 1))
    assert isinstance(net[-1], nn.Linear)
    assert len(net[:2]) == 2
    assert [*net.state_dict()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    layers = nn.ModuleList([nn.Linear(2, 2)])
    layers.append(nn.ReLU())
    assert len(layers[1:]) == 1
    named = nn.ModuleDict({"up": nn.Linear(2, 2)})
    assert "up" in named
    assert [*named.state_dict()] == ["up.weight", "up.bias"]
    double = nn.Lambda(lambda x: x * 2)
    assert double(np.ones(2, "float32")).tolist() == [2, 2]
    with pytest.raises(ag.GraphTypeError, match="expected a module, got 3; Lambda makes one"):
        nn.ModuleList([3])


def test_a_wrong_call_says_which_layer_what_it_expected_and_what_it_got():
    net = Net()
    wide = nn.ModuleDict({"body": net.body})
    wide.forward = net.body
    with pytest.raises(ag.ShapeError, match=r"body\.0 \(Linear\(in_features=4.*5 and 4"):
        wide(np.zeros((2, 5), "float32"))
    with pytest.raises(ag.ShapeError, match=r"module \(BatchNorm2d.*rank 4, got <x: float32\[n, 4"):
        nn.BatchNorm2d(4)(ag.Graph().input("x", ("n", 4)))
    with pytest.raises(ag.GraphTypeError, match="Linear is called on nodes or arrays, got 3"):
        nn.Linear(2, 2)(3)
    with pytest.raises(ag.GraphTypeError, match="parameters of float32 .* array of float64"):
        nn.Linear(2, 2)(np.zeros((1, 2)))
    with pytest.raises(NotImplementedError, match=r"Module has no forward"):
        nn.Module()(XS)
    with pytest.raises(AttributeError, match="Net has no 'bodi'; did you mean 'body'"):
        _ = net.bodi
    with pytest.raises(ag.GraphTypeError, match=r"weight is a parameter; set its value"):
        net.heads["a"].weight = np.zeros((2, 3))
    with pytest.raises(TypeError, match=r"LeakyReLU\(\) has no slope=: it takes negative_slope"):
        nn.LeakyReLU(slope=2)
    with pytest.raises(ag.GraphTypeError, match="groups=3 has to divide 4 and 6 channels"):
        nn.Conv2d(4, 6, 1, groups=3)
    with pytest.raises(ag.GraphTypeError, match="in_features is an int or None, got 2.5"):
        nn.Linear(2.5, 2)


class Watched(nn.Module):
    """What it builds refers to it."""

    def __init__(self):
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return ag.hook_gradient(self.fc(x), lambda ct: ct * float(self.training))


@pytest.mark.parametrize("kind", [partial(nn.Linear, 4, 2), Watched])
def test_a_module_that_is_gone_takes_its_machines_along(kind):
    net = kind()
    net(XS)
    (machine, _), *_ = vars(net)["_machines"].values()
    gone = [ref(net), ref(machine)]
    del net, machine
    gc.collect()
    assert [one() for one in gone] == [None, None]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))]
)
def test_a_copy_of_a_module_that_has_run_makes_machines_of_its_own(copied):
    net = nn.Linear(4, 2)
    expected = net(XS)
    other = copied(net)
    assert "_machines" in vars(net)
    assert "_machines" not in vars(other)
    np.testing.assert_array_equal(other(XS), expected)


def test_seeds_decide_about_first_values():
    def made(seed):
        nn.manual_seed(seed)
        return [nn.Linear(3, 3).weight.array for _ in range(2)]

    one, again, other = made(1), made(1), made(2)
    np.testing.assert_array_equal(one, again)
    assert len({array.tobytes() for array in (*one, *other)}) == 4


def test_lengths_hide_what_follows_the_end_of_a_sequence():
    net = nn.LSTM(4, 3, bidirectional=True, peephole=True)
    xs = np.random.default_rng(1).normal(size=(5, 2, 4)).astype("float32")
    x = ag.Graph().input("x", (5, 2, 4))
    output, (last, _) = net(x, lengths=np.array([5, 3]))
    whole, _ = net(x)
    with ag.TapeMachine([output, last, whole]) as machine:
        run = machine.run_sync({"x": xs})
        short = net(xs[:3])[0]
        np.testing.assert_allclose(run[output].value[:3, 1], short[:, 1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(run[output].value[:, 0], run[whole].value[:, 0], rtol=1e-4)
        assert not run[output].value[3:, 1].any()
        np.testing.assert_allclose(run[last].value[0, 1], short[2, 1, :3], rtol=1e-4, atol=1e-6)


def test_recurrent_networks_take_sequences_of_symbolic_length():
    """One graph serves all lengths, and building it takes no longer for long ones."""
    net = nn.LSTM(4, 3, num_layers=2, bidirectional=True)
    x = ag.Graph().input("x", ("time", "batch", 4))
    output, _ = net(x)
    assert output.shape == ("time", "batch", 6)
    fixed = ag.Graph()
    known = net(fixed.input("x", (200, 2, 4)))[0]
    assert len(fixed) < 200
    feed = {"x": np.random.default_rng(0).normal(size=(200, 2, 4)).astype("float32")}
    one, other = (
        ag.TapeMachine([node], wrt=[]).run_sync(feed)[node].value for node in (output, known)
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layers", [0, -1, 1.5])
def test_a_recurrent_network_has_a_layer_at_least(layers):
    with pytest.raises((TypeError, ValueError), match="num_layers"):
        nn.LSTM(4, 3, num_layers=layers)


def test_a_tied_weight_is_loaded_by_any_of_its_names_and_saved_by_one():
    class Tied(ag.nn.Module):
        def __init__(self):
            self.one, self.two = ag.nn.Linear(3, 3, bias=False), ag.nn.Linear(3, 3, bias=False)
            self.two.weight = self.one.weight

    net = Tied()
    assert [*net.state_dict()] == ["one.weight"]
    for names in (["one.weight"], ["two.weight"], ["one.weight", "two.weight"]):
        value = np.full((3, 3), float(len(names[0] + names[-1])), "float32")
        net.load_state_dict(dict.fromkeys(names, value))
        np.testing.assert_array_equal(net.one.weight.value, value)
