"""Connectionist temporal classification: the loss, its gradient and its curvature.

The alpha-beta recursion over the target, with blanks between its labels, runs in log space and over
the whole batch at once.  The gradient with respect to the log-probabilities is minus the posterior
of each state, ``exp(alpha + beta - log Z)``, summed over the states of each label: the true
gradient, where PyTorch's holds only through a log-softmax.  The second derivative along a direction
is the same recursion with tangents.  Source: A. Graves et al., Connectionist temporal
classification, 2006.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any, NoReturn

import numpy as np

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops import _foreign
from actorgraph.ops._arrays import combine_at, raise_if, running, through_float32
from actorgraph.ops._rules import declare, raises, returns, tangents
from actorgraph.ops.broadcasting import broadcast_like, sum
from actorgraph.ops.elementwise import astype, maximum
from actorgraph.ops.indexing import check_classes
from actorgraph.ops.losses import check_reduction, reduced
from actorgraph.ops.reductions import mean

__all__ = ["ctc_loss"]

_NEVER = -np.inf


class _Lattice:
    """The states of a batch (blank, label, blank, ..., blank) as arrays (time, batch, state)."""

    def __init__(self, xp: Any, log_probs: Any, targets: Any, lengths: Any, blank: int) -> None:
        self.xp, self.shape = xp, log_probs.shape
        self.steps, self.counts = lengths[0].astype(np.int64), lengths[1].astype(np.int64)
        _check(xp, log_probs.shape, targets, self.steps, self.counts, blank)
        batch, most = targets.shape
        self.states = 2 * most + 1
        self.labels = xp.full((batch, self.states), blank, np.int64)
        given = xp.arange(most) < self.counts[:, None]
        self.labels[:, 1::2] = xp.where(given, targets, blank)
        check_classes(xp, self.labels, log_probs.shape[2])
        state = xp.arange(self.states)
        self.alive = state <= 2 * self.counts[:, None]
        # From a label straight to the next one, unless the two are equal.
        may_skip = xp.zeros((batch, self.states), bool)
        may_skip[:, 3::2] = self.labels[:, 3::2] != self.labels[:, 1:-2:2]
        self.skip = xp.where(may_skip, 0, _NEVER).astype(log_probs.dtype)
        last = state >= 2 * self.counts[:, None] - 1
        self.ends = xp.where(self.alive & last, 0, _NEVER).astype(log_probs.dtype)
        self.scores = xp.where(self.alive, self.gather(log_probs), _NEVER)
        self.scores = self.scores.astype(log_probs.dtype, copy=False)

    def gather(self, x: Any) -> Any:
        """Return the entries of (time, batch, class) at the label of each state."""
        index = self.xp.broadcast_to(self.labels, (self.shape[0], *self.labels.shape))
        return self.xp.take_along_axis(x, index, 2)

    def scatter(self, states: Any) -> Any:
        """Add the states of each label: the adjoint of `gather`."""
        steps, batch, classes = self.shape
        out = self.xp.zeros(self.shape, states.dtype)
        rows = self.xp.arange(steps * batch).reshape(steps, batch, 1) * classes
        places = (rows + self.labels).reshape(-1)
        combine_at(self.xp, "add", out.reshape(-1), places, states.reshape(-1))
        return out

    def alphas(self) -> Any:
        """Return the log-probability of each state and what leads to it, two columns in front."""
        xp, scores = self.xp, self.scores
        out = xp.full((*scores.shape[:2], self.states + 2), _NEVER, scores.dtype)
        if len(out):
            out[0, :, 2:4] = scores[0, :, :2]
        for step in range(1, len(out)):
            before = out[step - 1]
            total = xp.logaddexp(before[:, 2:], before[:, 1:-1])
            total = xp.logaddexp(total, before[:, :-2] + self.skip)
            xp.add(total, scores[step], out=out[step, :, 2:])
        return out

    def betas(self) -> Any:
        """Return the log-probability of what follows each state, two columns behind."""
        xp, scores, skip = self.xp, self.scores, self._skip_ahead()
        out = xp.full((*scores.shape[:2], self.states + 2), _NEVER, scores.dtype)
        for step in reversed(range(len(out))):
            total = xp.full(skip.shape, _NEVER, scores.dtype)
            if step + 1 < len(out):
                after = out[step + 1].copy()
                after[:, :-2] += scores[step + 1]
                total = xp.logaddexp(after[:, :-2], after[:, 1:-1])
                total = xp.logaddexp(total, after[:, 2:] + skip)
            ending = (self.steps == step + 1)[:, None]
            out[step, :, :-2] = xp.where(ending, self.ends, total)
        return out

    def _skip_ahead(self) -> Any:
        skip = self.xp.full(self.skip.shape, _NEVER, self.skip.dtype)
        skip[:, :-2] = self.skip[:, 2:]
        return skip

    def at_end(self, states: Any, nothing: float) -> Any:
        """Return (batch, state) at each sample's last step, `nothing` where there is no step."""
        xp = self.xp
        if not len(states):
            return xp.full(states.shape[1:], nothing, states.dtype)
        chosen = states[xp.maximum(self.steps - 1, 0), xp.arange(len(self.steps))]
        return xp.where((self.steps > 0)[:, None], chosen, nothing)

    def log_likelihood(self, alphas: Any) -> Any:
        """Return the logarithm of the probability of each target."""
        xp = self.xp
        ends = self.at_end(alphas[:, :, 2:], _NEVER) + self.ends
        if xp is np:
            total = np.logaddexp.reduce(ends, axis=1, initial=_NEVER)
        else:
            total = running(xp, "logaddexp", ends, 1)[:, -1]  # there is a state, the first blank
        # Without a step the empty target is certain.
        certain = (self.steps == 0) & (self.counts == 0)
        return xp.where(certain, 0, total).astype(alphas.dtype, copy=False)

    def posterior(self, alphas: Any, betas: Any) -> Any:
        """Return the probability of each state given the target; 0 where that is impossible."""
        xp = self.xp
        total = self._or_zero(self.log_likelihood(alphas))
        return xp.exp(alphas[:, :, 2:] + betas[:, :, :-2] - total[:, None])

    def _or_zero(self, logs: Any) -> Any:
        """Return logarithms with 0 in place of that of 0, so that differences stay finite."""
        return self.xp.where(logs == _NEVER, 0, logs)

    def posterior_tangent(self, direction: Any) -> Any:
        """Return the derivative of the posterior along a direction of the log-probabilities."""
        xp = self.xp
        alphas, betas, along = self.alphas(), self.betas(), self.gather(direction)
        d_alphas = self._alpha_tangents(alphas, along)
        d_betas = self._beta_tangents(betas, along)
        total = self._or_zero(self.log_likelihood(alphas))
        ends = self.at_end(alphas[:, :, 2:], _NEVER) + self.ends
        share = xp.exp(ends - total[:, None])
        d_total = xp.add.reduce(share * self.at_end(d_alphas, 0), axis=1)
        change = d_alphas + d_betas - d_total[:, None]
        return self.posterior(alphas, betas) * change

    def _alpha_tangents(self, alphas: Any, along: Any) -> Any:
        xp, skip, scores = self.xp, self.skip, self.scores
        out = xp.zeros(alphas.shape, along.dtype)
        if len(out):
            out[0, :, 2:] = along[0]
        for step in range(1, len(out)):
            before, change, total = alphas[step - 1], out[step - 1], alphas[step, :, 2:]
            offset = scores[step] - self._or_zero(total)
            result = xp.exp(before[:, 2:] + offset) * change[:, 2:]
            result += xp.exp(before[:, 1:-1] + offset) * change[:, 1:-1]
            result += xp.exp(before[:, :-2] + skip + offset) * change[:, :-2]
            xp.add(result, along[step], out=out[step, :, 2:])
        return out[:, :, 2:]

    def _beta_tangents(self, betas: Any, along: Any) -> Any:
        xp, skip, scores = self.xp, self._skip_ahead(), self.scores
        out = xp.zeros(betas.shape, along.dtype)
        for step in reversed(range(len(out) - 1)):
            after, change, total = betas[step + 1].copy(), out[step + 1].copy(), betas[step, :, :-2]
            after[:, :-2] += scores[step + 1]
            change[:, :-2] += along[step + 1]
            offset = -self._or_zero(total)
            result = xp.exp(after[:, :-2] + offset) * change[:, :-2]
            result += xp.exp(after[:, 1:-1] + offset) * change[:, 1:-1]
            result += xp.exp(after[:, 2:] + skip + offset) * change[:, 2:]
            # At a sample's end nothing follows, and beyond it there is nothing.
            out[step, :, :-2] = xp.where((self.steps > step + 1)[:, None], result, 0)
        return out[:, :, :-2]


