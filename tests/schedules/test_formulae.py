"""Bubbles and peaks of the named schedules are exactly those of the papers' formulae.

p devices, m microbatches, v chunks; F, B, W times of a device's stages for one microbatch.  G is
the global bubble, P the span bubble; activations are in units of one microbatch of one device.
"""

from fractions import Fraction
from itertools import product

from actorgraph.pipeline import Schedule, dynamic, schedule, simulate
from tests._each import each

RATIOS = [(1, 1, 1), (2, 2, 1), (1, 2, 1), (3, 3, 2), (2, 3, 2), (10, 9, 8)]
DEVICES = (1, 2, 3, 6)
every_p = each("p", DEVICES)
every_ratio = each("costs", [*RATIOS, (5, 1, 1), (1, 1, 3), (0, 1, 2)])
every_mild_ratio = each("costs", [*RATIOS, (5, 1, 1), (7, 3, 0)])
"""W at most min(F, B)."""


def measured(name, p, m, costs, **options):
    found = simulate(name, stages=p, microbatches=m, costs=costs, **options)
    return found.global_bubble, found.span_bubble, found.peak_activations


@every_p
@every_ratio
def test_gpipe_has_the_bubble_and_the_peaks_of_its_formula(p, costs):
    bubble = (p - 1) * sum(costs)
    for m in (1, 2, p, 3 * p + 1):
        assert measured("gpipe", p, m, costs) == (bubble, bubble, (m,) * p)


@every_p
@every_ratio
def test_1f1b_has_the_bubble_of_gpipe_and_peaks_that_fall_from_device_to_device(p, costs):
    for m in (p, p + 1, 4 * p + 3):
        bubble, _, peaks = measured("1f1b", p, m, costs)
        assert bubble == (p - 1) * sum(costs)
        assert peaks == tuple(p - d for d in range(p))


@every_p
@each("v", [2, 3])
@every_ratio
def test_interleaved_divides_the_bubble_by_its_chunks_for_a_higher_peak(p, v, costs):
    for rounds in (2, 3):
        bubble, _, peaks = measured("interleaved", p, rounds * p, costs, chunks=v)
        assert bubble == Fraction((p - 1) * sum(costs), v)
        assert max(peaks) == peaks[0] == p + Fraction(p - 1, v)


@every_p
@each("v", [2, 3])
@every_ratio
def test_looped_bfs_divides_the_bubble_by_its_chunks_and_holds_all_microbatches(p, v, costs):
    for m in (p, 2 * p + 1):
        bubble, _, peaks = measured("looped_bfs", p, m, costs, chunks=v)
        assert bubble == Fraction((p - 1) * sum(costs), v)
        assert peaks == (m,) * p


@every_p
@every_mild_ratio
def test_zb_h1_fills_bubbles_with_gradients_of_weights_at_the_peak_of_1f1b(p, costs):
    forward, inputs, weights = costs
    bubble = (p - 1) * (forward + inputs - weights)
    for m in (p, p + 1, 4 * p):
        assert measured("zb-h1", p, m, costs) == (bubble, bubble, (p,) * p)


@every_p
@each("v", [2, 3])
@every_mild_ratio
def test_interleaved_zb1p_divides_the_span_bubble_by_its_chunks(p, v, costs):
    forward, inputs, weights = costs
    for m in (p, 2 * p, 4 * p):
        _, span, peaks = measured("zb-h1", p, m, costs, chunks=v)
        assert span == Fraction((p - 1) * (forward + inputs - weights), v)
        assert peaks == (p,) * p


@every_p
@every_ratio
def test_zb_h2_has_the_bubbles_of_its_formula_for_nearly_twice_the_peak(p, costs):
    forward, inputs, weights = costs
    span = (p - 1) * max(forward + inputs - 2 * weights, inputs - forward, 0)
    for m in (3 * p, 3 * p + 1, 5 * p):
        expected = max(span, (p - 1) * forward), span, (2 * p - 1,) * p
        assert measured("zb-h2", p, m, costs) == expected


