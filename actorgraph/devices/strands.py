"""Strands: parallel execution of a table's rows by several threads, without Python and the GIL.

A strand is a list of *pieces*; a piece is a range of consecutive rows, with a list of the pieces,
of any strand, that it waits for.  Each thread has a strand of its own and takes its pieces in
order.  Where its strand has ended or its next piece must wait, it takes one of another strand.
The threads are the one that called the walk, and helpers (`helpers`) that join it meanwhile.
`lower.strands` decides what the pieces are; this module knows nothing of graphs.

Invariants:

- A piece is *taken* once, by the thread whose compare-and-swap moves the word `next` of its strand
  past it, and only when all pieces that it waits for are done.  So no thread holds a piece and
  waits.
- There is a topological order of all pieces in which each strand is in its own order.  So the first
  piece in it that is not done has been taken or can be taken: no deadlock.
- A piece is done when its word equals the number of the walk, which is stored after its last row.
- The last row of a piece tests the error flags itself, so a thread leaves none to another piece.
- The walk returns when all threads have left it: later no thread reads these words or writes into
  the table's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64
from functools import cache
from itertools import accumulate
from time import perf_counter
from typing import Any, final

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.helpers import HELPERS, SHARE
from actorgraph.devices.trials import Trial
from actorgraph.devices.walk_text import loaded
from actorgraph.runs import AbstractRun

_GRACE, _PATIENCE = 30, 3000
"""Polls of the own strand's next piece before other strands are tried, some 1 us; polls of all
strands before the thread yields its core."""

_HEAD = loaded("strands.words", "*begin *rows *yield strands *pieces *waits *done")
_HEAD += "".join([
    f"\n  %{name}.at = getelementptr i64, ptr %strands.words, i64 {place}"
    for place, name in enumerate("walk stop raised ticket block run".split(), 7)
])  # fmt: skip
_FIRST = 16
"""Layout of the words: 7 constants; the number of the walk, the code that stops it early, the error
flags raised, the threads that joined, its block and run; from `_FIRST` on the strands' words."""

_HELPED = 8 * native.HELPED
"""A walk has this word of its block for itself, as threads that walk a table at once are timed each
for itself."""

_STRAND_WORDS = 8
"""Words of a strand, one cache line: its next piece, its first one, and the end."""

_PIECE_WORDS = 4
"""Words of a piece: first row and end, begin and end in `waits`."""


_TEXT = f"""
define i64 @begin(ptr %strands.words, ptr %block, ptr %run) {{
entry:
{_HEAD}
{loaded("block", "*helped", native.HELPED)}
  %alone = icmp eq ptr %helped, null
  br i1 %alone, label %in.turn, label %together
in.turn:
{loaded("block", "computing", 8)}
  %flags = call i64 %rows(ptr %block, ptr %run, i64 0, i64 %computing, i64 %computing, i64 0)
  ret i64 %flags
together:
  %walk = load i64, ptr %walk.at
  %walk.next = add i64 %walk, 1
  store i64 %walk.next, ptr %walk.at
  store i64 0, ptr %stop.at
  store i64 0, ptr %raised.at
  store i64 0, ptr %ticket.at
  store ptr %block, ptr %block.at
  store ptr %run, ptr %run.at
  br label %each
each:
  %s = phi i64 [0, %together], [%s.next, %each]
  %s.words = mul i64 %s, {_STRAND_WORDS}
  %s.place = add i64 %s.words, {_FIRST}
  %next.at = getelementptr i64, ptr %strands.words, i64 %s.place
  %first.at = getelementptr i64, ptr %next.at, i64 1
  %first = load i64, ptr %first.at
  store i64 %first, ptr %next.at
  %s.next = add i64 %s, 1
  %more = icmp slt i64 %s.next, %strands
  br i1 %more, label %each, label %go
go:
  call void @share(ptr %helped, ptr @strand, ptr %strands.words)
  %stop = load i64, ptr %stop.at
  %raised = load i64, ptr %raised.at
  %stopped = icmp ne i64 %stop, 0
  %told = select i1 %stopped, i64 %stop, i64 %raised
  ret i64 %told
}}

define void @strand(ptr %strands.words) {{
entry:
{_HEAD}
  %walk = load i64, ptr %walk.at
  %block = load ptr, ptr %block.at
  %run = load ptr, ptr %run.at
{loaded("block", "*clear *test mask.long", 5)}
  %mask = trunc i64 %mask.long to i32
  %cleared = call i32 %clear(i32 %mask)
  %came = atomicrmw add ptr %ticket.at, i64 1 seq_cst
  %own = urem i64 %came, %strands
  br label %look
look:
  %looks = phi i64 [0, %entry], [0, %taken.over], [%looks.next, %again], [%looks.next, %let]
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %ends = icmp ne i64 %stop, 0
  br i1 %ends, label %over, label %other
other:
  %k = phi i64 [0, %look], [%k.next, %next.strand]
  %left = phi i64 [0, %look], [%left.next, %next.strand]
  %place.far = add i64 %own, %k
  %s = urem i64 %place.far, %strands
  %s.words = mul i64 %s, {_STRAND_WORDS}
  %s.place = add i64 %s.words, {_FIRST}
  %next.at = getelementptr i64, ptr %strands.words, i64 %s.place
  %end.at = getelementptr i64, ptr %next.at, i64 2
  %end = load i64, ptr %end.at
  %next = load atomic i64, ptr %next.at acquire, align 8
  %ended = icmp sge i64 %next, %end
  br i1 %ended, label %next.strand, label %known
known:
  %piece.words = mul i64 %next, {_PIECE_WORDS}
  %piece = getelementptr i64, ptr %pieces, i64 %piece.words
{loaded("piece", "row row.end wait wait.end")}
  br label %waiting
waiting:
  %w = phi i64 [%wait, %known], [%w.next, %waits.not]
  %ready = icmp eq i64 %w, %wait.end
  br i1 %ready, label %take, label %is.done
is.done:
  %for.at = getelementptr i64, ptr %waits, i64 %w
  %for = load i64, ptr %for.at
  %for.done.at = getelementptr i64, ptr %done, i64 %for
  %done.in = load atomic i64, ptr %for.done.at acquire, align 8
  %is.there = icmp eq i64 %done.in, %walk
  br i1 %is.there, label %waits.not, label %waits.still
waits.not:
  %w.next = add i64 %w, 1
  br label %waiting
waits.still:
  %is.own = icmp eq i64 %k, 0
  %soon = icmp slt i64 %looks, {_GRACE}
  %stays = and i1 %is.own, %soon
  br i1 %stays, label %pause, label %next.strand
next.strand:
  %left.more = phi i64 [0, %other], [1, %waits.still]
  %left.next = or i64 %left, %left.more
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %strands
  br i1 %more, label %other, label %all
all:
  %nothing = icmp eq i64 %left.next, 0
  br i1 %nothing, label %over, label %pause
pause:
  %looks.next = add i64 %looks, 1
  call void @llvm.x86.sse2.pause()
  %long = icmp sgt i64 %looks.next, {_PATIENCE}
  br i1 %long, label %let, label %again
again:
  br label %look
let:  ; who is in a piece may wait for this core
  %yielded = call i32 %yield()
  br label %look
take:
  %behind = add i64 %next, 1
  %pair = cmpxchg ptr %next.at, i64 %next, i64 %behind seq_cst seq_cst
  %got = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %got, label %work, label %taken.over
work:
  %flags = call i64 %rows(ptr %block, ptr %run, i64 %row, i64 %row.end, i64 %row.end, i64 0)
  %failed = icmp slt i64 %flags, 0
  br i1 %failed, label %tell, label %worked
tell:
  store atomic i64 %flags, ptr %stop.at seq_cst, align 8
  br label %over
worked:
  %quiet = icmp eq i64 %flags, 0
  br i1 %quiet, label %finish, label %raise
raise:
  %before = atomicrmw or ptr %raised.at, i64 %flags seq_cst
  br label %finish
finish:
  %own.done.at = getelementptr i64, ptr %done, i64 %next
  store atomic i64 %walk, ptr %own.done.at release, align 8
  br label %taken.over
taken.over:
  br label %look
over:
  ret void
}}
{SHARE}"""


