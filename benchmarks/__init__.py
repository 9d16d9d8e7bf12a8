"""Benchmarks of actorgraph against its peers: `python -m benchmarks.overhead` and so on."""

import os

# BLAS and OpenMP read these once, when they are first loaded, so they stand before every import.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
