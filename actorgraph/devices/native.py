"""The interpreter of tables: machine code that walks rows without the interpreter of Python.

A row says which inner loop is called on which addresses (see `lower.table`).  The text below is
compiled for this processor by llvmlite, in the background, once: the object is kept beside other
files of the cache.  Where llvmlite is missing, or anything is not as it is expected, there is none.

What is handed over is a tuple of arrays, whose memory the machine code finds through the public
fields of NumPy's struct, and a *block* that the caller owns.  Every array is checked before the
first row: its type, dtype, number of elements, and that it is contiguous, aligned and writable if
it has to be.  One that is not declines the call, and nothing has been written then.

Rows may be walked several times, while a byte that they write is not 0: these are iterations of a
loop (`lower.loop_table`), of which each finds arrays some bytes further than the one before.

The flags of floating-point errors are cleared first, and looked at after a row where the next one
clears them, as some of NumPy's loops do, or hears of others.  Between rows the machine code looks
whether the run is dead: the word of `AbstractRun.dead` is not that of None any more.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import struct
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, final

import numpy as np

from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.files import write_whole
from actorgraph.options import NATIVE
from actorgraph.runs import AbstractRun

__all__ = [
    "ALL_ERRORS", "DEAD", "DECLINED", "ERRORS", "FIRST", "FLAG", "HEEDLESS", "IDLE", "ITEMS",
    "LATER", "MADE", "MOST_ARGUMENTS", "OFFSETS", "ROW_WORDS", "RUNTIME", "Runtime",
    "TRIPS", "Words", "block", "engine", "expected", "flags", "is_ignored", "spec", "switched_off",
]  # fmt: skip

MOST_ARGUMENTS = 4
"""Arrays that one row may call its loop with; behind them it finds the bases of the walk."""

Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""What machine code reads: numbers and addresses."""

ROW_WORDS = 6 + 3 * MOST_ARGUMENTS
"""Words of a row: loop, its data, how often it is called, addresses of its dims and strides; then
base, offset, and stride from call to call of each argument; last the flags that are heard, or
`LATER`."""

_SPEC_WORDS = 5
_FIRST_BASE = 16
DECLINED = -1
"""What a walk returns that has done nothing, because an array is not as it was planned."""
DEAD = -2
"""What a walk returns that has found its run dead."""
HEEDLESS = 11
"""The word of a block that says whether results are copied in spite of errors."""
FIRST = 12
"""The word that is the position of the first iteration."""
TRIPS = 13
"""The word that is how many iterations there are at most."""
FLAG = 14
"""The word that is where the byte lies that asks for another iteration."""
MADE = 15
"""The word that says how many iterations were made."""
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400

ERRORS = {"invalid": 1, "divide": 4, "over": 8, "under": 16}
"""The flags of x86, by the names of `np.errstate`."""

LATER = -1
"""What a row has in place of flags that does not look for them: a later one does."""

ALL_ERRORS = sum(ERRORS.values())
"""All of them."""

OFFSETS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Bytes into an array object, see NumPy's `PyArrayObject_fields`."""
ITEMS = 24
"""Bytes into a tuple object where the items begin."""