def _check(xp: Any, shape: Any, targets: Any, steps: Any, counts: Any, blank: int) -> None:
    for name, lengths, most in (("input", steps, shape[0]), ("target", counts, targets.shape[1])):
        if lengths.size:
            text = f"ctc_loss: {name} lengths from {{}} to {{}} are not within 0 and {most}"
            bad = (lengths.min() < 0) | (lengths.max() > most)
            raise_if(xp, bad, ValueError, text, lengths)
    if not 0 <= blank < shape[2]:
        raise ValueError(f"ctc_loss: blank {blank} is not a class, there are {shape[2]}")


@through_float32
def _loss_forward(
    xp: Any, log_probs: Any, targets: Any, *lengths: Any, blank: int, zero_infinity: bool
) -> Any:
    lattice = _Lattice(xp, log_probs, targets, lengths, blank)
    losses = xp.negative(lattice.log_likelihood(lattice.alphas()))
    return xp.where(losses == np.inf, 0, losses).astype(losses.dtype) if zero_infinity else losses


@through_float32
def _pull_forward(
    xp: Any, ct: Any, log_probs: Any, targets: Any, *lengths: Any, blank: int, zero_infinity: bool
) -> Any:
    lattice = _Lattice(xp, log_probs, targets, lengths, blank)
    posterior = lattice.posterior(lattice.alphas(), lattice.betas())
    return lattice.scatter(posterior * -ct[:, None])


