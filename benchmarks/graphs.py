"""33 graphs of mixed sizes: is the default machine ever slower than a simpler one?

`ActorMachine` as it comes with two workers, against one worker and against `TapeMachine`, forward
and forward + backward. More than 1.10 times the time of either is flagged; graphs with parallel
work should gain from the second worker. What a second thread can bring at all is measured beside
it: two bare threads that run the whole graph once each, with nothing to share and nothing to join.
`exact=False`, which puts stable formulae for what was written, should never be slower either.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._harness import Case, Effort, Figure, Peer, Trial, measure
from benchmarks._report import exit_status, options, print_environment, print_rows, tell, write_json

if TYPE_CHECKING:
    import actorgraph as ag

TWO, ONE, TAPE = "ours: ActorMachine", "ours: ActorMachine workers=1", "ours: TapeMachine"
LOOSE = "ours: ActorMachine exact=False"
BARE = "two bare threads, the whole graph in each"
FORWARD, BACKWARD = "forward", "f+b"
SLOWER, FASTER = 1.10, 1 / 1.05
WORTH = 1.25
"""Two bare threads have to do so many times as much as one for a graph to have parallel work."""
SIZES = ("small", "medium", "large")
MATRICES = ((8, 8), (64, 256), (512, 512))  # rows and columns of elementwise work
LAYERS = ((8, 16), (64, 256), (128, 512))  # batch and width of products
ATTENTION = ((1, 8, 16), (4, 32, 64), (8, 64, 256))  # batch, length, width
IMAGES = ((2, 8, 4), (8, 16, 16), (16, 32, 32))  # batch, side, channels
RECURRENT = ((4, 16), (32, 64), (64, 256))  # batch and width

Built = tuple["ag.Node", dict[str, np.ndarray]]


class Draft:
    """A graph under construction: arrays are drawn from one seed, parameters number themselves."""

    def __init__(self, name: str) -> None:
        import actorgraph as ag

        self.ops: Any = ag.ops
        self.graph = ag.Graph(name)
        self.feeds: dict[str, np.ndarray] = {}
        self.draw = np.random.default_rng(3)

    def input(self, *shape: int) -> ag.Node:
        """Add an input with its feed."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.draw.standard_normal(shape, dtype="float32")
        return self.graph.input(name, shape=shape, dtype="float32")

    def weight(self, *shape: int) -> ag.Node:
        """Add a parameter whose products keep the scale of what they are applied to."""
        gain = np.float32(1 / np.sqrt(np.prod(shape[1:] if len(shape) == 4 else shape[:-1])))
        array = self.draw.standard_normal(shape, dtype="float32") * gain
        return self.graph.parameter(f"w{len(self.graph)}", array)

    def scale(self) -> ag.Node:
        """Add a scalar parameter, so that no two branches are one by hash-consing."""
        value = np.float32(0.9 + 0.2 * self.draw.random())
        return self.graph.parameter(f"s{len(self.graph)}", np.asarray(value))

    def dense(self, x: ag.Node, width: int, into: int) -> ag.Node:
        """Apply an affine layer."""
        bias = self.graph.parameter(f"b{len(self.graph)}", np.zeros(into, "float32"))
        return x @ self.weight(width, into) + bias

    def mlp(self, x: ag.Node, width: int, depth: int) -> ag.Node:
        """Apply `depth` layers of `width` with relu."""
        for _ in range(depth):
            x = self.ops.relu(self.dense(x, width, width))
        return x

    def built(self, end: ag.Node) -> Built:
        """Return the mean square of `end` as the loss, and the feeds."""
        return (end * end).mean(), self.feeds


def _elementwise(draft: Draft, x: ag.Node, depth: int) -> ag.Node:
    x = x * draft.scale()
    for number in range(depth):
        x = draft.ops.tanh(x) if number % 2 else draft.ops.sigmoid(x) + x
    return x