ZB_V = {
    (1, 1, 1): {2: ("1/2", "0"), 4: ("3/2", "0"), 8: ("7/2", "0")},
    (2, 2, 1): {2: ("1", "1"), 4: ("3", "3"), 8: ("7", "7")},
    (1, 2, 1): {2: ("1", "1"), 4: ("3", "3"), 8: ("7", "7")},
    (3, 3, 2): {2: ("3/2", "1"), 4: ("9/2", "3"), 8: ("21/2", "7")},
    (2, 3, 2): {2: ("3/2", "1"), 4: ("9/2", "3"), 8: ("21/2", "7")},
    (10, 9, 8): {2: ("5", "3/2"), 4: ("16", "11/2"), 8: ("38", "27/2")},
}
"""(G, P) by costs and devices."""


@each("costs", ZB_V)
@each("p", [2, 4, 8])
def test_zb_v_has_the_golden_values(p, costs):
    expected = tuple(map(Fraction, ZB_V[costs][p]))
    for m in (2 * p, 2 * p + 1, 4 * p):
        assert measured("zb-v", p, m, costs) == (*expected, (p,) * p)


@every_p
@each("time", [1, 2, Fraction(1, 3)])
def test_zb_v_has_no_bubble_in_its_spans_if_all_parts_take_as_long(p, time):
    for m in (2 * p, 5 * p):
        bubble, span, _ = measured("zb-v", p, m, (time,) * 3)
        assert (bubble, span) == (Fraction((p - 1) * time) / 2, 0)


def dualpipe_v(p, forward, inputs, weights):
    """Return the authors' formula, in times of a chunk."""
    backward = inputs + weights
    return Fraction((p - 1) * ((forward + backward) + backward - 3 * weights), 2)


@every_p
@each("costs", [(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 0)])
def test_dualpipe_v_has_the_bubble_of_its_authors_formula(p, costs):
    expected = dualpipe_v(p, *costs)
    for m in (2 * p, 2 * p + 1, 4 * p):
        assert measured("dualpipe-v", p, m, costs)[:2] == (expected, expected)


@every_p
@each("costs", [(2, 1, 1), (10, 9, 8), (5, 2, 1), (1, 2, 1), (2, 4, 3)])
def test_dualpipe_v_differs_from_the_formula_by_what_f_and_b_differ(p, costs):
    """The formula counts every pair as one block, but the authors leave the first one apart.

    So it holds for F = B; with F < B the first two actions of the last device, which do not
    overlap, save the difference once, with F > B each hop costs it.
    """
    forward, inputs, _ = costs
    excess = Fraction((p - 1) * max(forward - inputs, 0) - max(inputs - forward, 0), 2)
    expected = dualpipe_v(p, *costs) + (excess if p > 1 else 0)
    for m in (2 * p, 3 * p + 1):
        assert measured("dualpipe-v", p, m, costs)[:2] == (expected, expected)


def with_the_first_pair_joined(p, m):
    """Return DualPipeV where the last device's first two actions overlap like all other pairs."""
    *others, last = schedule("dualpipe-v", stages=p, microbatches=m).lanes
    at = next(i for i, action in enumerate(last) if (action.stage, action.kind) == (p, "BW"))
    assert last[at - 1][:2] == (p - 1, "F")
    assert not last[at].joined
    return Schedule((*others, (*last[:at], last[at]._replace(joined=True), *last[at + 1 :])))


@each("p", [1, 2, 3, 4, 6, 8])
def test_dualpipe_v_has_the_formula_for_all_f_up_to_b_if_its_first_pair_is_joined_too(p):
    """With F > B each hop costs their difference more, as it does without."""
    for m in (2 * p, 3 * p + 1):
        made = with_the_first_pair_joined(p, m)
        for costs in product((0, 1, 2, 3, 5, 7), (0, 1, 2, 3, 5, 8), (0, 1, 2, 3, 6)):
            forward, inputs, weights = costs
            if weights > inputs or not any(costs):
                continue
            expected = dualpipe_v(p, *costs) + Fraction((p - 1) * max(forward - inputs, 0), 2)
            found = simulate(made, costs=costs)
            assert (found.global_bubble, found.span_bubble) == (expected, expected), (m, costs)


