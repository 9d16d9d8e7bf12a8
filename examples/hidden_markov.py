"""The forward algorithm of a hidden Markov model by a scan, and its gradients.

They are those of the sum over all paths, of which there are three to the sixth power.
"""

import itertools

import numpy as np

import actorgraph as ag

STATES, SYMBOLS = 3, 4
SEEN = np.array([0, 3, 1, 1, 2, 0])

g = ag.Graph("hidden Markov model")
seen = g.input("seen", ("time",), "int64")
first = g.parameter("first", np.random.default_rng(0).normal(size=STATES))
moves = g.parameter("moves", np.random.default_rng(1).normal(size=(STATES, STATES)))
shows = g.parameter("shows", np.random.default_rng(2).normal(size=(STATES, SYMBOLS)))

log_first = ag.ops.log_softmax(first)
log_moves, log_shows = ag.ops.log_softmax(moves, axis=1), ag.ops.log_softmax(shows, axis=1)


def step(reach, symbol):
    """Return the log-probability of each state and of all that has been seen."""
    reach = ag.ops.logsumexp(reach[:, None] + log_moves, axis=0) + log_shows[:, symbol]
    return reach, ag.ops.logsumexp(reach)


last, so_far = ag.scan(step, log_first + log_shows[:, seen[0]], seen[1:])
evidence = ag.ops.logsumexp(last)

# The definition: every path on its own.  Only sequences of this length.
paths = np.array([*itertools.product(range(STATES), repeat=len(SEEN))])
scores = log_first[paths[:, 0]] + log_moves[paths[:, :-1], paths[:, 1:]].sum(1)
every = ag.ops.logsumexp(scores + log_shows[paths, SEEN].sum(1))

wrt = [first, moves, shows]
by_scan, by_paths = ag.gradients(evidence, wrt), ag.gradients(every, wrt)
with ag.TapeMachine([evidence, every, so_far, *by_scan, *by_paths], wrt=[]) as machine:
    run = machine.run_sync({"seen": SEEN})
    longer = machine.run_sync({"seen": np.tile(SEEN, 50)})  # the same graph, any length
np.testing.assert_allclose(run[evidence].value, run[every].value, rtol=1e-12)
for one, other in zip(by_scan, by_paths, strict=True):
    np.testing.assert_allclose(run[one].value, run[other].value, rtol=1e-9, atol=1e-12)
assert np.all(np.diff(longer[so_far].value) < 0)
print(f"log-likelihood {float(run[evidence].value):.6f} of {len(paths)} paths, gradients equal")