_TEXT = """
define void @copy(ptr %args, ptr %dims, ptr %steps, ptr %data) {{
  %from = load ptr, ptr %args
  %into.at = getelementptr ptr, ptr %args, i64 1
  %into = load ptr, ptr %into.at
  %size = load i64, ptr %dims
  call void @llvm.memcpy.p0.p0.i64(ptr %into, ptr %from, i64 %size, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @walk(ptr %tuple, ptr %block, ptr %run) {{
entry:
  %args = alloca [{args} x ptr]
  %specs = load ptr, ptr %block
  %count.at = getelementptr i64, ptr %block, i64 1
  %count = load i64, ptr %count.at
  %rows.at = getelementptr i64, ptr %block, i64 2
  %rows = load ptr, ptr %rows.at
  %end.at = getelementptr i64, ptr %block, i64 3
  %end = load i64, ptr %end.at
  %type.at = getelementptr i64, ptr %block, i64 4
  %type = load i64, ptr %type.at
  %clear.at = getelementptr i64, ptr %block, i64 5
  %clear = load ptr, ptr %clear.at
  %test.at = getelementptr i64, ptr %block, i64 6
  %test = load ptr, ptr %test.at
  %mask.at = getelementptr i64, ptr %block, i64 7
  %mask.long = load i64, ptr %mask.at
  %mask = trunc i64 %mask.long to i32
  %computing.at = getelementptr i64, ptr %block, i64 8
  %computing = load i64, ptr %computing.at
  %dead.offset.at = getelementptr i64, ptr %block, i64 9
  %dead.offset = load i64, ptr %dead.offset.at
  %dead.at = getelementptr i8, ptr %run, i64 %dead.offset
  %none.at = getelementptr i64, ptr %block, i64 10
  %none = load i64, ptr %none.at
  %heedless.at = getelementptr i64, ptr %block, i64 {heedless}
  %heedless = load i64, ptr %heedless.at
  store i64 0, ptr %heedless.at
  %heeds = icmp eq i64 %heedless, 0
  %first.at = getelementptr i64, ptr %block, i64 {first}
  %first = load i64, ptr %first.at
  %trips.at = getelementptr i64, ptr %block, i64 {trips}
  %trips = load i64, ptr %trips.at
  %flag.at = getelementptr i64, ptr %block, i64 {flag}
  %flag = load ptr, ptr %flag.at
  %made.at = getelementptr i64, ptr %block, i64 {made}
  %bases = getelementptr i64, ptr %block, i64 {first_base}
  %items = getelementptr i8, ptr %tuple, i64 {items}
  %args.bases = getelementptr ptr, ptr %args, i64 {bases}
  store ptr %bases, ptr %args.bases
  br label %arrays
arrays:
  %i = phi i64 [0, %entry], [%i.next, %accept]
  %arrays.end = icmp eq i64 %i, %count
  br i1 %arrays.end, label %begin, label %look
look:
  %item.at = getelementptr ptr, ptr %items, i64 %i
  %item = load ptr, ptr %item.at
  %spec.words = mul i64 %i, {spec_words}
  %spec = getelementptr i64, ptr %specs, i64 %spec.words
  %item.type.at = getelementptr i8, ptr %item, i64 8
  %item.type = load i64, ptr %item.type.at
  %is.array = icmp eq i64 %item.type, %type
  br i1 %is.array, label %known, label %decline
known:
  %descr.at = getelementptr i8, ptr %item, i64 {descr}
  %descr = load i64, ptr %descr.at
  %want.descr = load i64, ptr %spec
  %same.descr = icmp eq i64 %descr, %want.descr
  %flags.at = getelementptr i8, ptr %item, i64 {flags}
  %flags = load i32, ptr %flags.at
  %flags.long = sext i32 %flags to i64
  %want.flags.at = getelementptr i64, ptr %spec, i64 2
  %want.flags = load i64, ptr %want.flags.at
  %flags.both = and i64 %flags.long, %want.flags
  %same.flags = icmp eq i64 %flags.both, %want.flags
  %data.at = getelementptr i8, ptr %item, i64 {data}
  %data = load i64, ptr %data.at
  %low.at = getelementptr i64, ptr %spec, i64 3
  %low = load i64, ptr %low.at
  %odd = and i64 %data, %low
  %even = icmp eq i64 %odd, 0
  %nd.at = getelementptr i8, ptr %item, i64 {nd}
  %nd = load i32, ptr %nd.at
  %dimensions.at = getelementptr i8, ptr %item, i64 {dimensions}
  %dimensions = load ptr, ptr %dimensions.at
  br label %sizes
sizes:
  %d = phi i32 [0, %known], [%d.next, %size]
  %elements = phi i64 [1, %known], [%elements.next, %size]
  %sizes.end = icmp eq i32 %d, %nd
  br i1 %sizes.end, label %judge, label %size
size:
  %dimension.at = getelementptr i64, ptr %dimensions, i32 %d
  %dimension = load i64, ptr %dimension.at
  %elements.next = mul i64 %elements, %dimension
  %d.next = add i32 %d, 1
  br label %sizes
judge:
  %want.at = getelementptr i64, ptr %spec, i64 1
  %want = load i64, ptr %want.at
  %same.elements = icmp eq i64 %elements, %want
  %ok.1 = and i1 %same.descr, %same.flags
  %ok.2 = and i1 %even, %same.elements
  %ok = and i1 %ok.1, %ok.2
  br i1 %ok, label %accept, label %decline
accept:
  %base.at = getelementptr i64, ptr %bases, i64 %i
  %step.at = getelementptr i64, ptr %spec, i64 4
  %step = load i64, ptr %step.at
  %shift = mul i64 %first, %step
  %base = add i64 %data, %shift
  store i64 %base, ptr %base.at
  %i.next = add i64 %i, 1
  br label %arrays
decline:
  ret i64 {declined}
begin:
  %cleared = call i32 %clear(i32 %mask)
  br label %iteration
iteration:
  %t = phi i64 [0, %begin], [%t.next, %moved]
  %raised.before = phi i32 [0, %begin], [%raised, %moved]
  br label %walking
walking:
  %r = phi i64 [0, %iteration], [%r.next, %next]
  %raised = phi i32 [%raised.before, %iteration], [%raised.next, %next]
  %rows.end = icmp eq i64 %r, %end
  br i1 %rows.end, label %turn, label %alive
alive:
  %dead = load volatile i64, ptr %dead.at
  %lives = icmp eq i64 %dead, %none
  br i1 %lives, label %computed, label %died
died:
  ret i64 {dead}
computed:
  %failed = icmp ne i32 %raised, 0
  %stops = and i1 %failed, %heeds
  %copies = icmp sge i64 %r, %computing
  %gives.up = and i1 %stops, %copies
  br i1 %gives.up, label %over, label %row
row:
  %row.words = mul i64 %r, {row_words}
  %at = getelementptr i64, ptr %rows, i64 %row.words
  %loop = load ptr, ptr %at
  %data.of.at = getelementptr i64, ptr %at, i64 1
  %data.of = load ptr, ptr %data.of.at
  %outer.at = getelementptr i64, ptr %at, i64 2
  %outer = load i64, ptr %outer.at
  %dims.at = getelementptr i64, ptr %at, i64 3
  %dims = load ptr, ptr %dims.at
  %steps.at = getelementptr i64, ptr %at, i64 4
  %steps = load ptr, ptr %steps.at
{fetch}
  br label %again
again:
  %o = phi i64 [0, %row], [%o.next, %again]
{place}
  call void %loop(ptr %args, ptr %dims, ptr %steps, ptr %data.of)
  %o.next = add i64 %o, 1
  %more = icmp slt i64 %o.next, %outer
  br i1 %more, label %again, label %done
done:
  %heard.at = getelementptr i64, ptr %at, i64 {heard}
  %heard.long = load i64, ptr %heard.at
  %later = icmp eq i64 %heard.long, {later}
  br i1 %later, label %next, label %listen
listen:
  %heard = trunc i64 %heard.long to i32
  %new = call i32 %test(i32 %mask)
  %quiet = icmp eq i32 %new, 0
  br i1 %quiet, label %next, label %note
note:
  %bad = and i32 %new, %heard
  %wiped = call i32 %clear(i32 %mask)
  br label %next
next:
  %more.raised = phi i32 [0, %done], [0, %listen], [%bad, %note]
  %raised.next = or i32 %raised, %more.raised
  %r.next = add i64 %r, 1
  br label %walking
turn:
  %t.next = add i64 %t, 1
  store i64 %t.next, ptr %made.at
  %byte = load i8, ptr %flag
  %wanted = icmp ne i8 %byte, 0
  %due = icmp slt i64 %t.next, %trips
  %on = and i1 %wanted, %due
  br i1 %on, label %moving, label %over
moving:
  %a = phi i64 [0, %turn], [%a.next, %move]
  %moving.end = icmp eq i64 %a, %count
  br i1 %moving.end, label %moved, label %move
move:
  %moving.words = mul i64 %a, {spec_words}
  %moving.spec = getelementptr i64, ptr %specs, i64 %moving.words
  %by.at = getelementptr i64, ptr %moving.spec, i64 4
  %by = load i64, ptr %by.at
  %old.at = getelementptr i64, ptr %bases, i64 %a
  %old = load i64, ptr %old.at
  %new.base = add i64 %old, %by
  store i64 %new.base, ptr %old.at
  %a.next = add i64 %a, 1
  br label %moving
moved:
  br label %iteration
over:
  %told = select i1 %heeds, i32 %raised, i32 0
  %result = zext i32 %told to i64
  ret i64 %result
}}
"""