def chain(size: int) -> Built:
    """40 elementwise steps, one after the other."""
    draft = Draft("chain")
    return draft.built(_elementwise(draft, draft.input(*MATRICES[size]), 40))


def chains(size: int) -> Built:
    """8 chains of 8 elementwise steps from one input, added up."""
    draft = Draft("chains")
    x = draft.input(*MATRICES[size])
    return draft.built(draft.ops.stack([_elementwise(draft, x, 8) for _ in range(8)]).sum(axis=0))


def tree(size: int) -> Built:
    """16 leaves, joined in pairs by a sum under tanh."""
    draft = Draft("tree")
    x = draft.input(*MATRICES[size])
    level = [draft.ops.tanh(x * draft.scale()) for _ in range(16)]
    while len(level) > 1:
        level = [draft.ops.tanh(a + b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return draft.built(level[0])


def mlp(size: int) -> Built:
    """4 layers of products, bias and relu."""
    draft = Draft("mlp")
    batch, width = LAYERS[size]
    return draft.built(draft.mlp(draft.input(batch, width), width, 4))


def towers(size: int) -> Built:
    """Two MLPs of 4 layers on inputs of their own, whose ends are multiplied."""
    draft = Draft("towers")
    batch, width = LAYERS[size]
    left, right = (draft.mlp(draft.input(batch, width), width, 4) for _ in range(2))
    return draft.built(left * right)


def ensemble(size: int) -> Built:
    """8 MLPs of 3 layers on one input, averaged."""
    draft = Draft("ensemble")
    batch, width = LAYERS[size]
    x = draft.input(batch, width)
    return draft.built(draft.ops.stack([draft.mlp(x, width, 3) for _ in range(8)]).mean(axis=0))


def attention(size: int) -> Built:
    """A transformer block whose 4 heads are nodes of their own."""
    draft = Draft("attention")
    batch, length, width = ATTENTION[size]
    ops, part = draft.ops, width // 4
    x = draft.input(batch, length, width)
    normed = ops.layer_norm(x, (width,))
    heads = []
    for _ in range(4):
        query, key, value = (normed @ draft.weight(width, part) for _ in range(3))
        heads.append(ops.scaled_dot_product_attention(query, key, value))
    x = x + draft.ops.concatenate(heads, axis=-1) @ draft.weight(width, width)
    hidden = ops.relu(draft.dense(ops.layer_norm(x, (width,)), width, 4 * width))
    return draft.built(x + draft.dense(hidden, 4 * width, width))


def convnet(size: int) -> Built:
    """Two convolutions with relu and pooling, then a layer of products."""
    draft = Draft("convnet")
    batch, side, channels = IMAGES[size]
    ops = draft.ops
    x = draft.input(batch, 3, side, side)
    for inside, outside in ((3, channels), (channels, 2 * channels)):
        x = ops.relu(ops.conv2d(x, draft.weight(outside, inside, 3, 3), padding=1))
        x = ops.max_pool2d(x, 2)
    features = 2 * channels * (side // 4) ** 2
    return draft.built(draft.dense(ops.flatten(x, 1), features, 10))


def inception(size: int) -> Built:
    """Three convolutions of different reach beside each other, joined, twice."""
    draft = Draft("inception")
    batch, side, channels = IMAGES[size]
    ops = draft.ops
    x, inside = draft.input(batch, 3, side, side), 3
    for _ in range(2):
        branches = [
            ops.relu(
                ops.conv2d(x, draft.weight(channels, inside, reach, reach), padding=reach // 2)
            )
            for reach in (1, 3, 5)
        ]
        x, inside = ops.max_pool2d(draft.ops.concatenate(branches, axis=1), 2), 3 * channels
    return draft.built(ops.global_avg_pool(x))


def lstm(size: int) -> Built:
    """8 steps of one LSTM cell."""
    draft = Draft("lstm")
    batch, width = RECURRENT[size]
    hidden = cell = draft.graph.constant(np.zeros((batch, width), "float32"))
    w_ih, w_hh = draft.weight(4 * width, width), draft.weight(4 * width, width)
    for _ in range(8):
        hidden, cell = draft.ops.lstm_cell(draft.input(batch, width), (hidden, cell), w_ih, w_hh)
    return draft.built(hidden)


def formulae(size: int) -> Built:
    """Losses as books write them, of which `exact=False` has stable forms."""
    draft = Draft("formulae")
    ops = draft.ops
    x = draft.mlp(draft.input(*LAYERS[size]), LAYERS[size][1], 1)
    likely = ops.log(ops.softmax(x, axis=-1)).mean()
    soft = ops.log(1 + ops.exp(x)).mean()
    length = ops.sqrt((x * x).sum(axis=-1)).mean()
    return draft.built(likely + soft + length + ops.log(ops.exp(x).sum(axis=-1)).mean())


@dataclass(frozen=True)
class Family:
    """Graphs of one form; `parallel` where branches can run beside each other."""

    build: Callable[[int], Built]
    parallel: bool


FAMILIES = (
    Family(chain, parallel=False),
    Family(chains, parallel=True),
    Family(tree, parallel=True),
    Family(mlp, parallel=False),
    Family(towers, parallel=True),
    Family(ensemble, parallel=True),
    Family(attention, parallel=True),
    Family(convnet, parallel=False),
    Family(inception, parallel=True),
    Family(lstm, parallel=False),
    Family(formulae, parallel=False),
)


def case_name(family: Family, size: int, *, backward: bool) -> str:
    """Name a graph in a mode, such as `tree large f+b`."""
    return f"{family.build.__name__} {SIZES[size]} {BACKWARD if backward else FORWARD}"


def make_case(family: Family, size: int, *, backward: bool) -> Case:
    """Three machines on one graph; the tape's results are what the others must return."""
    import actorgraph as ag

    loss, feeds = family.build(size)
    parameters = loss.graph.parameters

    def read(done: ag.Run) -> list[object]:
        return [done[loss].value, *(done[p].grad for p in parameters if backward)]

    def machine(kind: str, **settings: object) -> Callable[[ExitStack], Trial]:
        def build(scope: ExitStack) -> Trial:
            made = scope.enter_context(getattr(ag, kind)([loss], **settings))

            return Trial(lambda: read(made.run_sync(feeds, backward=backward)))

        return build

    def bare(scope: ExitStack) -> Trial:
        first, second = (scope.enter_context(ag.TapeMachine([loss])) for _ in range(2))
        other = scope.enter_context(ThreadPoolExecutor(1))

        def run() -> list[object]:
            theirs = other.submit(second.run_sync, feeds, backward=backward)
            found = read(first.run_sync(feeds, backward=backward))
            theirs.result()
            return found

        return Trial(run)

    peers = [
        Peer(BARE, bare),
        Peer(TAPE, machine("TapeMachine"), ours=True),
        Peer(ONE, machine("ActorMachine", workers=1), ours=True),
        Peer(TWO, machine("ActorMachine", workers=2), ours=True),
        Peer(LOOSE, machine("ActorMachine", workers=2, exact=False), ours=True),
    ]
    with ag.LispMachine([loss]) as lisp:
        expected = read(lisp.run_sync(feeds, backward=backward))
    return Case(case_name(family, size, backward=backward), peers, expected=expected)


@dataclass(frozen=True)
class Verdict:
    """One graph in one mode: what the default machine needs of the time of the others."""

    case: str
    parallel: bool
    ms: Mapping[str, float]
    best: Mapping[str, float]
    median: Mapping[str, float]
    threads: float
    loose: float

    @property
    def shareable(self) -> bool:
        """Whether the graph has branches, and two bare threads do clearly more than one."""
        return self.parallel and self.threads >= WORTH

    @property
    def slower(self) -> bool:
        """Whether both the best call and the median round say so: one alone is noise."""
        return any(min(self.best[name], self.median[name]) > SLOWER for name in (ONE, TAPE))

    @property
    def faster(self) -> bool:
        """Whether the second worker is worth it, by the best call and by the median round."""
        return max(self.best[ONE], self.median[ONE]) <= FASTER


def verdict(case: str, parallel: bool, figures: Sequence[Figure]) -> Verdict | None:
    """Compare the figures of one case; None where not all of them were measured."""
    by_name = {figure.system: figure for figure in figures if figure.rounds}
    if len(by_name) < 5:
        return None
    two = by_name[TWO].rounds
    best = {name: min(two) / min(by_name[name].rounds) for name in (ONE, TAPE)}
    median = {
        name: statistics.median(a / b for a, b in zip(two, by_name[name].rounds, strict=True))
        for name in (ONE, TAPE)
    }
    ms = {name: min(figure.rounds) * 1e3 for name, figure in by_name.items()}
    bare = zip(by_name[TAPE].rounds, by_name[BARE].rounds, strict=True)
    threads = statistics.median(2 * one / both for one, both in bare)
    pairs = zip(by_name[LOOSE].rounds, two, strict=True)
    loose = min(min(by_name[LOOSE].rounds) / min(two), statistics.median(a / b for a, b in pairs))
    return Verdict(case, parallel, ms, best, median, threads, loose)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print times, ratios as best (median), and what is too slow or gains nothing."""
    head = ["graph", "tape", "1 worker", "2 workers", "2 : tape", "2 : 1 worker", "threads"]
    rows = [[*head, "exact=False", ""]]
    for v in verdicts:
        times = [f"{v.ms[name]:.3f}" for name in (TAPE, ONE, TWO)]
        ratios = [f"{v.best[name]:.2f} ({v.median[name]:.2f})" for name in (TAPE, ONE)]
        rows.append([v.case, *times, *ratios, f"{v.threads:.2f}", f"{v.loose:.2f}", _note(v)])
    title = "ms of the best call; ratios of the default machine, best (median of rounds)"
    print_rows(f"graphs: {title}", rows)
    slower = sum(v.slower for v in verdicts)
    worst = max(verdicts, key=attrgetter("loose"))
    branched = [v for v in verdicts if v.parallel]
    shareable = [v for v in branched if v.shareable]
    tell(f"more than {SLOWER:.2f}x one worker or TapeMachine: {slower} of {len(verdicts)} (want 0)")
    tell(
        f"faster than one worker: {sum(v.faster for v in shareable)} of the {len(shareable)} where "
        f"two bare threads do {WORTH} times as much as one (want all), "
        f"{sum(v.faster for v in branched)} of all {len(branched)} with branches"
    )
    tell(
        f"exact=False: more than {SLOWER:.2f}x exact=True: "
        f"{sum(v.loose > SLOWER for v in verdicts)} of {len(verdicts)} (want 0); "
        f"worst {worst.loose:.2f}x, {worst.case}"
    )


def _note(v: Verdict) -> str:
    if v.slower:
        return "SLOWER"
    if v.faster:
        return "gains"
    return "no gain" if v.shareable else ""


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("graphs", __doc__, only="only graphs with this text, such as 'tree large f+b'")
    effort = Effort(5, 0.03) if asked.quick else Effort(15, 0.1)
    print_environment()
    figures: list[Figure] = []
    verdicts = []
    for family in FAMILIES:
        for size in range(len(SIZES)):
            for backward in (False, True):
                if not asked.wants(case_name(family, size, backward=backward)):
                    continue
                case = make_case(family, size, backward=backward)
                found = measure(case, effort)
                figures += found
                judged = verdict(case.name, family.parallel, found)
                verdicts += [judged] if judged else []
    if verdicts:
        print_verdicts(verdicts)
    extra = {"verdicts": [{**asdict(v), "slower": v.slower, "faster": v.faster} for v in verdicts]}
    write_json("graphs", asked, figures, extra)
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
