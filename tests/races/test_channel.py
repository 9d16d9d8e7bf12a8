"""A channel between two threads: nothing is lost, nothing overtakes, the bound holds."""

from __future__ import annotations

import pytest

from actorgraph.channels import Channel, Receiver
from actorgraph.errors import BrokenChannelError, WouldBlock
from tests.races._interleave import assert_found, assert_holds, pause, planted

MESSAGES = 6


class Exchange:
    """One thread sends and closes, the other receives until the channel is broken."""

    receiver = Receiver

    def __init__(
        self, *, credited: bool = True, counted: bool = False, stop_after: int = MESSAGES + 1
    ):
        self.channel = Channel(2, credited=credited, counted=counted)
        self.stop_after = stop_after
        self.sent: list[int] = []
        self.received: list[int] = []
        self.deepest = 0

    def threads(self):
        return [self.send, self.receive]

    def send(self):
        sender = self.channel.sender
        for number in range(MESSAGES):
            while True:
                try:
                    sender.send_nowait(number)
                    break
                except WouldBlock:
                    pause()
                except BrokenChannelError:
                    return
            self.sent.append(number)
            self.deepest = max(self.deepest, len(self.channel.messages))
        sender.close()

    def receive(self):
        receiver = self.receiver(self.channel)
        while len(self.received) < self.stop_after:
            try:
                self.received.append(receiver.receive_nowait())
            except WouldBlock:
                pause()
            except BrokenChannelError:
                return
        receiver.close()

    def check(self):
        channel = self.channel
        assert self.received + list(channel.messages) == self.sent
        assert self.deepest <= channel.capacity
        if channel.credits is not None:
            assert len(channel.credits) + len(channel.messages) == channel.capacity
        if self.stop_after > MESSAGES:
            assert self.received == list(range(MESSAGES))
        else:
            assert self.received == list(range(self.stop_after))
            if not channel.sender.closed:
                with pytest.raises(BrokenChannelError, match="is gone"):
                    channel.sender.send_nowait(0)
        if channel.counted:
            statistics = channel.statistics()
            assert statistics.sent == len(self.sent)
            assert statistics.received == len(self.received)


def in_full() -> Exchange:
    return Exchange()


def without_credits() -> Exchange:
    return Exchange(credited=False)


def counted() -> Exchange:
    return Exchange(counted=True)


def given_up() -> Exchange:
    return Exchange(stop_after=3)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [in_full, without_credits, counted, given_up])
def test_messages_arrive_once_in_order_and_within_the_bound(make):
    assert_holds(make, f"channel {make.__name__}", 3000)


BUGS = {
    "the end of the sender is looked at after the queue": (
        """
        sender_gone = channel.sender.closed  # read before the pop: what was sent first still comes
        try:
            message = channel.popper()()
        except IndexError:
        """,
        """
        try:
            message = channel.popper()()
        except IndexError:
            sender_gone = channel.sender.closed
        """,
    ),
    "the credit is given back before the message has left": (
        """
        try:
            message = channel.popper()()
        except IndexError:
        """,
        """
        if channel.messages:
            channel.credits.append(None)
            return channel.popper()()
        try:
            message = channel.popper()()
        except IndexError:
        """,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    class Planted(Receiver):
        __slots__ = ()
        receive_nowait = planted(Receiver.receive_nowait, *BUGS[bug])

    class Wrong(Exchange):
        receiver = Planted

    assert_found(Wrong, f"channel, {bug}", 3000)
