"""Table 2: 16 branches x 6 layers of `tanh(x @ W + b)`, and what a second worker brings.

Forward returns all branch ends to the caller. Backward is from the sum of all ends to every
weight and bias. Every layer of every branch has its own weights, so large ones are cold.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import _branches_peers as peers
from benchmarks._branches_ours import ours_trial
from benchmarks._harness import Case, Effort, Figure, Peer, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_rows,
    print_table,
    write_json,
)
from benchmarks._work import SIZES

FLOOR = "NumPy, 1 thread"
RIVALS = (
    "PyTorch, 1 intra-op thread",
    "PyTorch, 2 intra-op threads",
    "PyTorch, 2 Python threads",
    "JAX jit",
)
ONE, TWO = "ours: ActorMachine workers=1", "ours: ActorMachine workers=2"
NODE_ONE = 'ours: ActorMachine fuse="none" workers=1'
NODE_TWO = 'ours: ActorMachine fuse="none" workers=2'
# Two workers must bring this where there is enough work, and must not cost more where not.
SPEEDUP, NO_SLOWER = 1 / 1.8, 1.05


def case_name(size: peers.Size, *, backward: bool) -> str:
    """Name a column, such as `8x64 f+b`."""
    return f"{size[0]}x{size[1]}" + (" f+b" if backward else "")


def make_case(size: peers.Size, *, backward: bool) -> Case:
    """All systems on one size."""

    def machine(system: str, kind: str = "ActorMachine", **settings: object) -> Peer:
        trial = ours_trial(size, kind, backward=backward, **settings)
        return Peer(system, trial, ours=True)

    def torch(system: str, intra: int, threads: int = 1) -> Peer:
        return Peer(
            system, peers.torch_trial(size, backward=backward, intra=intra, threads=threads)
        )

    systems = [
        Peer(FLOOR, peers.numpy_trial(size, backward=backward, threads=1)),
        Peer("NumPy, branch per thread, 2", peers.numpy_trial(size, backward=backward, threads=2)),
        torch(RIVALS[0], intra=1),
        torch(RIVALS[1], intra=2),
        torch(RIVALS[2], intra=1, threads=2),
        Peer(RIVALS[3], peers.jax_trial(size, backward=backward)),
        machine("ours: TapeMachine", "TapeMachine"),
        machine(ONE, workers=1),
        machine(TWO, workers=2),
        machine(NODE_ONE, fuse="none", workers=1),
        machine(NODE_TWO, fuse="none", workers=2),
    ]
    expected = peers.numpy_backward(size) if backward else peers.numpy_forward(size)
    return Case(case_name(size, backward=backward), systems, expected=expected)


def targets() -> list[Target]:
    """What the project wants: near the best peer, and a second worker that is worth it."""
    found = []
    for backward in (False, True):
        for size in SIZES:
            case = case_name(size, backward=backward)
            factor = NO_SLOWER if size == SIZES[0] else SPEEDUP
            found.append(Target(case, TWO, RIVALS, 1.3))
            found.append(Target(case, TWO, (ONE,), factor))
            found.append(Target(case, NODE_TWO, (NODE_ONE,), factor))
    return found


def speedups(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """The time of one worker over the time of two, printed and returned."""
    seconds = {(f.system, f.case): f.seconds for f in figures}
    found: list[dict[str, object]] = []
    for label, one, two in (("default", ONE, TWO), ('fuse="none"', NODE_ONE, NODE_TWO)):
        for case in dict.fromkeys(figure.case for figure in figures):
            slow, fast = seconds.get((one, case)), seconds.get((two, case))
            if slow is not None and fast is not None:
                found.append({"setting": label, "case": case, "speedup": slow / fast})
    if found:
        rows = [[str(f["setting"]), str(f["case"]), f"{f['speedup']:.2f}"] for f in found]
        title = "speed of two workers : one worker"
        print_rows(title, [["setting", "case", "ratio"], *rows], words=2)
    return found


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("wide", __doc__)
    effort = Effort(2, 0.15) if asked.quick else Effort(10, 0.4)
    print_environment()
    figures: list[Figure] = []
    for backward in (False, True):
        for size in SIZES:
            case = make_case(size, backward=backward)
            figures += measure(case, effort, asked.only, keep=FLOOR)
    print_table("wide, one run", "ms", figures, FLOOR)
    extra = {"speedups": speedups(figures), "targets": judge(targets(), figures)}
    write_json("wide", asked, figures, extra)
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