@through_float32
def _curvature_forward(
    xp: Any, u: Any, ct: Any, log_probs: Any, targets: Any, *lengths: Any, blank: int,
    zero_infinity: bool,
) -> Any:  # fmt: skip
    lattice = _Lattice(xp, log_probs, targets, lengths, blank)
    return lattice.scatter(lattice.posterior_tangent(u) * -ct[:, None])


def _ones(like: Node) -> Node:
    return broadcast_like(like.graph.constant(1, dtype=like.dtype), like)


def _per_sample(left: Node, right: Node) -> Node:
    return sum(left * right, (0, 2))


def _pull_vjp(
    argnum: int, u: Node, g: Node, ct: Node, log_probs: Node, *rest: Node, **attrs: Any
) -> Node | None:
    if argnum == 0:
        return _per_sample(u, build(_PULL, _ones(ct), log_probs, *rest, **attrs))
    return build(_CURVATURE, u, ct, log_probs, *rest, **attrs) if argnum == 1 else None


def _no_third_order() -> NoReturn:
    raise GraphTypeError(
        "ctc_loss has derivatives of first and second order only, and this would be its third"
    )


def _curvature_vjp(
    argnum: int, w: Node, h: Node, u: Node, ct: Node, log_probs: Node, *rest: Node, **attrs: Any
) -> Node | None:
    if argnum == 0:  # The Hessian is symmetric.
        return build(_CURVATURE, w, ct, log_probs, *rest, **attrs)
    if argnum == 1:
        return _per_sample(w, build(_CURVATURE, u, _ones(ct), log_probs, *rest, **attrs))
    return _no_third_order() if argnum == 2 else None


_REST = "i[n, s] -> i1[n] -> i2[n]"
_ATTRS = {"blank": 0, "zero_infinity": True}
_INTS = ((2, 2), (2,), (2,))

