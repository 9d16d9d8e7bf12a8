"""Steps fused and compiled with llvmlite, where a machine is asked for ``jit=True``."""
