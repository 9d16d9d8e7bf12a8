"""What a newcomer gets wrong, and what the library says.

A good message answers four questions: what was got, what was expected, where, and what to do.
Where is answered by the traceback for what is built, because errors are raised in the user's own
line; by the line that built the node for what fails in a run.
"""

import asyncio
import copy
import pickle
import traceback
from functools import cache

import numpy as np

import actorgraph as ag
from tests._each import each

ROWS = """
x + np.ones(3) | float64 | float32 | array.astype('float32')
x @ np.ones((4, 2), 'float32') | float32[4, 2] | 3 and 4 | do not fit
x + g.input('u', ('batch', 4), 'float32') | (batch, 4) | (batch, 3) | do not fit
i / 2 | int64 | float or complex | convert with .astype
i.mean() | int64 | float or complex | convert with .astype
i * x | int64 | float32 | i.astype('float32')
g.input('x', (3,)) | 'x' is taken | taken by <x | use another one
g.input('', (3,)) | got '' | needs a name | needs a name
g.input('v', (3.5,)) | got 3.5 | non-negative int | a symbol such as 'batch'
g.input('v', (-1,)) | got -1 | non-negative int | or None
g.input('v', (3,), 'float33') | 'float33' | expected one of bool | did you mean 'float32'
g.input('v', (3,), object) | object | use one of bool | use one of bool
g.parameter('p', [['a', 'b']]) | <U1 | float64 | use one of bool
g.parameter('p', x) | got the node <x | needs an array | parameter 'p'
x.reshape(-1, -1) | (-1, -1) | only one dim | may be -1
x.transpose(0, 0) | (0, 0) | each axis | once
x.sum(axis=2) | axis 2 | an int in [-2, 2) | in [-2, 2)
x.sum(axis='rows') | 'rows' | an int in [-2, 2) | in [-2, 2)
x[0, 0, 0] | 3 indices | <x: float32[batch, 3]> | too many
x[:, 3] | index 3 | dim 3 | out of range
x['a'] | 'a' | an int, a slice | None or an array
ag.ops.concatenate([x, W]) | <W: float32[3, 5]> | 3 and 5 | do not fit
ag.ops.concatenate([]) | got 0 | at least one node | at least one
ag.ops.softmax(x, axis=5) | axis 5 | an int in | in [-2, 2)
ag.ops.cross_entropy(x, t, reduction='avg') | got 'avg' | 'mean' | is one of
ag.ops.conv2d(x, W) | (3, 5) | rank 4 | has to have
ag.ops.one_hot(x, 3) | float32 | an integer | convert with .astype
ag.ops.dropout(x, 1.5) | got 1.5 | a probability | p is
ag.ops.einsum('ij,jk->ik', x) | got 1 | 2 operands | names 2
ag.ops.matmul(x, 3) | a scalar | matrix product | multiply with *
ag.ops.embedding(x, W) | float32 | an integer | convert with .astype
ag.ops.layer_norm(x, 7) | (7,) | 7 and 3 | do not fit
ag.ops.pad(x, 1.5) | got 1.5 | widths are ints | ints
ag.ops.tanh(3.0) | got float | at least one node | use NumPy itself
ag.ops.tanh(np.ones(3)) | got ndarray | at least one node | graph.constant
bool(x) | <x: float32[batch, 3]> | known only in a run | ag.ops.where
if_positive(x) | bool[] | known only in a run | ag.ops.where
len(x) | <x | not defined | node.shape[0]
[row for row in x] | <x | cannot be iterated | node[0]
float(x) | <x | no value outside a run | run[node].value
np.asarray(x) | <x | no value outside a run | ag.ops.array
np.roots(x) | <x | cannot be iterated | docs/numpy.md
np.polyfit(x, x, 2) | np.polyfit | has no op | ag.ops.define
ag.ops.sum(x, dim=1) | dim= | sum() has no | axis=
ag.ops.mean(x, axis=1, keepdim=True) | keepdim= | mean() has no | keepdims=
x.max(dim=0) | dim= | max() has no | axis=
ag.ops.relu(x, inplace=True) | inplace= | relu() has no | immutable
ag.ops.softmax(input=x, axis=1) | input= | softmax() has no | x=
x.value | 'value' | a node has no | run[node].value
x.size() | 3*batch | is a number | node.shape
W.size() | 15 | is a number | node.shape
ag.ops.batch_norm(x, W, W) | <W | it takes x, scale= | bias=
ag.ops.batch_norm(x, weight=W) | weight= | batch_norm() has no | scale= here
x.softmax() | 'softmax' | a node has no | ag.ops.softmax
x.grad | 'grad' | a node has no | run[node].grad
x.item() | 'item' | a node has no | float(run[node].value)
x.backward() | 'backward' | a node has no | backward=True
x.detach() | 'detach' | a node has no | ag.stop_gradient
x.cuda() | 'cuda' | a node has no | device=
x.unsqueeze(0) | 'unsqueeze' | a node has no | ag.ops.expand_dims
x.permute(1, 0) | 'permute' | a node has no | transpose
x.numpy() | 'numpy' | a node has no | run[node].value
x.requires_grad | 'requires_grad' | a node has no | wrt=
put(x) | <x | immutable | ag.ops.index_put
g['nosuch'] | 'nosuch' | has no node | print(graph)
g['Wa'] | 'Wa' | has no node | did you mean 'W'
other + x | <x | another graph | build both in one graph
ag.Graph(seed=-1) | got -1 | [0, 2**64) | is an int in
ag.Graph(convert='float') | got 'float' | 'safe', 'same_kind' | one of
ag.gradients(x, [W]) | <x: float32[batch, 3]> | no scalar | node.sum()
ag.gradients(loss, [i]) | int64 | only float and complex | .astype('float32')
ag.gradients(loss, ['W']) | 'W' | expected a node | graph[name]
W.named('V') | <W | has a name already | named once
setattr(W, 'value', np.ones((3, 4), 'float32')) | got (3, 4) | (3, 5) | parameter 'W'
setattr(W, 'value', np.ones((3, 5))) | got float64 | float32 | .astype('float32')
setattr(x, 'value', np.ones(3)) | 'value' | immutable | cannot set
g.assign(x, x, loss) | got <x | only buffers | buffers
ag.TapeMachine(g) | <Graph 'net' | takes outputs | such as [loss]
ag.TapeMachine([]) | got [] | at least one output | output node
ag.TapeMachine(['loss']) | 'loss' | expected a node | graph[name]
ag.TapeMachine([loss], wrt=[i]) | int64 | only float and complex | .astype('float32')
ag.ActorMachine([loss], workers=0) | got 0 | at least 1 | workers must be
ag.ActorMachine([loss], workers=2.5) | got 2.5 | an int | workers must be
ag.ActorMachine([loss], fuse='some') | got 'some' | 'none', 'auto', 'all' | one of
ag.ActorMachine([loss], max_in_flight=0) | got 0 | at least 1 | max_in_flight must be
ag.ActorMachine([loss], device='gpu') | 'gpu' | unknown device | use 'cpu'
ag.ActorMachine([loss], device='cuda') | 'cuda' | has no number | write 'cuda:0'
ag.ActorMachine([loss], max_bytes=10).run_sync(feeds) | max_bytes is 10 | needs | smaller arrays
m.run_sync({'x': feeds['x']}) | got 'x' | int64[batch] | missing feed 't'
m.run_sync({**feeds, 'z': 1}) | 'z' | known are | 'x', 't'
m.run_sync({**feeds, 'x': np.ones((2, 3))}) | got float64[2, 3] | float32[batch | .astype('float32')
m.run_sync({**feeds, 'x': np.ones((2, 4), 'float32')}) | got float32[2, 4] | float32[batch | not 3
m.run_sync({**feeds, 'x': np.ones(3, 'float32')}) | got float32[3] | float32[batch | rank 1, not 2
m.run_sync({**feeds, 'x': [[1, 2], [3]]}) | inhomogeneous | array | feed 'x'
m.run_sync({**feeds, 't': np.zeros(5, 'int64')}) | batch = 5 | batch = 2 | feed 't'
m.run_sync({**feeds, 'x': None}) | got NoneType | float32[batch, 3] | feed 'x'
m.run_sync([feeds['x']]) | got list | a dict | name or node to array
m.run_sync({**feeds, x: feeds['x']}) | given twice | by name and by node | feed 'x'
m.run_sync({**feeds, W: W.value}) | <W | no feed | node.value = array
m.run_sync(feeds, backward='yes') | got 'yes' | True or a dict | output to seed
logits_only.run_sync(feeds, backward=True) | batch, 5 | must be a scalar | seed it with
m.run_sync(feeds, backward={loss: np.ones(3, 'float32')}) | got float32[3] | float32[] | seed
m.run_sync(feeds, tangents={'t': np.ones(2)}) | int64 | only float and complex | convert with
m.run_sync(feeds, tangents={'x': 1.0}, backward=True) | backward | second derivative | ag.hvp
m.run_sync(feeds, timeout_s=-1) | got -1 | at least 0 | timeout_s is
m.run_sync(feeds, timeout_s='1') | got '1' | a number of seconds | timeout_s is
m.run_sync(feeds, timeout=1) | timeout= | run_sync() has no | timeout_s= here
m.start(feeds, deadline=1) | deadline= | start() has no | timeout_s= here
list(m.stream([feeds], timeout=1)) | timeout= | start() has no | timeout_s= here
ag.ActorMachine([loss], worker=2) | worker= | ActorMachine() has no | did you mean 'workers'
ag.ActorMachine([loss], num_workers=2) | num_workers= | ActorMachine() has no | workers= here
ag.ActorMachine(loss, [W]) | <W | it takes outputs | wrt=
ag.ActorMachine() | got nothing | it takes outputs | wrt=
ag.solvers.Adam(learning_rate=1e-3) | learning_rate= | Adam() has no | lr= here
ag.solvers.LBFGS(history=3) | history= | LBFGS() has no | did you mean 'history_size'
ag.nn.Linear(3, 4, activation='relu') | activation= | Linear() has no | call ag.ops.relu
ag.nn.Conv2d(1, 8, 3, strides=2) | strides= | Conv2d() has no | stride= here
ag.nn.Dropout(rate=0.5) | rate= | Dropout() has no | p= here
ag.data.DataLoader([feeds], num_workers=2) | num_workers= | DataLoader() has no | workers= here
ag.train.Trainer(net, ag.ops.mse_loss, optimizer=sgd) | optimizer= | Trainer() has no | solver= here
ag.Graph(nme='net') | nme= | Graph() has no | did you mean 'name'
g.input('v', dims=(3,)) | dims= | input() has no | shape= here
ag.grad(boom, argnum=1) | argnum= | grad() has no | did you mean 'argnums'
ag.vmap(boom, in_axis=1) | in_axis= | vmap() has no | did you mean 'in_axes'
m.run_sync(feeds)['los'] | 'los' | readable are | name it among the outputs
m.run_sync({**feeds, 't': np.array([0, 9])}) | 0 to 9 | 5 classes | built at
list(m.stream(feeds)) | got dict | an iterable of feeds | a stream takes
list(m.stream([feeds], max_in_flight=0)) | got 0 | at least 1 | max_in_flight must be
closed.run_sync(feeds) | closed | closed | make a new one
asyncio.run(inside(m)) | block | event loop | await machine.run
ag.solvers.Adam(lr=-1) | -1 | at least 0 | lr is
ag.solvers.SGD(momentum=1.5) | 1.5 | from 0 to below 1 | momentum is
ag.solvers.SGD(nesterov=True) | nesterov=True | momentum 0 | give a momentum
ag.solvers.SGD(0.1).step([m.run_sync(feeds)[W]]) | 'W' | has no gradient | backward=True
m.compile_step(0.1) | got 0.1 | takes a solver | such as ag.solvers.SGD(lr=0.1)
ag.grad(lambda w: w)(np.ones(3)) | float64[3] | needs a scalar | differentiate its sum
ag.grad(lambda w: float(w.sum()))(np.ones(3)) | <sum | no value outside a run | run[node].value
ag.grad(lambda w: w.sum(), argnums=3)(np.ones(3)) | argnums=3 | 1 positional | was called with
ag.grad(lambda n: n * 2)(3) | the int 3 | no gradient | pass a float
ag.grad(3.0) | got float | a function | expected a function
ag.pipeline.Pipeline(loss, [W], stages=2, schedule='1f1b') | '1f1b' | the number | microbatches=4
ag.pipeline.Pipeline(loss, [W], stages=2, microbatches=0) | is 0 | from 1 on | microbatches is
thirds.run_sync(feeds) | batch is 2 | 3 microbatches | at least as many
ag.ops.define(name='tanh', scheme='f[] -> f[]', forward=abs) | 'tanh' | declared | choose another
ag.TapeMachine([cut(x)]).run_sync(feeds) | (1, 3) | float32[batch, 3] | built at
ag.TapeMachine([failing(x)]).run_sync(feeds) | boom | float32[2, 3] | built at
ag.gradients(failing(x).sum(), [x]) | has no gradient rule | an output | give the op a vjp
ag.train.Trainer(net, 'mse', sgd) | 'mse' | a function of two nodes | such as ag.ops.mse_loss
ag.train.Trainer(net, ag.ops.mse_loss, 'adam') | got 'adam' | a solver | such as ag.solvers.Adam
ag.train.Trainer(net, ag.ops.mse_loss, sgd).fit([], epochs=0) | got 0 | an int | at least 1
ag.vmap(lambda a: a * 2)(3) | Python scalar 3 | no dtype | np.array(3
ag.map(lambda a: a * 2, np.ones((2, 3))) | finds no node | its arguments | graph.constant(array)
ag.vmap(3) | got 3 | takes a function | a function of nodes
ag.function(3) | got 3 | takes | a Python function
ag.pipeline.schedule('gpip', stages=1, microbatches=2) | 'gpip' | known are | did you mean 'gpipe'
ag.serving.Server().add('net', m, batch=8) | 'batch' | known are | did you mean 'batch_by'
ag.serving.Server().add('net', m, max_batch_size=0) | got 0 | an int | at least 1
ag.serving.Server().add('net', m, overflow='drop') | got 'drop' | must be one of | 'reject', 'wait'
ag.devices.experiment([loss], feeds, lanes=[0]) | got 0 | an int | at least 1
ag.devices.experiment([loss], feeds, devices=['cuda']) | 'cuda' | has no number | write 'cuda:0'
ag.devices.get('gpu') | 'gpu' | unknown device | use 'cpu'
pickle.dumps(g) | <Graph 'net' | not pickled | by a function
pickle.dumps(m.run_sync(feeds)) | <Run | neither pickled nor copied | run[node].value
copy.deepcopy(m.run_sync(feeds)) | <Run | neither pickled nor copied | run[node].value
pickle.dumps(m.run_sync(feeds)[loss]) | the Dual of | not pickled | run[node].value
float(m.run_sync(feeds)[loss]) | the Dual of | a result is a Dual | run[node].value
np.asarray(m.run_sync(feeds)[loss]) | the Dual of | a result is a Dual | run[node].value
m.run_sync(feeds)[loss][0] | the Dual of | a result is a Dual | run[node].value
m.run_sync(feeds)[loss].shape | 'shape' | a result is a Dual | .value.shape
list(m.run_sync(feeds)) | 0 is neither | a result is a Dual | run[node].value
ag.nn.Linear(3, 2)(np.ones((1, 3))) | float64 | float32 | array.astype('float32')
ag.nn.Linear(3, 2)(np.ones((1, 3))) | float64 | float32 | net.to(dtype='float64')
ag.cond(x.sum() > 0, lambda: x, lambda: x.astype('float64')) | float32 | true_fun | in false_fun or
ag.cond(x.sum() > 0, lambda: x.astype('float64'), lambda: x) | float64 | true_fun | in false_fun or
ag.switch(i[0], [lambda: x, lambda: x.astype('float64')]) | float64 | in branch 0 | in branch 1
ag.solvers.SGD([W], lr=0.1) | <W | takes no parameters | solver.step([run[w], ...])
ag.solvers.Adam(ag.nn.Linear(3, 2).parameters()) | [<parameter | takes no | solver.step(
ag.nn.Linear(3, 2).cuda() | 'cuda' | placed | device= of the machine
ag.nn.Linear(3, 2).to('cuda') | 'cuda' | a dtype first | device= of the machine
ag.nn.Linear(3, 2).evall() | Linear has no 'evall' | did you mean | 'eval'
ag.nn.Conv2D | ag.nn has no 'Conv2D' | did you mean | 'Conv2d'
ag.solvers.adamm | 'adamm' | did you mean | 'Adam'
ag.tensor([1.0]) | 'tensor' | NumPy arrays | graph.constant
ag.nn.Linear(3, 2).load_state_dict({'weight': bfloat16}) | weight of the state | BFloat16 | .float()
ag.ops.define(name='a', scheme='f(3) -> f', forward=abs) | 'f(3)' | such as 'f[*s] -> | in brackets
ag.ops.define(name='a', scheme='f[n+1] -> f', forward=abs) | [n+1] | such as 'f[*s] -> | brackets
""".strip().splitlines()


