"""The GPU kernels, written in Python for the Numba CUDA compiler.

Knows: nothing itself; ``gemm`` is the kernel, ``stage``, ``threadtile`` and ``finish`` are its parts. Called by
``compile`` only, which alone may import them: each imports Numba's CUDA target.
"""
