"""The interpreter of tables: machine code that executes rows without Python's interpreter.

A row says which inner loop is called on which addresses (see `lower.table`).  The interpreter's
text (`walk_text`) is compiled once for this processor by llvmlite, in the background, and the
object code is cached in a file.  Without llvmlite, or where this Python or NumPy differs from what
is expected, there is none, and programs keep their Python form.

A walk is given a tuple of arrays, whose memory the machine code finds through the public fields of
NumPy's struct, and a *block* of words that the caller owns.  Invariants:

- Every array is checked before the first row: type, dtype, number of elements, contiguity,
  alignment, and writability where required.  If one is wrong, the call returns `DECLINED` and has
  written nothing.
- Floating-point flags are cleared first.  They are tested after a row only if the next one clears
  them, as some of NumPy's loops do, or checks for others.
- Between rows the machine code tests whether the run is dead: whether the word of
  `AbstractRun.dead` is no longer that of None.

The rows may be walked repeatedly, as long as a byte that they write is not 0: these are the
iterations of a loop (`lower.loop_table`), for each of which some arrays advance by some bytes.
This module knows nothing of graphs.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, final

import numpy as np

from actorgraph.devices.background import BACKGROUND
from actorgraph.devices.files import cache_directory, write_whole
from actorgraph.devices.listed import CASTS, MOST_ARGUMENTS
from actorgraph.devices.structs import (
    ALIGNED,
    ARRAY_TYPE,
    CONTIGUOUS,
    DIFFERENT,
    ITEMS,
    OFFSETS,
    WRITABLE,
    dead_offset,
    expected,
)
from actorgraph.runs import AbstractRun

Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers and addresses that machine code reads."""

ROW_WORDS = 7 + 4 * MOST_ARGUMENTS
"""Words of a row: loop, its data, addresses of its dims and strides; numbers of calls along two
axes; of each argument its base, offset, and strides from call to call along both axes; last the
flags that are checked, or `LATER`, or `REFUSES`."""

_SPEC_WORDS = 5
_FIRST_BASE = 21
DECLINED = -1
"""A walk's return code: an array is not as planned, nothing was done."""
DEAD = -2
"""A walk's return code: its run is dead."""
HEEDLESS = 11
"""Word of a block: whether results are copied in spite of errors."""
FIRST = 12
"""Word of a block: position of the first iteration."""
TRIPS = 13
"""Word of a block: most iterations."""
FLAG = 14
"""Word of a block: address of the byte that asks for another iteration."""
MADE = 15
"""Word of a block: iterations done."""
BELL = 16
"""Word of a block: address of the byte that is set to 1 when the walk begins."""
STRANDS = 17
"""Word of a block: address of the words of strands (see `strands`), 0 for none."""
LAPS = 18
"""Word of a block: iterations that a walk by laps makes of each piece at a time."""
_SIZE = 19
"""Word of a block: its number of words."""
HELPED = 20
"""Word of a block: address of the words of helpers for strands, 0 for a walk by one thread."""
_GAVE_UP = 1 << 32
"""Bit of the returned flags: results were not copied, because of errors."""
ERRORS = {"invalid": 1, "divide": 4, "over": 8, "under": 16}
"""The flags of x86, by the names of `np.errstate`."""

LATER = -1
"""Flags word of a row after which no flags are checked: a later row does."""

REFUSES = -3
"""Flags word of a row whose loop may make the walk decline, by writing null over the address of its
first argument.  All errors are checked: their bits are set in this number."""

ALL_ERRORS = sum(ERRORS.values())
"""All flags of `ERRORS`."""


def items_text(count: int) -> list[str]:
    """Return lines that load the arrays of a ``%tuple``, as ``%o0`` and so on, and their data."""
    from actorgraph.devices.walk_text import field  # late, as in all of this file

    found = []
    for k in range(count):
        found += [field("tuple", f"o{k}", ITEMS + 8 * k, "ptr", "i8"),
                  field(f"o{k}", f"a{k}", OFFSETS["data"], "ptr", "i8")]  # fmt: skip
    return found


