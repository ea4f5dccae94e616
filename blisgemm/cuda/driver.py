"""The driver layer under one name: availability, devices, contexts, kernels, memory, streams, kept buffers.

Knows: where each of these is written. Does not know: anything itself. Called by everything in
``blisgemm.cuda`` that touches a device: ``from . import driver``. Importing it loads neither CUDA nor cuda-bindings.
"""

from __future__ import annotations

from .binding import (
    attributes,
    check,
    current_device,
    device_count,
    driver,
    free_memory,
    is_available,
    on_device,
    relaxed_capture,
    why_unavailable,
)
from .memory import (
    Event,
    allocate,
    allocate_host,
    allocate_plain,
    copy_2d,
    copy_device,
    copy_to_device,
    copy_to_host,
    create_stream,
    destroy_stream,
    fill_zero,
    free,
    free_host,
    is_capturing,
    pointer_device,
    synchronize,
    trim,
)
from .modules import Arguments, Kernel, launch, load_kernel, pack
from .workspace import counters, release, workspace

__all__ = [
    "Arguments",
    "Event",
    "Kernel",
    "allocate",
    "allocate_host",
    "allocate_plain",
    "attributes",
    "check",
    "copy_2d",
    "copy_device",
    "copy_to_device",
    "copy_to_host",
    "counters",
    "create_stream",
    "current_device",
    "destroy_stream",
    "device_count",
    "driver",
    "fill_zero",
    "free",
    "free_host",
    "free_memory",
    "is_available",
    "is_capturing",
    "launch",
    "load_kernel",
    "on_device",
    "pack",
    "pointer_device",
    "relaxed_capture",
    "release",
    "synchronize",
    "trim",
    "why_unavailable",
    "workspace",
]
