"""Compiled kernels on the device: load a cubin, ask what it uses, pack arguments, launch.

Knows: modules, functions, launches and the layout of arguments in host memory. Does not know: who
compiled the cubin, what the kernel computes, which stream is right. Called by ``driver`` (which hands it on to whatever
launches).

Cost: a launch with packed arguments is one call of ``cuLaunchKernel``, 3.7 to 3.9 µs of the host on an H200 system
with six arguments; rewriting ten arguments in place is below a microsecond.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .binding import check, driver, on_device, relaxed_capture

__all__ = ["Arguments", "Kernel", "launch", "load_kernel", "pack"]

# Letters of a format -> struct's. T is a tensor map, passed by value.
_STRUCT_CODES = {"q": "q", "i": "i", "f": "f", "d": "d", "T": "128s"}

_api: Any = None  # set when the first kernel is loaded


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A kernel in a device's primary context. It is never unloaded: a launch may be pending at any time."""

    name: str
    ordinal: int
    registers: int  # per thread
    local_bytes: int  # per thread: spilled registers and local arrays
    static_shared_bytes: int
    dynamic_shared_bytes: int  # the most that a launch may ask for
    threads_per_block: int  # the most that a launch may ask for
    function: Any  # CUfunction
    module: Any  # CUmodule, kept alive
    _blocks: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)

    def blocks_per_multiprocessor(self, threads: int, shared_bytes: int | None = None) -> int:
        """Return how many blocks of so many threads a multiprocessor holds at once.

        Args:
            threads: Threads per block.
            shared_bytes: Dynamic shared memory per block; ``dynamic_shared_bytes`` if not given.
        """
        key = (threads, self.dynamic_shared_bytes if shared_bytes is None else shared_bytes)
        found = self._blocks.get(key)
        if found is None:
            with on_device(self.ordinal):
                asked = driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, *key)
            found = self._blocks[key] = int(check(asked, "cuOccupancyMaxActiveBlocksPerMultiprocessor"))
        return found


def load_kernel(cubin: bytes, name: str, dynamic_shared_bytes: int, ordinal: int) -> Kernel:
    """Load a cubin and find a kernel in it.

    Args:
        cubin: The image; PTX text works too (the driver then compiles it).
        name: The entry's (mangled) name.
        dynamic_shared_bytes: The most that a launch will ask for. The limit of 48 KiB is raised to it.
        ordinal: The device.

    Returns:
        The kernel, with shared memory preferred over L1 cache.

    Raises:
        CudaError: The image doesn't fit the device, or has no such entry, or asks for too much shared memory.
    """
    global _api
    api = driver()
    wanted = api.CUfunction_attribute
    image = bytes(cubin) + b"\0"  # PTX must end in a zero; a cubin knows its own length
    with on_device(ordinal), relaxed_capture():
        module = check(api.cuModuleLoadData(image), "cuModuleLoadData")
        function = check(api.cuModuleGetFunction(module, name.encode()), "cuModuleGetFunction")

        def put(attribute: Any, value: int) -> None:
            check(api.cuFuncSetAttribute(function, attribute, value), "cuFuncSetAttribute")

        def get(attribute: Any) -> int:
            return int(check(api.cuFuncGetAttribute(attribute, function), "cuFuncGetAttribute"))

        put(wanted.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared_bytes)
        put(wanted.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)  # per cent: all that can be
        kernel = Kernel(
            name=name,
            ordinal=ordinal,
            registers=get(wanted.CU_FUNC_ATTRIBUTE_NUM_REGS),
            local_bytes=get(wanted.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            static_shared_bytes=get(wanted.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            dynamic_shared_bytes=dynamic_shared_bytes,
            threads_per_block=get(wanted.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            function=function,
            module=module,
        )
    _api = api
    return kernel


class Arguments:
    """Arguments of a kernel in host memory, in the layout that ``cuLaunchKernel`` reads.

    Not for two threads at once: one could rewrite what the other is about to launch.
    """

    __slots__ = ("_addresses", "_buffer", "_write", "format", "pointer")

    def __init__(self, format: str, values: Iterable[Any]) -> None:
        unknown = set(format) - set(_STRUCT_CODES)
        if unknown:
            raise ValueError(f"formats are made of {''.join(_STRUCT_CODES)}, not {''.join(sorted(unknown))}")
        codes = [_STRUCT_CODES[letter] for letter in format]
        layout = struct.Struct("@" + "".join(codes))
        offsets = [
            struct.calcsize("@" + "".join(codes[: place + 1])) - struct.calcsize(code)
            for place, code in enumerate(codes)
        ]
        self.format = format
        self._buffer = ctypes.create_string_buffer(max(layout.size, 1))
        self._write = layout.pack_into
        base = ctypes.addressof(self._buffer)
        self._addresses = (ctypes.c_void_p * max(len(codes), 1))(*[base + offset for offset in offsets])
        self.pointer = ctypes.addressof(self._addresses)
        self.repack(values)

    def repack(self, values: Iterable[Any]) -> None:
        """Write other values in place; a launch before has taken its copy already."""
        self._write(self._buffer, 0, *values)

    def values(self) -> tuple[Any, ...]:
        """Return what is packed, read back through the addresses that the driver reads."""
        found = []
        for letter, address in zip(self.format, self._addresses, strict=False):
            code = "@" + _STRUCT_CODES[letter]
            found.append(struct.unpack(code, ctypes.string_at(address, struct.calcsize(code)))[0])
        return tuple(found)


def pack(format: str, values: Iterable[Any]) -> Arguments:
    """Pack arguments for a launch.

    Args:
        format: One letter per argument: q int64 (and pointers), i int32, f float32, d float64, T a tensor map of
            128 bytes by value.
        values: As many numbers (bytes for T).

    Example:
        >>> pack("qif", (1 << 40, -3, 0.5)).values()
        (1099511627776, -3, 0.5)
    """
    return Arguments(format, values)


def launch(
    kernel: Kernel, grid: tuple[int, int, int], threads: int, shared_bytes: int, stream: int, arguments: Arguments
) -> None:
    """Launch a kernel; the kernel's device must be current (``on_device``).

    Args:
        kernel: What to run.
        grid: Blocks in x, y, z.
        threads: Threads per block, in x.
        shared_bytes: Dynamic shared memory per block.
        stream: A stream's handle.
        arguments: As packed by ``pack``; the driver copies them before it returns.
    """
    x, y, z = grid
    result = _api.cuLaunchKernel(
        kernel.function, x, y, z, threads, 1, 1, shared_bytes, stream, arguments.pointer, 0
    )  # fmt: skip
    if result[0]:
        check(result, "cuLaunchKernel")
