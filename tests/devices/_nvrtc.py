"""NVIDIA's compiler of CUDA C, which needs no GPU: the library of its wheel, through ctypes."""

import ctypes
import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

NEEDS = "pip install nvidia-cuda-nvrtc-cu12; there is no such wheel for macOS"


@cache
def library():
    """Return the library, or skip the test where there is none for this system."""
    spec = importlib.util.find_spec("nvidia")
    pattern = "nvrtc64_*_0.dll" if sys.platform == "win32" else "libnvrtc.so.1?"
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = [path for folder in folders for path in sorted(Path(folder).rglob(pattern))]
    if not found:
        pytest.skip(NEEDS)
    return ctypes.CDLL(str(found[-1]))


def compiled(text, architecture):
    """Return the machine code of a kernel, such as ``compiled(text, 90)``."""
    nvrtc = library()
    program = ctypes.c_void_p()
    assert not nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None
    )
    options = (ctypes.c_char_p * 1)(f"-arch=sm_{architecture}".encode())
    try:
        if nvrtc.nvrtcCompileProgram(program, 1, options):
            raise ValueError(given(nvrtc, program, "ProgramLog").decode())
        return given(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def given(nvrtc, program, what):
    size = ctypes.c_size_t()
    assert not getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    assert not getattr(nvrtc, f"nvrtcGet{what}")(program, room)
    return room.raw
