"""The interpreter of tables: machine code that walks rows without the interpreter of Python.

A row says which inner loop is called on which addresses (see `lower.table`).  Its text is
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
import os
import platform
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Final, TypeAlias, final

import numpy as np

from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.files import write_whole
from actorgraph.devices.walk_text import CASTS, field, text
from actorgraph.options import NATIVE
from actorgraph.runs import AbstractRun

MOST_ARGUMENTS = 4
"""Arrays that one row may call its loop with; behind them it finds the bases of the walk."""

Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""What machine code reads: numbers and addresses."""

ROW_WORDS = 7 + 4 * MOST_ARGUMENTS
"""Words of a row: loop, its data, addresses of its dims and strides; how often it is called along
two axes; base, offset, and strides from call to call along both of each argument; last the flags
that are heard, or `LATER`, or `REFUSES`."""

_SPEC_WORDS = 5
_FIRST_BASE = 20
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
BELL = 16
"""The word that is where the byte lies that is set to 1 when the walk begins."""
STRANDS = 17
"""The word that is where the words of strands lie (see `strands`), 0 for none."""
LAPS = 18
"""The word that is how many iterations who walks rows by laps makes of each piece at once."""
_SIZE = 19
"""The word that is how many words a block has."""
_GAVE_UP = 1 << 32
"""The bit, beside flags of errors, that says that results are not copied because of them."""
_CONTIGUOUS, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400

ERRORS = {"invalid": 1, "divide": 4, "over": 8, "under": 16}
"""The flags of x86, by the names of `np.errstate`."""

LATER = -1
"""What a row has in place of flags that does not look for them: a later one does."""

REFUSES = -3
"""What a row has in place of flags whose loop may find that the walk is to decline: it writes null
over the address of its first argument.  All flags are heard: their bits are up in this number."""

ALL_ERRORS = sum(ERRORS.values())
"""All of them."""

OFFSETS = {"data": 16, "nd": 24, "dimensions": 32, "strides": 40, "descr": 56, "flags": 64}
"""Bytes into an array object, see NumPy's `PyArrayObject_fields`."""
ITEMS = 24
"""Bytes into a tuple object where the items begin."""


def items_text(count: int) -> list[str]:
    """Return lines that load the arrays of a ``%tuple``, as ``%o0`` and so on, and their data."""
    found = []
    for k in range(count):
        found += [field("tuple", f"o{k}", ITEMS + 8 * k, "ptr", "i8"),
                  field(f"o{k}", f"a{k}", OFFSETS["data"], "ptr", "i8")]  # fmt: skip
    return found


def stored_text(count: int) -> list[str]:
    """Return lines that write addresses ``%a0`` and so on to ``%args``."""
    found = []
    for k in range(count):
        found += [f"  %b{k} = getelementptr ptr, ptr %args, i64 {k}",
                  f"  store ptr %a{k}, ptr %b{k}"]  # fmt: skip
    return found