_LOSS: Op = declare(
    "ctc_loss", f"f[t, n, c] -> {_REST} -> f[n]", _loss_forward,
    vjp=(lambda ct, y, *xs, **attrs: build(_PULL, ct, *xs, **attrs), None, None, None),
    jvp=tangents(
        lambda t, y, *xs, **attrs: _per_sample(t, build(_PULL, _ones(y), *xs, **attrs))
    ),
    cost=lambda shapes, result, attrs: 60 * shapes[0][0] * prod(shapes[1]),
    samples=(Sample(((5, 2, 3), *_INTS), _ATTRS, ints={1: 3, 2: 6, 3: 3}),),
)  # fmt: skip

_PULL: Op = declare(
    "ctc_pull", f"f[n] -> f[t, n, c] -> {_REST} -> f[t, n, c]", _pull_forward, vjp=_pull_vjp,
    jvp=tangents(
        lambda t, g, ct, *rest, **attrs: build(_PULL, t, *rest, **attrs),
        lambda t, g, ct, *rest, **attrs: build(_CURVATURE, t, ct, *rest, **attrs),
    ),
    cost=lambda shapes, result, attrs: 120 * shapes[1][0] * prod(shapes[2]),
    samples=(Sample(((2,), (5, 2, 3), *_INTS), _ATTRS, ints={2: 3, 3: 6, 4: 3}),),
    doc="Gradient of ctc_loss with respect to the log-probabilities.",
)  # fmt: skip

_CURVATURE: Op = declare(
    "ctc_curvature", f"f[t, n, c] -> f[n] -> f[t, n, c] -> {_REST} -> f[t, n, c]",
    _curvature_forward, vjp=_curvature_vjp,
    jvp=tangents(
        lambda t, h, u, *rest, **attrs: build(_CURVATURE, t, *rest, **attrs),
        lambda t, h, u, ct, *rest, **attrs: build(_CURVATURE, u, t, *rest, **attrs),
        lambda *_, **__: _no_third_order(),
    ),
    cost=lambda shapes, result, attrs: 300 * shapes[0][0] * prod(shapes[3]),
    samples=(Sample(((5, 2, 3), (2,), (5, 2, 3), *_INTS), _ATTRS, ints={3: 3, 4: 6, 5: 3},
                    constants=(2,)),),
    doc="Hessian of ctc_loss times a direction.",
)  # fmt: skip


@returns("Node: a scalar, or of shape (batch,)")
@raises("A dtype does not fit, or there is no such reduction.", "The shapes do not fit.")
def ctc_loss(
    log_probs: Node, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
    reduction: str = "mean", zero_infinity: bool = False,
) -> Node:  # fmt: skip
    """Return minus the log-probability of label sequences over all their alignments.

    The gradient is the true one with respect to `log_probs`, whether or not they are normalised.
    There are derivatives of first and second order; a third raises.

    Parameters
    ----------
    log_probs : node
        Float logarithms of probabilities, shape (time, batch, classes).
    targets : node or array
        Integers, shape (batch, labels); labels beyond a sample's length are not looked at.
    input_lengths, target_lengths : node, array or list
        Integers, shape (batch,): how many steps and labels of each sample count.
    blank : int
        The class of the blank.
    reduction : {"mean", "sum", "none"}
        The mean divides each loss by its target's length (at least 1), then takes the mean.
    zero_infinity : bool
        Count as 0, instead of infinity, a target that is too long for its input; its gradient is 0
        either way.

    Examples
    --------
    >>> import actorgraph as ag
    >>> import numpy as np
    >>> x = ag.Graph().input("x", (5, 2, 3))
    >>> ag.ops.ctc_loss(x, np.ones((2, 2), int), [5, 5], [2, 1]).shape
    ()
    """
    check_reduction(reduction)
    lift = log_probs.graph.lift
    lengths = lift(target_lengths)
    losses = build(
        _LOSS, log_probs, lift(targets), lift(input_lengths), lengths,
        blank=int(blank), zero_infinity=bool(zero_infinity),
    )  # fmt: skip
    if reduction != "mean":
        return reduced(losses, reduction)
    return mean(losses / astype(maximum(lengths, 1), losses.dtype))


_foreign.install_late(sys.modules[__name__])
