"""Steps fused and compiled with Numba, where a machine is asked for ``jit=True``."""
