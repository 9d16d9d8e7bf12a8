"""Channels: first in, first out, bounded, and four reasons for refusal told apart."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actorgraph import channels
from actorgraph.channels import Channel
from actorgraph.errors import BrokenChannelError, ClosedChannelError, WouldBlock


@pytest.mark.parametrize("capacity", [0, -1, 1.0, "2", None])
def test_a_capacity_that_is_no_positive_int_is_refused(capacity):
    with pytest.raises(ValueError, match="capacity of 'x -> y' .* int of at least 1"):
        Channel(capacity, "x -> y")


@pytest.mark.parametrize("credited", [True, False])
def test_messages_leave_in_the_order_in_which_they_came(credited):
    channel = Channel(3, credited=credited)
    for message in "abc":
        channel.sender.send_nowait(message)
    assert [channel.receiver.receive_nowait() for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("credited", [True, False])
def test_a_full_channel_would_block_its_sender_until_a_message_leaves(credited):
    channel = Channel(2, "x -> y", credited=credited)
    channel.sender.send_nowait(1)
    channel.sender.send_nowait(2)
    with pytest.raises(WouldBlock, match=r"'x -> y' is full \(2\)"):
        channel.sender.send_nowait(3)
    assert channel.receiver.receive_nowait() == 1
    channel.sender.send_nowait(4)
    assert [channel.receiver.receive_nowait() for _ in range(2)] == [2, 4]


def test_an_empty_channel_would_block_its_receiver():
    with pytest.raises(WouldBlock, match="'x -> y' is empty"):
        Channel(1, "x -> y").receiver.receive_nowait()


def test_a_receiver_gets_what_was_sent_before_the_sender_closed_and_is_then_broken():
    channel = Channel(2, "x -> y")
    channel.sender.send_nowait("last")
    channel.sender.close()
    assert channel.receiver.receive_nowait() == "last"
    with pytest.raises(BrokenChannelError, match="the sender of 'x -> y' is gone"):
        channel.receiver.receive_nowait()


def test_a_sender_without_a_receiver_is_broken_even_where_the_channel_is_full():
    channel = Channel(1, "x -> y")
    channel.sender.send_nowait(1)
    channel.receiver.close()
    with pytest.raises(BrokenChannelError, match="the receiver of 'x -> y' is gone"):
        channel.sender.send_nowait(2)


def test_an_end_that_was_closed_says_so_itself_before_it_speaks_of_the_other():
    channel = Channel(1, "x -> y")
    channel.close()
    channel.close()
    with pytest.raises(ClosedChannelError, match="the sender of 'x -> y' was closed"):
        channel.sender.send_nowait(1)
    with pytest.raises(ClosedChannelError, match="the receiver of 'x -> y' was closed"):
        channel.receiver.receive_nowait()


def test_credits_and_messages_together_are_the_capacity():
    channel = Channel(3)
    assert channel.credits is not None
    channel.sender.send_nowait(1)
    channel.sender.send_nowait(2)
    assert len(channel.credits) == 1
    channel.receiver.receive_nowait()
    assert len(channel.credits) == 2


def test_a_refused_message_costs_no_credit():
    channel = Channel(1)
    assert channel.credits is not None
    channel.receiver.close()
    with pytest.raises(BrokenChannelError, match="is gone"):
        channel.sender.send_nowait(1)
    assert len(channel.credits) == 1


def test_a_channel_that_something_else_bounds_has_no_credits():
    assert Channel(2, credited=False).credits is None


def test_statistics_tell_state_always_and_counts_where_asked_for():
    channel = Channel(4, "x -> y", "reverse")
    channel.sender.send_nowait(1)
    found = channel.statistics()
    assert (found.name, found.direction, found.capacity, found.depth) == ("x -> y", "reverse", 4, 1)
    assert found.sent is found.received is found.peak_depth is found.waited_s is None
    assert found.sender_open
    assert found.receiver_open
    channel.sender.close()
    assert not channel.statistics().sender_open
    assert channel.statistics().receiver_open


def test_a_counted_channel_counts_messages_its_peak_and_their_wait(monkeypatch):
    times = iter([1.0, 2.0, 4.0, 7.0])
    monkeypatch.setattr(channels, "perf_counter", lambda: next(times))
    channel = Channel(4, counted=True)
    for message in range(3):
        channel.sender.send_nowait(message)
    channel.receiver.receive_nowait()
    found = channel.statistics()
    assert (found.sent, found.received, found.depth, found.peak_depth) == (3, 1, 2, 3)
    assert found.waited_s == 6.0


def test_the_functions_for_actors_are_those_of_the_queue_unless_the_channel_counts():
    channel = Channel(2)
    assert channel.appender() == channel.messages.append
    assert channel.popper() == channel.messages.popleft
    counted = Channel(2, counted=True)
    counted.appender()("a")
    assert counted.statistics().sent == 1
    assert counted.popper()() == "a"
    assert counted.statistics().received == 1


def test_a_channel_prints_its_name_depth_and_capacity():
    channel = Channel(3, "x -> y")
    channel.sender.send_nowait(1)
    assert repr(channel) == "<Channel 'x -> y' 1/3>"


class ChannelAgainstList(RuleBasedStateMachine):
    """A channel does what a list with two flags does."""

    @initialize(capacity=st.integers(1, 4), credited=st.booleans(), counted=st.booleans())
    def open(self, capacity, credited, counted):
        self.channel = Channel(capacity, credited=credited, counted=counted)
        self.model: list[int] = []
        self.sent = self.received = self.peak = 0
        self.sending = self.receiving = True

    @rule(message=st.integers())
    def send(self, message):
        refusal = (
            ClosedChannelError
            if not self.sending
            else BrokenChannelError
            if not self.receiving
            else WouldBlock
            if len(self.model) == self.channel.capacity
            else None
        )
        if refusal is not None:
            with pytest.raises(refusal, match="channel"):
                self.channel.sender.send_nowait(message)
            return
        self.channel.sender.send_nowait(message)
        self.model.append(message)
        self.sent += 1
        self.peak = max(self.peak, len(self.model))

    @rule()
    def receive(self):
        refusal = (
            ClosedChannelError
            if not self.receiving
            else None
            if self.model
            else WouldBlock
            if self.sending
            else BrokenChannelError
        )
        if refusal is not None:
            with pytest.raises(refusal, match="channel"):
                self.channel.receiver.receive_nowait()
            return
        assert self.channel.receiver.receive_nowait() == self.model.pop(0)
        self.received += 1

    @precondition(lambda self: self.sent > 2)
    @rule()
    def close_the_sender(self):
        self.channel.sender.close()
        self.sending = False

    @precondition(lambda self: self.received > 2)
    @rule()
    def close_the_receiver(self):
        self.channel.receiver.close()
        self.receiving = False

    @invariant()
    def agrees(self):
        channel = self.channel
        assert list(channel.messages) == self.model
        if channel.credits is not None:
            assert len(channel.credits) == channel.capacity - len(self.model)
        found = channel.statistics()
        assert (found.depth, found.sender_open, found.receiver_open) == (
            len(self.model),
            self.sending,
            self.receiving,
        )
        if channel.counted:
            assert (found.sent, found.received, found.peak_depth) == (
                self.sent,
                self.received,
                self.peak,
            )


TestChannelAgainstList = ChannelAgainstList.TestCase
TestChannelAgainstList.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True
)
