"""The command `actorgraph doctor`: versions, cores, BLAS libraries, matmul provider and GPUs.

GPUs are found by the CUDA driver through ctypes, so cupy is not needed.
"""

import ctypes
import os
import platform
import sys
from importlib import metadata
from typing import Any

from threadpoolctl import threadpool_info

from actorgraph.devices import blas, native, structs
from actorgraph.devices.cpu import available_cores
from actorgraph.devices.fastest import choice
from actorgraph.errors import GraphError, counted
from actorgraph.lower.rates import stored
from actorgraph.options import NATIVE

REQUIRED = ("actorgraph", "numpy", "anyio", "threadpoolctl")
OPTIONAL = ("rich", "trio", "mkl", "llvmlite", "torch", "jax", "autograd", "dask", "ray")
CUPY = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}  # by the major version of CUDA
_NAME_LENGTH = 100
_REASON_LENGTH = 200


def examine() -> dict[str, Any]:
    """Return what is found, as objects that `json` can write."""
    packages = (*REQUIRED, *OPTIONAL, *CUPY.values())
    versions = {name: _version(name) for name in packages}
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "versions": versions,
        "cores": {"usable": available_cores(), "total": os.cpu_count()},
        "blas": _blas(),
        "matmul": _matmul(),
        "native": _native(),
        "costs": stored()[1],
        "cuda": _cuda([name for name in CUPY.values() if versions[name]]),
    }


def describe(findings: dict[str, Any]) -> list[str]:
    """Return the findings of `examine` as lines of text."""
    versions, cores = findings["versions"], findings["cores"]
    lines = [f"python         {findings['python']} on {findings['platform']}"]
    lines += [f"{name:<14} {versions[name]}" for name in REQUIRED]
    lines += [f"{name:<14} {versions[name] or 'not installed'}" for name in OPTIONAL]
    lines.append(f"cores          {cores['usable']} usable by this process of {cores['total']}")
    lines += [
        f"blas           {blas['name']} {blas['version']}, "
        f"{counted(blas['threads'], 'thread')}, "
        f"{blas['architecture']} ({blas['file']})"
        for blas in findings["blas"]
    ] or ["blas           none that threadpoolctl knows; its threads cannot be limited"]
    lines += [
        f"               {blas['architecture']} knows no AVX-512, which this processor has: with "
        "OPENBLAS_CORETYPE=SkylakeX products may take half the time, and last bits change"
        for blas in findings["blas"]
        if blas["name"] == "openblas" and blas["architecture"] in _WITHOUT_AVX512 and _has_avx512()
    ]
    matmul = findings["matmul"]
    named = "none" if matmul["provider"] is None else f"{matmul['provider']} {matmul['version']}"
    lines.append(f"matmul         {named}: {matmul['why']}")
    lines.append(f"native         {findings['native']}")
    lines.append(f"costs          {findings['costs']}")
    cuda = findings["cuda"]
    lines.append(f"cupy           {', '.join(cuda['cupy']) or 'not installed'}")
    lines += [
        f"gpu            {gpu['name']}, {gpu['memory_bytes'] / 2**30:.1f} GiB"
        for gpu in cuda["gpus"]
    ] or ["gpu            none"]
    return [*lines, f"advice         {cuda['advice']}"]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_WITHOUT_AVX512 = ("Haswell", "Zen")


def _has_avx512() -> bool:
    """Return whether the processor has AVX-512, by Linux."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return " avx512f " in file.read()
    except OSError:
        return False


def _blas() -> list[dict[str, Any]]:
    return [
        {
            "name": pool["internal_api"],
            "version": pool["version"],
            "threads": pool["num_threads"],
            "architecture": pool.get("architecture", "unknown architecture"),
            "file": os.path.basename(pool["filepath"]),
        }
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]


def _matmul() -> dict[str, Any]:
    asked = os.environ.get(blas.VARIABLE)
    try:
        provider = blas.provider()
    except GraphError as error:
        return {"provider": None, "version": None, "why": str(error)}
    if asked:
        why = f"{blas.VARIABLE} says so"
    elif blas.library() is None:
        why = "the extra mkl is not installed"
    else:
        why = f"{_measured(provider.name)}; {blas.VARIABLE}=numpy or mkl overrides"
    return {"provider": provider.name, "version": provider.version, "why": why}


def _measured(name: str) -> str:
    library = blas.library()
    assert library is not None
    try:
        ratio = choice(blas.NUMPY.multiply, blas.load_mkl(library).multiply, library).ratio
    except (OSError, AttributeError):
        return "MKL is installed, but cannot be loaded"
    if name == "mkl":
        return f"{ratio:.2f} times as fast as NumPy's BLAS on this machine"
    return f"MKL is {ratio:.2f} times as fast on this machine"


def _native() -> str:
    reason = structs.switched_off()
    if reason is None:
        native.RUNTIME.request()
        native.RUNTIME.done.wait()
        reason = native.RUNTIME.reason
    if reason is not None:
        said = " ".join(reason.split())[:_REASON_LENGTH]
        return f"no machine code of solvers, no tables of NumPy's loops: {said}"
    return f"machine code of solvers, and tables of NumPy's loops ({NATIVE}=0: neither)"


def _cuda(installed: list[str]) -> dict[str, Any]:
    driver = _load_driver()
    version, gpus = (None, []) if driver is None else (_driver_version(driver), _gpus(driver))
    return {
        "driver": None if version is None else f"{version[0]}.{version[1]}",
        "gpus": gpus,
        "cupy": installed,
        "advice": _advice(version, gpus, installed),
    }


def _advice(
    version: tuple[int, int] | None, gpus: list[dict[str, Any]], installed: list[str]
) -> str:
    if version is None or not gpus:
        return "no CUDA driver or GPU is visible; everything runs on the CPU"
    fitting = [major for major in CUPY if major <= version[0]]
    if not fitting:
        return f"the driver supports CUDA {version[0]}.{version[1]}; update it to 12 or later"
    unfit = [name for major, name in CUPY.items() if name in installed and major > version[0]]
    if unfit:
        return (
            f"{unfit[0]} is for a later CUDA than the driver's {version[0]}.{version[1]}: pip "
            f"uninstall {unfit[0]}, pip install 'actorgraph[cuda{max(fitting)}]'"
        )
    if len(installed) > 1:
        return f"uninstall all but one of {', '.join(installed)}"
    if not installed:
        return f"for the GPUs: pip install 'actorgraph[cuda{max(fitting)}]'"
    return "cupy and GPUs are there"


def _load_driver() -> ctypes.CDLL | None:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
        return driver if driver.cuInit(0) == 0 else None
    except (OSError, AttributeError):
        return None


def _driver_version(driver: ctypes.CDLL) -> tuple[int, int]:
    number = ctypes.c_int(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    return number.value // 1000, number.value % 1000 // 10


def _gpus(driver: ctypes.CDLL) -> list[dict[str, Any]]:
    count = ctypes.c_int(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    gpus = []
    for number in range(count.value):
        device, memory = ctypes.c_int(0), ctypes.c_size_t(0)
        name = ctypes.create_string_buffer(_NAME_LENGTH)
        driver.cuDeviceGet(ctypes.byref(device), number)
        driver.cuDeviceGetName(name, _NAME_LENGTH, device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        gpus.append({"name": name.value.decode(), "memory_bytes": memory.value})
    return gpus
