"""A small training that takes milliseconds."""

import numpy as np

import actorgraph as ag


def arrays(count=48, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype("int64") + (x[:, 2] > 1)


def network(*more):
    ag.nn.manual_seed(0)
    return ag.nn.Sequential(
        ag.nn.Linear(4, 8), ag.nn.BatchNorm1d(8), ag.nn.Tanh(), ag.nn.Dropout(0.1), *more,
        ag.nn.Linear(8, 3),
    )  # fmt: skip


def loader_of(batch_size=10, **options):
    dataset = ag.data.ArrayDataset(*arrays())
    return ag.data.DataLoader(dataset, batch_size, shuffle=True, **options)


def trainer_of(net=None, solver=None, **options):
    net = network() if net is None else net
    solver = ag.solvers.Adam(lr=0.01) if solver is None else solver
    return ag.train.Trainer(net, ag.ops.cross_entropy, solver, **{"callbacks": [], **options})


def state_of(trainer):
    return {name: one.tobytes() for name, one in trainer.model.state_dict().items()}