_FETCH = """
  %b{k}.at = getelementptr i64, ptr %at, i64 {w0}
  %b{k} = load i64, ptr %b{k}.at
  %o{k}.at = getelementptr i64, ptr %at, i64 {w1}
  %o{k} = load i64, ptr %o{k}.at
  %t{k}.at = getelementptr i64, ptr %at, i64 {w2}
  %t{k} = load i64, ptr %t{k}.at
  %a{k}.at = getelementptr i64, ptr %bases, i64 %b{k}
  %a{k} = load i64, ptr %a{k}.at
  %p{k} = add i64 %a{k}, %o{k}"""

_PLACE = """
  %m{k} = mul i64 %o, %t{k}
  %q{k} = add i64 %p{k}, %m{k}
  %args{k} = getelementptr i64, ptr %args, i64 {k}
  store i64 %q{k}, ptr %args{k}"""


def _text() -> str:
    words = [{"k": k, **{f"w{i}": 5 + 3 * k + i for i in range(3)}} for k in range(MOST_ARGUMENTS)]
    return _TEXT.format(
        fetch="".join([_FETCH.format(**one) for one in words]),
        place="".join([_PLACE.format(**one) for one in words]),
        first_base=_FIRST_BASE, items=ITEMS, spec_words=_SPEC_WORDS, row_words=ROW_WORDS,
        heard=ROW_WORDS - 1, declined=DECLINED, dead=DEAD, later=LATER, heedless=HEEDLESS,
        first=FIRST, trips=TRIPS, flag=FLAG, made=MADE, args=MOST_ARGUMENTS + 1,
        bases=MOST_ARGUMENTS,
        **OFFSETS,
    )  # fmt: skip