def boom(xp, x):
    raise RuntimeError("boom")


FAILING = ag.ops.define("mistake_failing", scheme="f[*s] -> f[*s]", forward=boom)
CUT = ag.ops.define("mistake_cut", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x[:1])


class BFloat16Tensor:
    """Answers NumPy as a tensor of PyTorch does."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Got unsupported ScalarType BFloat16")


def surroundings():
    """Return the names that the rows use."""
    g = ag.Graph("net")
    x = g.input("x", ("batch", 3), "float32")
    t = g.input("t", ("batch",), "int64")
    W = g.parameter("W", np.ones((3, 5), "float32"))
    logits = x @ W
    loss = ag.ops.cross_entropy(logits, t)
    feeds = {"x": np.ones((2, 3), "float32"), "t": np.zeros(2, "int64")}
    closed = ag.TapeMachine([loss])
    closed.close()

    def if_positive(node):
        return node if node.sum() > 0 else -node

    def put(node):
        node[0] = 0

    async def inside(machine):
        machine.run_sync(feeds)

    return {
        "ag": ag, "np": np, "asyncio": asyncio, "pickle": pickle, "g": g, "x": x, "t": t, "W": W,
        "i": g.input("i", (3,), "int64"), "other": ag.Graph("net").input("o", (3,)), "loss": loss,
        "feeds": feeds, "m": ag.TapeMachine([loss], wrt=[W, x]), "closed": closed, "cut": CUT,
        "logits_only": ag.TapeMachine([logits]), "failing": FAILING, "put": put,
        "thirds": ag.pipeline.Pipeline(loss, [W], stages=1, microbatches=3),
        "if_positive": if_positive, "inside": inside, "net": ag.nn.Linear(3, 5),
        "sgd": ag.solvers.SGD(0.1), "copy": copy, "boom": boom, "bfloat16": BFloat16Tensor(),
    }  # fmt: skip


@cache
def answered(row):
    """Make the mistake; return which of the four questions its message answers, and the message."""
    code, got, expected, advice = row.split(" | ")
    line = compile(code, "<the user's line>", "eval")
    try:
        eval(line, surroundings())
    except Exception as error:
        message = str(error)
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        # What failed in a worker was built elsewhere; all else is raised in the user's own line.
        failed_in_a_run = isinstance(error, ag.NodeError)
        where = "built at" in message if failed_in_a_run else line in frames
        return {
            "what was got": got.strip() in message,
            "what is expected": expected.strip() in message,
            "where": where,
            "what to do": advice.strip() in message,
        }, message
    return {}, "it is no mistake"


@each("row", ROWS)
def test_a_mistake_is_answered_with_what_was_got_what_is_expected_and_what_to_do(row):
    answers, message = answered(row)
    assert [question for question in answers if not answers[question]] == [], message
    assert len(answers) == 4, message


def test_of_a_hundred_mistakes_at_least_95_percent_answer_all_four_questions():
    rated = [answered(row)[0] for row in ROWS]
    assert len(rated) >= 100
    assert all(row.count(" | ") == 3 for row in ROWS)
    assert sum([len(one) == 4 and all(one.values()) for one in rated]) >= 0.95 * len(rated)
