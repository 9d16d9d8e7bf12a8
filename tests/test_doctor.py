import json

import numpy as np
import pytest

from actorgraph import _doctor
from actorgraph.devices import blas, native
from actorgraph.options import NATIVE
from tests._each import each

GPU = {"name": "Some GPU", "memory_bytes": 2**34}


class FakeDriver:
    """The CUDA driver's C interface with one GPU; arguments are ctypes references."""

    def cuDriverGetVersion(self, version):
        version._obj.value = 13020

    def cuDeviceGetCount(self, count):
        count._obj.value = 1

    def cuDeviceGet(self, device, number):
        device._obj.value = number

    def cuDeviceGetName(self, name, length, device):
        name.value = b"Some GPU"

    def cuDeviceTotalMem_v2(self, memory, device):
        memory._obj.value = 2**34


def test_findings_can_be_written_as_json_and_read_as_lines():
    findings = _doctor.examine()
    assert json.loads(json.dumps(findings)) == findings
    text = "\n".join(_doctor.describe(findings))
    for package in _doctor.REQUIRED:
        assert findings["versions"][package] in text
    assert findings["cores"]["usable"] >= 1


def test_blas_of_numpy_is_found_with_its_threads():
    blas = _doctor.examine()["blas"]
    assert all(pool["threads"] >= 1 and "/" not in pool["file"] for pool in blas)


def test_the_provider_of_matrix_products_is_told(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: None)
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    blas.provider.cache_clear()
    text = "\n".join(_doctor.describe(_doctor.examine()))
    assert f"matmul         numpy {np.__version__}: the extra mkl is not installed" in text
    monkeypatch.setenv(blas.VARIABLE, "numpy")
    assert _doctor.examine()["matmul"]["why"] == "ACTORGRAPH_MATMUL says so"
    blas.provider.cache_clear()
    monkeypatch.setenv(blas.VARIABLE, "cublas")
    text = "\n".join(_doctor.describe(_doctor.examine()))
    assert "matmul         none: ACTORGRAPH_MATMUL is 'cublas'" in text


def test_machine_code_that_cannot_be_made_is_told_in_one_line(monkeypatch):
    def fail(text):
        raise OSError("libLLVM\ncannot be read")

    monkeypatch.delenv(NATIVE, raising=False)
    for name, one in (("expected", lambda: None), ("flags", lambda: (0, 0)), ("engine", fail)):
        monkeypatch.setattr(native, name, one)
    monkeypatch.setattr(native, "RUNTIME", native.Runtime())
    told = "no machine code of solvers, no tables of NumPy's loops: OSError: libLLVM cannot be read"
    assert _doctor.examine()["native"] == told


def test_gpus_are_found_without_cupy(monkeypatch):
    monkeypatch.setattr(_doctor, "_load_driver", FakeDriver)
    cuda = _doctor._cuda([])
    assert cuda["driver"] == "13.2"
    assert cuda["gpus"] == [GPU]
    assert "actorgraph[cuda13]" in cuda["advice"]


@each(
    "version, gpus, installed, text",
    [
        (None, [], [], "everything runs on the CPU"),
        ((12, 4), [], [], "everything runs on the CPU"),
        ((11, 8), [GPU], [], "driver supports CUDA 11.8; update it"),
        ((12, 4), [GPU], [], "pip install 'actorgraph[cuda12]'"),
        ((13, 0), [GPU], [], "pip install 'actorgraph[cuda13]'"),
        ((14, 0), [GPU], [], "pip install 'actorgraph[cuda13]'"),
        ((13, 0), [GPU], ["cupy-cuda12x", "cupy-cuda13x"], "uninstall all but one"),
        ((13, 0), [GPU], ["cupy-cuda13x"], "cupy and GPUs are there"),
        ((12, 4), [GPU], ["cupy-cuda13x"], "later CUDA than the driver's 12.4: pip uninstall"),
    ],
)
def test_advice_fits_the_driver_and_what_is_installed(version, gpus, installed, text):
    assert text in _doctor._advice(version, gpus, installed)


def test_lines_show_gpus_and_missing_blas():
    findings = _doctor.examine()
    findings["blas"] = []
    findings["cuda"] = {"driver": "13.2", "gpus": [GPU], "cupy": ["cupy-cuda13x"], "advice": ""}
    text = "\n".join(_doctor.describe(findings))
    assert "Some GPU, 16.0 GiB" in text
    assert "none that threadpoolctl knows" in text


@pytest.mark.parametrize(("flags", "architecture", "told"), [
    ("fma avx512f sha", "Haswell", True), ("fma avx512f sha", "SkylakeX", False),
    ("fma avx2 sha", "Haswell", False),
])  # fmt: skip
def test_kernels_that_leave_half_of_the_processor_unused_are_told_of(
    flags, architecture, told, monkeypatch
):
    monkeypatch.setattr(_doctor, "_has_avx512", lambda: " avx512f " in flags)
    findings = _doctor.examine()
    pool = {"name": "openblas", "version": "1", "threads": 1, "file": "x"}
    findings["blas"] = [{**pool, "architecture": architecture}]
    assert ("OPENBLAS_CORETYPE" in "\n".join(_doctor.describe(findings))) is told