def _text() -> str:
    return text(
        MOST_ARGUMENTS, first_base=_FIRST_BASE, items=ITEMS, spec_words=_SPEC_WORDS,
        row_words=ROW_WORDS, heard=ROW_WORDS - 1, declined=DECLINED, dead=DEAD, later=LATER,
        refuses=REFUSES, heedless=HEEDLESS, first=FIRST, trips=TRIPS, flag=FLAG, made=MADE,
        bell=BELL, strands=STRANDS, laps=LAPS, size=_SIZE, gave_up=_GAVE_UP, mask=ALL_ERRORS,
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

    `specs` and `rows` have one line for each array, and each row.  `bases` are addresses of what
    rows use beside the arrays, whose bases come first.  So many rows are `computing`, before those
    that copy results, which errors keep from it.
    """
    head = [specs.ctypes.data, len(specs), rows.ctypes.data, len(rows), _ARRAY_TYPE]
    head += [RUNTIME.clear, RUNTIME.test, ALL_ERRORS, computing, _dead_offset(), id(None), 0]
    head += [0, 1, _ALWAYS.ctypes.data, 0, _ALWAYS.ctypes.data, 0, 1]
    head += [_FIRST_BASE + len(specs) + len(bases)]
    assert len(head) == _FIRST_BASE
    return np.array([*head, *[0] * len(specs), *bases], np.int64)


def is_ignored(flags: int, errors: Mapping[str, Any] | None = None) -> bool:
    """Return whether nobody wants to hear of these floating-point errors."""
    known: Mapping[str, Any] = dict(np.geterr()) if errors is None else errors
    return flags > 0 and all(known[name] == "ignore" for name, one in ERRORS.items() if flags & one)


@cache
def expected() -> str | None:
    """Return what keeps tables from being used in this process, None for nothing."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "it is proved on Linux with x86-64 only"
    return callable_from_python() or (None if _dead_offset() else _DIFFERENT)


@cache
def callable_from_python() -> str | None:
    """Return what keeps machine code from being given arrays in this process, None for nothing.

    Looks at fields of arrays and of a tuple, through their structs.
    """
    # `sysconfig` knows it too, but takes 3 ms of the first run.
    if sys.implementation.name != "cpython" or "free-threading build" in sys.version:
        return "it needs CPython with its global lock"
    if sys.byteorder != "little" or struct.calcsize("P") != 8:
        return "it needs a processor with 64 bits, little-endian"
    if find_spec("llvmlite") is None:
        return "llvmlite is not installed: pip install 'actorgraph[native]'"
    return None if _reads_structs() else _DIFFERENT


_DIFFERENT = "arrays of this NumPy or objects of this Python differ"


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
        for name, wanted in (("dimensions", array.shape), ("strides", array.strides)):
            begin = _word(at[name])
            if [_word(begin + 8 * i) for i in range(array.ndim)] != list(wanted):
                return False
    return True


@final
class Runtime:
    """The machine code of a process."""

    def __init__(self) -> None:
        # ``walk(arrays, address of a block, run)`` returns flags, -1 where it declines, `DEAD`.  It
        # is None until it is compiled, and for ever where that cannot be.  `brief` keeps the GIL.
        self.walk: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.brief: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.reason: str | None = None  # why not; None while nobody has asked, or it is made
        self.clear = self.test = 0  # addresses of `feclearexcept` and `fetestexcept`
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
        BACKGROUND.submit(partial(self._make, directory), keep=self)

    def routine(self, name: str) -> int:
        """Return the address of a loop that NumPy does not have: as of ``"copy"``.

        Those of casts have the codes of two dtypes, ``"cast_fd"``; 0 is the address of none.
        """
        cast = name.removeprefix("cast_")
        if cast != name:
            name = "cast_" + "_".join(map(str, map(ord, cast))) if cast in CASTS else ""
        return int(self._engine.get_function_address(name)) if name else 0

    def _make(self, directory: str) -> None:
        try:
            self.clear, self.test = flags()
            self._engine = engine(_text(), directory)
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


def engine(text: str, directory: str, passes: bool = False) -> Any:
    """Return what keeps the machine code of a text; from the cache where it is there.

    With `passes` LLVM's own go over it first, which turn loops into vectors.
    """
    import llvmlite
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=cpu, features=features, opt=2, codemodel="jitdefault"
    )
    key = _sha256(f"{llvmlite.__version__} {cpu} {features} {text}".encode()).hex()
    place = os.path.join(directory, f"native-{key[:32]}.o")
    code = _read(place)
    if code is None:
        module = llvm.parse_assembly(text)
        module.verify()
        if passes:
            options = llvm.create_pipeline_tuning_options(speed_level=3)
            options.loop_vectorization = True
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        code = machine.emit_object(module)
        with suppress(OSError):
            write_whole(place, _sha256(code) + code)
    empty = llvm.parse_assembly("")
    made = llvm.create_mcjit_compiler(empty, machine)
    made.add_object_file(llvm.ObjectFileRef.from_data(code))
    made.finalize_object()
    return made


def _sha256(data: bytes) -> bytes:
    from hashlib import sha256  # takes longer to import than a small graph to compile

    return sha256(data).digest()


def _read(place: str) -> bytes | None:
    """Return the code behind its hash, None where it is not there or damaged."""
    try:
        with open(place, "rb") as file:
            found = file.read()
    except OSError:
        return None
    return found[32:] if _sha256(found[32:]) == found[:32] else None


RUNTIME = Runtime()
"""That of this process."""
