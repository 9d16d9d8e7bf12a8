"""`Stream`: many runs of one machine, pipelined, bounded, in order.

A stream starts a run for each item of its source while fewer than `max_in_flight` of its runs are
outstanding: started, and not yet returned to the consumer.  So a slow consumer throttles the source
and memory stays bounded; a slow source makes the consumer wait.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import anyio

from actorgraph.errors import FeedError, GraphError, MemoryLimitError
from actorgraph.machines.calls import spawn
from actorgraph.machines.event_loops import WakeUp, checkpoint, loop_notifier, refuse_in_loop
from actorgraph.machines.run import Run
from actorgraph.options import flag, positive


class Stream:
    """An iterator of runs, for ``for`` and for ``async for``; made by `Machine.stream`.

    ``with`` and ``async with`` close it at their end, and its source if that can be closed.

    Runs come in the order of the source, or with ``ordered=False`` as they finish.  A failed run
    raises in its turn; then, as on break, error or cancellation, the outstanding runs are
    cancelled.  If the source fails, the runs before it are returned first.
    """

    _closed = True  # for `__del__`, if `__init__` raises

    def __init__(
        self, start: Callable[[Any], Run], source: Iterable[Any] | AsyncIterable[Any],
        max_in_flight: int, ordered: bool,
    ) -> None:  # fmt: skip
        if isinstance(source, Mapping) or not isinstance(source, (Iterable, AsyncIterable)):
            raise FeedError(f"a stream takes an iterable of feeds, got {type(source).__name__}")
        self._start, self._source = start, source
        self._limit = positive("max_in_flight", max_in_flight)
        self._ordered = flag("ordered", ordered)
        self._outstanding: deque[Run] = deque()
        self._finished: deque[Run] = deque()
        self._items: Iterator[Any] | None = None
        self._items_taken, self._exhausted, self._closed = 0, False, False
        self._failure: BaseException | None = None
        # Plain threads wait for this if runs come as they finish; a task is woken by `_notify`.
        self._changed = threading.Condition()
        self._notify: Callable[[], object] | None = None
        self._fetch: _Fetch | None = None

    # -- both ways ------------------------------------------------------------------------------

    def _launch(self, feeds: Any) -> None:
        self._items_taken += 1
        try:
            run = self._start(feeds)
        except (FeedError, MemoryLimitError) as error:
            error.add_note(f"item {self._items_taken} of the stream's source, counted from 1")
            raise
        self._outstanding.append(run)
        # Weak, for dropping the stream ends it.
        run.add_done_callback(partial(_tell, weakref.ref(self), run))

    def _fill(self) -> None:
        """Start runs while fewer than the limit are outstanding and a plain source has items."""
        if self._items is None:
            assert isinstance(self._source, Iterable)
            self._items = iter(self._source)
        while not self._exhausted and len(self._outstanding) < self._limit:
            try:
                self._launch(next(self._items))
            except StopIteration:
                self._exhausted = True
            except Exception as error:  # noqa: BLE001 - raised after the runs before it
                self._exhausted, self._failure = True, error

    def _take(self) -> Run | None:
        """Return the run whose turn it is, None if it has not ended."""
        if not self._ordered:
            while self._finished:
                run = self._finished.popleft()
                if run in self._outstanding:
                    self._outstanding.remove(run)
                    return run
            return None
        if self._outstanding and self._outstanding[0].done:
            return self._outstanding.popleft()
        return None

    def _over(self) -> bool:
        return self._exhausted and not self._outstanding

    def _deliver(self, run: Run) -> Run:
        try:
            run._raise_if_failed()
        except BaseException:
            self.close()
            raise
        return run

    def close(self) -> None:
        """Cancel the outstanding runs and end, without waiting for operations that are running."""
        self._closed = self._exhausted = True
        if self._fetch is not None:
            self._fetch.cancel()
        while self._outstanding:
            self._outstanding.pop().cancel()
        self._finished.clear()

    def _close_items(self) -> None:
        """Close a plain source if it can be closed, such as a generator."""
        if isinstance(self._items, Iterator) and hasattr(self._items, "close"):
            self._items.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    # -- for plain threads ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not isinstance(self._source, Iterable):
            raise GraphError("the source is asynchronous; write `async with` for this stream")
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
        self._close_items()

    def __iter__(self) -> Self:
        if not isinstance(self._source, Iterable):
            raise GraphError("the source is asynchronous; write `async for` over this stream")
        return self

    def __next__(self) -> Run:
        refuse_in_loop("iterating", "async for")
        if not self._closed:
            self._fill()
        if self._over():
            self._end()
            raise StopIteration
        try:
            run = self._wait()
        except BaseException:
            self.close()
            raise
        return self._deliver(run)

    def _wait(self) -> Run:
        if self._ordered:
            first = self._outstanding[0]
            if not first.done:
                first.core.help(first)
                first._wait()
        while (run := self._take()) is None:
            with self._changed:
                if not self._finished:
                    self._changed.wait()
        return run

    def _end(self) -> None:
        self._closed = True
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # -- for event loops ------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Run:
        waiter, waited = None, False
        try:
            while True:
                if not self._closed:
                    self._fill_async()
                run = self._take()
                if run is not None:
                    if not waited:
                        await checkpoint()
                    return self._deliver(run)
                if self._over():
                    self._end()
                    raise StopAsyncIteration
                if waiter is None:  # then check again: a run may have ended before
                    waiter = self._notify = WakeUp()
                else:
                    await waiter
                    waiter, waited = None, True
        except Exception:
            raise
        except BaseException:  # cancelled
            self.close()
            raise

    def _fill_async(self) -> None:
        if isinstance(self._source, Iterable):
            self._fill()
            return
        if self._fetch is None:
            self._fetch = _Fetch(aiter(self._source), weakref.ref(self), loop_notifier())
        if not self._exhausted and len(self._outstanding) < self._limit:
            self._fetch.start()

    def _fetched(self, feeds: Any) -> None:
        """Start the run of an item of an asynchronous source, and fetch the next item."""
        try:
            self._launch(feeds)
        except Exception as error:  # noqa: BLE001 - raised in its turn
            self._exhausted, self._failure = True, error
        room = len(self._outstanding) < self._limit
        if self._fetch is not None and room and not self._exhausted:
            self._fetch.start()
        self._tell()

    def _drained(self, failure: BaseException | None) -> None:
        self._exhausted, self._failure = True, failure
        self._tell()

    async def aclose(self) -> None:
        """Cancel the outstanding runs, wait for their end, and close the source if it can be."""
        runs = list(self._outstanding)
        self.close()
        with anyio.CancelScope(shield=True):
            for run in runs:
                if not run.done:
                    await run._ended()
            if self._fetch is not None:
                await self._fetch.ended.wait()
            close = getattr(self._source, "aclose", None)
            if close is not None:
                await close()
        self._close_items()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    # -- notification -----------------------------------------------------------------------------

    def _tell(self, run: Run | None = None) -> None:
        """Wake whoever waits, if it is its turn: a run has ended, or the source has."""
        if not self._ordered:
            with self._changed:
                if run is not None:
                    self._finished.append(run)
                self._changed.notify_all()
        elif run is not None and not self._first_is_done():
            return
        if self._notify is not None:
            self._notify()

    def _first_is_done(self) -> bool:
        try:
            return self._outstanding[0].done
        except IndexError:  # taken meanwhile
            return True


def _tell(stream: weakref.ref[Stream], run: Run) -> None:
    found = stream()
    if found is not None:
        found._tell(run)


class _Fetch:
    """Takes items from an asynchronous source, one at a time, in a task of its own.

    The consumer may be dropped meanwhile, so the task refers to the stream weakly.  The source is
    cancelled while it makes an item only if the stream ends.
    """

    def __init__(
        self, items: AsyncIterator[Any], stream: weakref.ref[Stream],
        notify: Callable[[Callable[[], object]], object],
    ) -> None:  # fmt: skip
        self._items, self._stream, self._notify = items, stream, notify
        self._running = self._cancelled = False
        self._scope: anyio.CancelScope | None = None
        self.ended = anyio.Event()
        self.ended.set()

    def start(self) -> None:
        """Fetch the next item, unless a fetch is under way."""
        if not self._running:
            self._running = True
            self.ended = anyio.Event()
            self._notify(partial(spawn, self._take))

    def cancel(self) -> None:
        """Cancel the fetch; may be called from any thread."""
        self._cancelled = True
        if self._scope is not None and self._running:
            self._notify(self._scope.cancel)

    async def _take(self) -> None:
        feeds: Any = None
        ended, failure = True, None
        try:
            with anyio.CancelScope() as self._scope:
                if not self._cancelled:
                    feeds = await anext(self._items)
                    ended = False
        except StopAsyncIteration:
            pass
        except Exception as error:  # noqa: BLE001 - raised after the runs before it
            failure = error
        finally:
            self._running = False
            self.ended.set()
        stream = self._stream()
        if stream is None or stream._closed:
            return
        if ended:
            stream._drained(failure)
        else:
            stream._fetched(feeds)
