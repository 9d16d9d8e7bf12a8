"""Channels: first in, first out, bounded by credits, and counted where that is asked for."""

from __future__ import annotations

import pytest

from actorgraph import channels
from actorgraph.channels import Channel
from tests._each import each


@each("capacity", [0, -1, 1.0, "2", None])
def test_a_capacity_that_is_no_positive_int_is_refused(capacity):
    with pytest.raises(ValueError, match="capacity of 'x -> y' .* int of at least 1"):
        Channel(capacity, "x -> y")


@pytest.mark.parametrize("counted", [True, False])
def test_messages_leave_in_the_order_in_which_they_came(counted):
    channel = Channel(3, counted=counted)
    for message in "abc":
        channel.queue.append(message)
    assert [channel.queue.popleft() for _ in range(3)] == ["a", "b", "c"]


def test_a_channel_begins_with_a_credit_for_each_message_that_it_may_hold():
    assert len(Channel(3).credits) == 3


def test_a_channel_that_something_else_bounds_has_no_credits():
    assert Channel(2, credited=False).credits is None


def test_statistics_tell_state_always_and_counts_where_asked_for():
    channel = Channel(4, "x -> y", "reverse")
    channel.queue.append(1)
    found = channel.statistics()
    assert (found.name, found.direction, found.capacity, found.depth) == ("x -> y", "reverse", 4, 1)
    assert found.sent is found.received is found.peak_depth is found.waited_s is None


def test_a_counted_channel_counts_messages_its_peak_and_their_wait(monkeypatch):
    times = iter([1.0, 2.0, 4.0, 7.0, 8.0])
    monkeypatch.setattr(channels, "perf_counter", lambda: next(times))
    channel = Channel(4, counted=True)
    for message in range(3):
        channel.queue.append(message)
    channel.queue.popleft()
    channel.queue.popleft()
    found = channel.statistics()
    assert (found.sent, found.received, found.depth, found.peak_depth) == (3, 2, 1, 3)
    assert (found.waited_s, found.longest_wait_s) == (12.0, 6.0)


def test_the_functions_for_actors_are_those_of_the_queue_unless_the_channel_counts():
    channel = Channel(2)
    assert channel.queue.append == channel.messages.append
    assert channel.queue.popleft == channel.messages.popleft


def test_a_channel_prints_its_name_depth_and_capacity():
    channel = Channel(3, "x -> y")
    channel.queue.append(1)
    assert repr(channel) == "<Channel 'x -> y' 1/3>"