_ARRAY_TYPE: Final = id(np.ndarray)


def spec(dtype: np.dtype[Any], elements: int, *, writable: bool, further: int = 0) -> list[int]:
    """Return the words that say what an array has to be.

    Its descriptor, number of elements, flags, bits that its address must not have, and how many
    bytes further the next iteration finds it.
    """
    flags = _CONTIGUOUS | _ALIGNED | _WRITABLE * writable
    return [id(dtype), elements, flags, dtype.itemsize - 1, further]


_ALWAYS = np.ones(1, np.uint8)


def block(specs: Words, rows: Words, bases: Sequence[int], computing: int) -> Words:
    """Return the words that the machine code is given; who calls keeps what they point to.

    Parameters
    ----------
    specs, rows : array of int64
        One line for each array, and each row.
    bases : sequence of int
        Addresses of what rows use beside the arrays; bases of these come first.
    computing : int
        How many rows there are before those that copy results, which errors keep from it.
    """
    head = [specs.ctypes.data, len(specs), rows.ctypes.data, len(rows), _ARRAY_TYPE]
    head += [RUNTIME.clear, RUNTIME.test, ALL_ERRORS, computing, _dead_offset(), id(None), 0]
    head += [0, 1, _ALWAYS.ctypes.data, 0]
    assert len(head) == _FIRST_BASE
    return np.array([*head, *[0] * len(specs), *bases], np.int64)


def is_ignored(flags: int, errors: Mapping[str, Any] | None = None) -> bool:
    """Return whether nobody wants to hear of these floating-point errors."""
    known: Mapping[str, Any] = dict(np.geterr()) if errors is None else errors
    return flags > 0 and all(known[name] == "ignore" for name, one in ERRORS.items() if flags & one)


@cache
def expected() -> str | None:
    """Return what keeps tables from being used in this process, None for nothing.

    Looks at the platform, and at fields of arrays and of a tuple, through their structs.
    """
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it needs CPython with its global lock"
    if sys.byteorder != "little" or struct.calcsize("P") != 8 or sys.platform != "linux":
        return "it is proved on Linux with 64 bits only"
    if platform.machine() != "x86_64":
        return "it is proved on x86-64 only"
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed: pip install 'actorgraph[native]'"
    right = _reads_structs() and _dead_offset()
    return None if right else "arrays of this NumPy or objects of this Python differ"


def switched_off() -> str | None:
    """Return what has switched machine code off, None for nothing."""
    return f"{NATIVE}=0 says so" if os.environ.get(NATIVE) == "0" else None


class _Idle(AbstractRun):
    """A run that never dies: of who calls parts without one."""

    __slots__ = ()
    dead: Any

    def deliver(self, index: int, value: Any) -> None:
        """Take nothing."""

    def fail(self, error: BaseException) -> None:
        """Go on."""

    def cancel(self) -> bool:
        """Go on."""
        return False

    def expire(self) -> None:
        """Go on."""


def _idle(dead: BaseException | None = None) -> AbstractRun:
    found = _Idle()
    found.dead = dead
    return found


IDLE = _idle()
"""The run of who has none."""


@cache
def _dead_offset() -> int:
    """Return how many bytes into a run the word lies that says of what it is dead, 0 for none."""
    mark = Exception()
    one, places = _idle(mark), range(ITEMS - 8, _Idle.__basicsize__, 8)
    found = [place for place in places if _word(id(one) + place) == id(mark)]
    right = len(found) == 1 and _word(id(IDLE) + found[0]) == id(None)
    return found[0] if right else 0


