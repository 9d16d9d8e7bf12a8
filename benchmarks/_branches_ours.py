"""The wide graph on our machines."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from benchmarks._harness import Trial
from benchmarks._work import Array, branch_arrays, branches


def ours_trial(
    size: tuple[int, int], kind: str, *, backward: bool, **settings: object
) -> Callable[[ExitStack], Trial]:
    """Our machine `kind` on the same graph; gradients are by all weights and biases."""

    def build(scope: ExitStack) -> Trial:
        import actorgraph as ag

        built = branches(*size)
        outputs = [built.loss] if backward else list(built.ends)
        wrt = list(built.parameters) if backward else []
        machine = scope.enter_context(getattr(ag, kind)(outputs, wrt=wrt, **settings))
        feeds = {"x": branch_arrays(*size)[0]}

        def forward() -> list[Array]:
            run = machine.run_sync(feeds)
            return [run[end].value for end in built.ends]

        def forward_backward() -> list[Array]:
            run = machine.run_sync(feeds, backward=True)
            return [run[built.loss].value, *(run[p].grad for p in built.parameters)]

        return Trial(forward_backward if backward else forward)

    return build