def stored_text(count: int) -> list[str]:
    """Return lines that store the addresses ``%a0`` and so on to ``%args``."""
    found = []
    for k in range(count):
        found += [f"  %b{k} = getelementptr ptr, ptr %args, i64 {k}",
                  f"  store ptr %a{k}, ptr %b{k}"]  # fmt: skip
    return found


def _text() -> str:
    from actorgraph.devices.walk_text import text

    return text(
        MOST_ARGUMENTS, first_base=_FIRST_BASE, items=ITEMS, spec_words=_SPEC_WORDS,
        row_words=ROW_WORDS, heard=ROW_WORDS - 1, declined=DECLINED, dead=DEAD, later=LATER,
        refuses=REFUSES, heedless=HEEDLESS, first=FIRST, trips=TRIPS, flag=FLAG, made=MADE,
        bell=BELL, strands=STRANDS, laps=LAPS, size=_SIZE, gave_up=_GAVE_UP, mask=ALL_ERRORS,
        **OFFSETS,
    ) + entry_text("walk", "OPO")  # fmt: skip


def entry_text(name: str, parameters: str) -> str:
    """Return the text of ``NAME.entry``, by which `entry` lets Python call a routine.

    `parameters` has a letter for each parameter of the routine, which are pointers: ``O`` for one
    to an object, ``P`` for an address, which is given as an int.  The routine returns an ``i64``.
    """
    from actorgraph.devices.walk_text import field

    lines = [f"define ptr @{name}.entry(ptr %self, ptr %given, i64 %count) {{",
             field("self", "words", OFFSETS["data"], "ptr", "i8"),
             field("words", "read", 0, "ptr", "ptr"),
             field("words", "made", 1, "ptr", "ptr")]  # fmt: skip
    arguments = []
    for k, letter in enumerate(parameters):
        lines.append(field("given", f"object{k}", k, "ptr", "ptr"))
        if letter == "P":
            lines.append(f"  %address{k} = call ptr %read(ptr %object{k})")
        arguments.append(f"ptr %{'address' if letter == 'P' else 'object'}{k}")
    lines += [f"  %found = call i64 @{name}({', '.join(arguments)})",
              "  %result = call ptr %made(i64 %found)", "  ret ptr %result", "}", ""]  # fmt: skip
    return "\n".join(lines)


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


_FASTCALL = 0x80
"""``METH_FASTCALL``: arguments come as an array of objects."""