@every_p
def test_dualpipe_v_holds_half_a_microbatch_more_than_devices(p):
    for m in (2 * p, 4 * p):
        assert max(measured("dualpipe-v", p, m, (1, 1, 1))[2]) == p + Fraction(1, 2)


# -- latency ----------------------------------------------------------------------------------

LATENCIES = [Fraction(1, 20), Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(1)]


@each("p", [2, 3, 5])
@each("c", LATENCIES)
def test_latency_costs_gpipe_the_same_for_all_microbatches_and_1f1b_more_with_each(p, c):
    for costs, rounds in product(RATIOS, (1, 3)):
        m = rounds * p
        gpipe = (p - 1) * (sum(costs) + 2 * c)
        assert measured("gpipe", p, m, costs, latency=c)[0] == gpipe
        growing = (p - 1) * sum(costs) + 2 * c * ((p - 1) * (1 + rounds) - 1)
        assert measured("1f1b", p, m, costs, latency=c)[0] == growing
        doubled = measured("1f1b", p, m, costs, latency=c, extra_warmup=p - 1)
        assert doubled[0] == gpipe
        assert max(doubled[2]) == min(m, 2 * p - 1)


@each("m", [8, 16, 32])
@each(("c", "bubbles"), [("1/10", ("5.9", "4.2", "2.8")), ("1/2", ("11.5", "9", "8.5"))])
def test_latency_costs_other_orders_the_same_for_all_microbatches(m, c, bubbles):
    names = ("interleaved", "zb-h1", "zb-v")
    found = [measured(name, 4, m, (1, 1, 1), latency=Fraction(c))[0] for name in names]
    assert found == list(map(Fraction, bubbles))


# -- without a list ---------------------------------------------------------------------------


def test_backward_first_with_credits_is_1f1b():
    for p, m, costs in product((2, 4, 8), (8, 16, 32), RATIOS):
        found = simulate(dynamic(stages=p, microbatches=m, costs=costs), costs=costs)
        listed = simulate("1f1b", stages=p, microbatches=m, costs=costs)
        assert found.makespan == listed.makespan
        assert found.peak_activations == listed.peak_activations


def test_forward_first_without_limit_is_gpipe():
    for p, costs in product((2, 4, 8), RATIOS):
        found = dynamic(stages=p, microbatches=12, costs=costs, credits=12, prefer="forward")
        assert found.lanes == schedule("gpipe", stages=p, microbatches=12).lanes


def test_backward_first_without_limit_holds_three_times_as_much():
    found = simulate(
        dynamic(stages=4, microbatches=16, costs=(1, 1, 1), credits=16), costs=(1, 1, 1)
    )
    assert found.global_bubble == 9
    assert found.peak_activations == (10, 7, 4, 1)


@each(("limit", "bubble"), [(1, 144), (2, 51), (3, 24), (4, 9)])
def test_too_few_credits_cost_dearly(limit, bubble):
    found = dynamic(stages=4, microbatches=16, costs=(1, 1, 1), credits=limit)
    assert simulate(found, costs=(1, 1, 1)).global_bubble == bubble


def test_split_backwards_need_a_list():
    """Doing what is ready misses the bubble of ZB-H1, which p microbatches a device allow."""
    missed = 0
    for p, costs in product((2, 3, 4, 6, 8), RATIOS):
        found = dynamic(stages=p, microbatches=3 * p, costs=costs, credits=p, split=True)
        listed = simulate("zb-h1", stages=p, microbatches=3 * p, costs=costs)
        missed += simulate(found, costs=costs).global_bubble != listed.global_bubble
    assert missed == 21
    found = dynamic(stages=4, microbatches=12, costs=(1, 1, 1), credits=4, split=True)
    assert simulate(found, costs=(1, 1, 1)).global_bubble == 5


@each("p", [2, 3, 4, 6, 8])
def test_split_backwards_with_twice_the_credits_leave_no_bubble_in_spans(p):
    found = dynamic(stages=p, microbatches=3 * p, costs=(1, 1, 1), credits=2 * p - 1, split=True)
    assert simulate(found, costs=(1, 1, 1)).span_bubble == 0