def _word(address: int, kind: Any = ctypes.c_int64) -> Any:
    return kind.from_address(address).value


def _reads_structs() -> bool:
    """Return whether the fields of some arrays and a tuple lie where they are expected."""
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays: tuple[np.ndarray[Any, Any], ...] = (
        whole,
        whole[1:, ::2],
        np.zeros((), np.int64),
        np.zeros((2, 0, 3), bool),
    )
    for place, array in enumerate(arrays):
        item = _word(id(arrays) + ITEMS + 8 * place)
        if item != id(array) or _word(item + 8) != _ARRAY_TYPE:
            return False
        at = {name: item + offset for name, offset in OFFSETS.items()}
        found = array.flags
        flags = _CONTIGUOUS * found.c_contiguous | _WRITABLE * found.writeable | _ALIGNED
        if (
            _word(at["data"]) != array.ctypes.data
            or _word(at["nd"], ctypes.c_int32) != array.ndim
            or _word(at["descr"]) != id(array.dtype)
            or _word(at["flags"], ctypes.c_int32) & (_CONTIGUOUS | _WRITABLE | _ALIGNED) != flags
        ):
            return False
        for field, wanted in (("dimensions", array.shape), ("strides", array.strides)):
            begin = _word(at[field])
            if [_word(begin + 8 * i) for i in range(array.ndim)] != list(wanted):
                return False
    return True


@final
class Runtime:
    """The machine code of a process.

    Attributes
    ----------
    walk : callable or None
        ``walk(arrays, address of a block, run)`` returns flags, -1 where it declines, `DEAD`; None
        until it is compiled, and for ever where that is not possible.
    brief : callable or None
        The same, which keeps the GIL.
    reason : str or None
        Why it is not; None while nobody has asked, or it is being compiled.
    clear, test, copy : int
        Addresses of `feclearexcept` and `fetestexcept`, and of a loop that copies bytes.
    """

    def __init__(self) -> None:
        self.walk: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.brief: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.reason: str | None = None
        self.clear = self.test = self.copy = 0
        self.done = threading.Event()
        self._begun = False
        self._engine: Any = None

    def request(self, directory: str) -> None:
        """Have the machine code made, in the background, if nobody has asked before."""
        if self._begun:
            BACKGROUND.resume()
            return
        self._begun = True
        self.reason = expected()
        if self.reason is not None:
            self.done.set()
            return
        BACKGROUND.submit(partial(self._make, directory))

    def _make(self, directory: str) -> None:
        try:
            self.clear, self.test = flags()
            self._engine = engine(_text(), directory)
            self.copy = self._engine.get_function_address("copy")
            kinds = ctypes.c_int64, ctypes.py_object, ctypes.c_size_t, ctypes.py_object
            place = self._engine.get_function_address("walk")
            self.brief = ctypes.PYFUNCTYPE(*kinds)(place)
            self.walk = ctypes.CFUNCTYPE(*kinds)(place)
        except Exception as error:  # noqa: BLE001 - programs have their Python form
            self.reason = f"{type(error).__name__}: {error}"
        self.done.set()


def flags() -> tuple[int, int]:
    """Return the addresses of `feclearexcept` and `fetestexcept`."""
    library = ctypes.CDLL("libm.so.6")
    functions = (library.feclearexcept, library.fetestexcept)
    clear, test = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions]
    return clear, test


def engine(text: str, directory: str) -> Any:
    """Return what keeps the machine code of a text; from the cache where it is there."""
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cpu, features=features, opt=2, codemodel="jitdefault"
    )
    key = hashlib.sha256(f"{llvmlite.__version__} {cpu} {features} {text}".encode()).hexdigest()
    place = os.path.join(directory, f"native-{key[:32]}.o")
    code = _read(place)
    if code is None:
        module = llvm.parse_assembly(text)
        module.verify()
        code = machine.emit_object(module)
        with suppress(OSError):
            write_whole(place, hashlib.sha256(code).digest() + code)
    empty = llvm.parse_assembly("")
    made = llvm.create_mcjit_compiler(empty, machine)
    made.add_object_file(llvm.ObjectFileRef.from_data(code))
    made.finalize_object()
    return made


def _read(place: str) -> bytes | None:
    """Return the code behind its hash, None where it is not there or damaged."""
    try:
        with open(place, "rb") as file:
            found = file.read()
    except OSError:
        return None
    return found[32:] if hashlib.sha256(found[32:]).digest() == found[:32] else None


RUNTIME = Runtime()
"""That of this process."""