def _never_freed(found: Any) -> Any:
    """Return an object that stays for ever, as machine code does, even if a user reloads this."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found


def entry(engine: Any, name: str) -> Callable[..., int]:
    """Return a routine as a built-in function, which keeps the GIL.

    A call takes 0.03 us, one by ctypes 0.4.  The number and the kinds of arguments, those of
    `entry_text`, are not checked.
    """
    api, kinds = ctypes.pythonapi, (ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    used = api.PyLong_AsVoidPtr, api.PyLong_FromLongLong
    words = np.array([ctypes.cast(one, ctypes.c_void_p).value for one in used], np.int64)
    address = engine.get_function_address(f"{name}.entry")
    # It is read when the function is freed, too.
    definition = _never_freed(_Method(name.encode(), address, _FASTCALL, None))
    make = ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(("PyCFunction_NewEx", api))
    # The function refers to the last two arguments, and so keeps alive what it needs.
    found: Callable[..., int] = make(ctypes.addressof(definition), words, engine)
    return found


def spec(dtype: np.dtype[Any], elements: int, *, writable: bool, further: int = 0) -> list[int]:
    """Return the words that an array is checked against.

    These are its descriptor, number of elements, flags, the bits that must be 0 in its address, and
    the number of bytes by which it advances from one iteration to the next.
    """
    flags = CONTIGUOUS | ALIGNED | WRITABLE * writable
    return [id(dtype), elements, flags, dtype.itemsize - 1, further]


_ALWAYS = _never_freed(np.ones(1, np.uint8))


def block(specs: Words, rows: Words, bases: Sequence[int], computing: int) -> Words:
    """Return the words of a walk; the caller must keep alive what they point to.

    `specs` has a line for each array, `rows` one for each row.  `bases` are the addresses of the
    bases that follow those of the arrays.  The first `computing` rows compute; the others copy
    results, unless there were errors.
    """
    head = [specs.ctypes.data, len(specs), rows.ctypes.data, len(rows), ARRAY_TYPE]
    head += [RUNTIME.clear, RUNTIME.test, ALL_ERRORS, computing, dead_offset(), id(None), 0]
    head += [0, 1, _ALWAYS.ctypes.data, 0, _ALWAYS.ctypes.data, 0, 1]
    head += [_FIRST_BASE + len(specs) + len(bases), 0]
    assert len(head) == _FIRST_BASE
    return np.array([*head, *[0] * len(specs), *bases], np.int64)


def is_ignored(flags: int, errors: Mapping[str, Any] | None = None) -> bool:
    """Return whether `np.errstate`, given or of this thread, ignores all these errors."""
    known: Mapping[str, Any] = dict(np.geterr()) if errors is None else errors
    return flags > 0 and all(known[name] == "ignore" for name, one in ERRORS.items() if flags & one)


@final
class Runtime:
    """The interpreter of a process.

    ``walk(arrays, address of a block, run)`` returns flags, `DECLINED` or `DEAD`; `brief` does the
    same without releasing the GIL.  Both are None until they are compiled, and stay None where that
    is not possible; `reason` says why.  `clear` and `test` are the addresses of `feclearexcept` and
    `fetestexcept`.
    """

    def __init__(self) -> None:
        self.walk: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.brief: Callable[[tuple[Any, ...], int, AbstractRun], int] | None = None
        self.reason: str | None = None
        self.clear = self.test = 0
        self.done = threading.Event()
        self._begun = False
        self._engine: Any = None

    def request(self) -> None:
        """Start compiling the machine code in the background, unless that was done before."""
        if self._begun:
            BACKGROUND.resume()
            return
        self._begun = True
        self.reason = expected()
        if self.reason is not None:
            self.done.set()
            return
        BACKGROUND.submit(self._make, keep=self)

    def routine(self, name: str) -> int:
        """Return the address of a loop that NumPy does not have, such as ``"copy"``.

        A cast is named by the codes of two dtypes, ``"cast_fd"``; 0 is returned if there is none.
        """
        cast = name.removeprefix("cast_")
        known = cast in (name, *CASTS)
        return int(self._engine.get_function_address(name)) if known else 0

    def _make(self) -> None:
        from actorgraph.devices.loops import are_readable  # it imports this module

        try:
            if are_readable():
                self._compile()
            else:
                self.reason = DIFFERENT
        except Exception as error:  # noqa: BLE001 - programs keep their Python form
            self.reason = f"{type(error).__name__}: {error}"
        self.done.set()

    def _compile(self) -> None:
        self.clear, self.test = flags()
        self._engine = engine(_text())
        kinds = ctypes.c_int64, ctypes.py_object, ctypes.c_size_t, ctypes.py_object
        place = self._engine.get_function_address("walk")
        self.brief = entry(self._engine, "walk")
        self.walk = ctypes.CFUNCTYPE(*kinds)(place)


def flags() -> tuple[int, int]:
    """Return the addresses of `feclearexcept` and `fetestexcept`."""
    library = ctypes.CDLL("libm.so.6")
    functions = (library.feclearexcept, library.fetestexcept)
    clear, test = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions]
    return clear, test


def engine(text: str, passes: bool = False) -> Any:
    """Return the engine that owns the machine code of an LLVM text, compiled or from the cache.

    With `passes` LLVM's optimisation passes, which vectorise loops, run first.
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
    place = os.path.join(cache_directory(), f"native-{key[:32]}.o")
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
    from hashlib import sha256  # its import takes longer than compiling a small graph

    return sha256(data).digest()


def _read(place: str) -> bytes | None:
    """Return the code of a cache file, None if the file is missing or does not match its hash."""
    try:
        with open(place, "rb") as file:
            found = file.read()
    except OSError:
        return None
    return found[32:] if _sha256(found[32:]) == found[:32] else None


RUNTIME = Runtime()
"""The interpreter of this process."""