@cache
def _engine() -> Any:
    HELPERS.make()
    return native.engine(_TEXT)


@final
class Pieces:
    """The pieces of a table, which all its blocks share, and the trial of walks with helpers.

    - `strands`: first piece of each strand, and the end
    - `pieces`: first row and end of each piece
    - `waits`: the pieces that each piece waits for
    - `walks`: name of the routine that walks the rows of a piece
    """

    def __init__(
        self, strands: Sequence[int], pieces: Sequence[tuple[int, int]],
        waits: Sequence[Sequence[int]], walks: str = "rows",
    ) -> None:  # fmt: skip
        self.walks = walks
        self.strands, self.pieces, self.waits = strands, pieces, waits
        ends = [0, *accumulate(map(len, waits))]
        self._lines = np.array([*zip(*zip(*pieces), ends, ends[1:])], np.int64)
        self._waits = np.array([one for some in waits for one in some], np.int64)
        self._engine = _engine()
        self.trial = Trial(HELPERS.are_awake)

    def words(self) -> tuple[native.Words, Any]:
        """Return the words of a block's strands, and the arrays that must live as long."""
        done = np.zeros(len(self.pieces), np.int64)
        count = len(self.strands) - 1
        words = np.zeros(_FIRST + _STRAND_WORDS * count, np.int64)
        owned = self._lines, self._waits, done
        arrays = [one.ctypes.data for one in owned]
        begin = self._engine.get_function_address("begin")
        words[:7] = begin, native.RUNTIME.routine(self.walks), HELPERS.let, count, *arrays
        for number in range(count):
            place = _FIRST + _STRAND_WORDS * number
            words[place + 1 : place + 3] = self.strands[number : number + 2]
        return words, owned

    def walk(
        self, arrays: tuple[Any, ...], block: int, run: AbstractRun, alone: int | None = None,
        times: int = 1,
    ) -> int:  # fmt: skip
        """Walk as `native.Runtime.walk` does, with helpers if the trial found that faster.

        Without helpers it walks the block `alone`, if there is one.  `times` is the number of its
        iterations.
        """
        walk, began = native.RUNTIME.walk, perf_counter()
        assert walk is not None, "there are no pieces without it"
        helped = HELPERS.call() if self.trial.is_together() else 0
        c_int64.from_address(block + _HELPED).value = helped
        flags = walk(arrays, block if helped or alone is None else alone, run)
        self.trial.note(bool(helped), perf_counter() - began, times)
        return flags
