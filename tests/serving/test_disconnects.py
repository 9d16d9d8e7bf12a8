"""`cancel_on_disconnect`: handlers of other people's applications."""

import anyio
import anyio.lowlevel
import pytest

from actorgraph.serving import ClientGone, cancel_on_disconnect

pytestmark = pytest.mark.anyio


class Request:
    """What a request of Starlette is here: its body has been read, and it has `receive`."""

    def __init__(self):
        self.gone = anyio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}


@pytest.mark.parametrize("of", ["request", "receive"])
async def test_who_stays_is_answered(of):
    request = Request()

    async def work():
        return 42

    source = request if of == "request" else request.receive
    assert await cancel_on_disconnect(source, work) == 42


async def test_work_is_cancelled_when_its_client_leaves():
    request, ended = Request(), []

    async def work():
        request.gone.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    with pytest.raises(ClientGone, match="the client left"):
        await cancel_on_disconnect(request, work)
    assert ended == [True]


async def test_an_error_is_raised_by_itself():
    async def work():
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        await cancel_on_disconnect(Request(), work)


async def test_who_is_cancelled_from_outside_is_cancelled():
    with anyio.CancelScope() as scope:
        scope.cancel()
        await cancel_on_disconnect(Request(), anyio.sleep_forever)
    assert scope.cancelled_caught


async def test_a_host_that_fails_to_tell_ends_the_work_with_its_error():
    async def broken():
        raise OSError("the host broke")

    with pytest.raises((OSError, ExceptionGroup)) as caught:
        await cancel_on_disconnect(broken, anyio.sleep_forever)
    assert "the host broke" in repr(caught.value)


async def test_who_leaves_when_the_work_has_ended_harms_nobody():
    request = Request()

    async def work():
        return 42

    for _ in range(20):
        assert await cancel_on_disconnect(request, work) == 42
        request.gone.set()  # the next ones find it so from their start
        await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
