"""The driver layer on a GPU: memory, copies, streams, kept buffers, a kernel's launch, other libraries' arrays.

Knows: one small kernel in PTX. Does not know: products. Everything here is skipped where no GPU can be used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from blisgemm.cuda import arrays, driver
from blisgemm.cuda.arrays import view_of
from blisgemm.cuda.device_array import DeviceArray
from blisgemm.errors import BlisgemmTypeError, CudaError

if not driver.is_available():
    pytest.skip(str(driver.why_unavailable()), allow_module_level=True)

# add(x: float32*, n: int32, value: float32): x[i] += value
ADD_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 n, .param .f32 value)
{
    .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [x]; ld.param.u32 %r1, [n]; ld.param.f32 %f1, [value];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.s32 %r2, %r2, %r3, %r4;
    setp.ge.s32 %p, %r2, %r1; @%p bra end;
    cvta.to.global.u64 %d1, %d1; mul.wide.s32 %d2, %r2, 4; add.s64 %d3, %d1, %d2;
    ld.global.f32 %f2, [%d3]; add.f32 %f2, %f2, %f1; st.global.f32 [%d3], %f2;
end:
    ret;
}
"""


@pytest.fixture(autouse=True)
def _on_device_zero() -> Iterator[None]:
    with driver.on_device(0):
        yield


@pytest.fixture
def stream() -> Iterator[int]:
    made = driver.create_stream()
    yield made
    driver.synchronize(made)
    driver.destroy_stream(made)


def to_host(pointer: int, count: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    found = np.empty(count, dtype)
    driver.copy_to_host(found.ctypes.data, pointer, found.nbytes, 0)
    driver.synchronize(0)
    return found


def torch_with_cuda() -> Any:
    """Return torch, if it's a build that can use the GPU."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


# ---- devices and contexts ---------------------------------------------------------------------------------------


def test_facts_of_the_device_are_plausible() -> None:
    assert driver.device_count() >= 1
    facts = driver.attributes(0)
    assert facts is driver.attributes(0)
    assert facts["name"] and "\0" not in facts["name"]
    assert facts["capability"] >= (5, 0) and facts["multiprocessors"] >= 1
    assert 48 << 10 <= facts["shared_bytes_per_block"] <= facts["shared_bytes_per_multiprocessor"]
    assert facts["registers_per_multiprocessor"] >= 32768 and facts["threads_per_multiprocessor"] >= 1024
    assert facts["l2_bytes"] > 0 and facts["clock_khz"] > 0 and facts["memory_bus_bits"] > 0
    free, total = driver.free_memory()
    assert 0 < free <= total <= facts["memory_bytes"] * 1.01


def test_a_context_is_current_only_inside_the_block() -> None:
    seen: list[Any] = []

    def elsewhere() -> None:
        seen.append(driver.current_device())
        with driver.on_device(0):
            seen.append(driver.current_device())
            with driver.on_device(0):
                seen.append(driver.current_device())
            seen.append(driver.current_device())
        seen.append(driver.current_device())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [None, 0, 0, 0, None]


def test_another_device_is_current_only_inside_the_block() -> None:
    if driver.device_count() < 2:
        pytest.skip("one device only")
    with driver.on_device(1):
        assert driver.current_device() == 1
        pointer = driver.allocate(64, 0)
        assert driver.pointer_device(pointer) == 1
        driver.free(pointer, 0)
    assert driver.current_device() == 0


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_DEVICE"):
        driver.on_device(1000)


# ---- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 1000, 1 << 20])
def test_copies_there_and_back(stream: int, count: int) -> None:
    x = np.arange(count, dtype=np.float32)
    first, second = (driver.allocate(x.nbytes, stream) for _ in range(2))
    assert driver.pointer_device(first) == 0
    driver.copy_to_device(first, x.ctypes.data, x.nbytes, stream)
    driver.copy_device(second, first, x.nbytes, stream)
    driver.fill_zero(first, x.nbytes, stream)
    driver.synchronize(stream)
    assert (to_host(second, count) == x).all()
    assert not to_host(first, count).any()
    driver.free(first, stream)
    driver.free(second, stream)


def test_strided_blocks_are_copied_without_their_gaps(stream: int) -> None:
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    pointer = driver.allocate(6 * 4 * 4, stream)
    driver.copy_2d("to_device", pointer, 16, x[:, 3:].ctypes.data, 40, 16, 6, stream)
    driver.synchronize(stream)
    assert (to_host(pointer, 24).reshape(6, 4) == x[:, 3:7]).all()
    other = driver.allocate(3 * 8, stream)
    driver.copy_2d("device", other, 8, pointer, 32, 8, 3, stream)  # every second row, half of its width
    back = np.full((3, 5), -1, np.float32)
    driver.copy_2d("to_host", back.ctypes.data, 20, other, 8, 8, 3, stream)
    driver.synchronize(stream)
    assert (back[:, :2] == x[::2, 3:5]).all() and (back[:, 2:] == -1).all()
    driver.free(pointer, stream)
    driver.free(other, stream)


def test_pinned_memory_is_copied_in_order(stream: int) -> None:
    import ctypes

    host = driver.allocate_host(4096)
    there = np.ctypeslib.as_array((ctypes.c_float * 1024).from_address(host))
    there[:] = np.arange(1024)
    pointer = driver.allocate(4096, stream)
    driver.copy_to_device(pointer, host, 4096, stream)
    driver.synchronize(stream)
    there[:] = 0
    driver.copy_to_host(host, pointer, 4096, stream)
    driver.synchronize(stream)
    assert (there == np.arange(1024)).all()
    driver.free(pointer, stream)
    driver.free_host(host)


def test_out_of_memory_leaves_the_context_alive(stream: int) -> None:
    too_much = 2 * driver.attributes(0)["memory_bytes"]
    with pytest.raises(CudaError, match="too little free memory for this: "):
        driver.allocate(too_much, stream)
    with pytest.raises(CudaError, match="too little free memory for this: "):
        driver.workspace(too_much, 0, stream)
    x = DeviceArray.from_host(np.arange(5.0))
    assert (x.copy_to_host() == np.arange(5)).all()


def test_events_order_two_streams(stream: int) -> None:
    other = driver.create_stream()
    count = 1 << 24
    x = DeviceArray.from_host(np.zeros(count, np.uint8))
    begin, end = driver.Event(timing=True), driver.Event(timing=True)
    begin.record(stream)
    for _ in range(20):
        driver.fill_zero(x.pointer, count, stream)
    end.record(stream)
    end.wait(other)
    seven = np.full(1, 7, np.uint8)
    driver.copy_to_device(x.pointer, seven.ctypes.data, 1, other)
    driver.synchronize(other)
    end.synchronize()
    assert begin.elapsed_ms(end) > 0
    assert x.copy_to_host()[0] == 7
    driver.destroy_stream(other)


# ---- kept buffers -----------------------------------------------------------------------------------------------


def test_the_workspace_is_kept_and_grows(stream: int) -> None:
    first = driver.workspace(1000, 0, stream)
    assert driver.workspace(500, 0, stream) == first == driver.workspace(1000, 0, stream)
    larger = driver.workspace(10_000, 0, stream)
    assert larger != first
    driver.fill_zero(first, 1000, stream)  # a thread may be about to use it still
    driver.fill_zero(larger, 10_000, stream)
    driver.synchronize(stream)
    assert driver.workspace(1000, 0, stream) == larger
    assert driver.workspace(1000, 0, 0) != larger
    driver.release()
    assert driver.workspace(64, 0, stream)
    driver.release()


def test_counters_are_zero_at_first_and_when_they_grow(stream: int) -> None:
    for count in (10, 5000):
        pointer = driver.counters(count, 0, stream)
        assert not to_host(pointer, count, "int32").any()
    assert driver.counters(10, 0, stream) == pointer
    driver.release()


def test_threads_that_grow_one_workspace_agree(stream: int) -> None:
    found: list[int] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        with driver.on_device(0):
            found.append(driver.workspace(1 << 16, 0, stream))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    driver.release()


# ---- kernels ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def add() -> driver.Kernel:
    return driver.load_kernel(ADD_PTX, "add", 0, 0)


def test_a_kernel_runs_on_a_stream_with_repacked_arguments(add: driver.Kernel, stream: int) -> None:
    assert add.registers > 0 and add.local_bytes == 0 and add.threads_per_block >= 256
    assert add.blocks_per_multiprocessor(256) >= 1
    x = DeviceArray.from_host(np.zeros(1000, np.float32), stream=stream)
    arguments = driver.pack("qif", (x.pointer, 1000, 1.0))
    for value in (1.0, 2.0, 4.0):
        arguments.repack((x.pointer, 500, value))
        driver.launch(add, (4, 1, 1), 256, 0, stream, arguments)
    assert (x.copy_to_host() == np.repeat([7, 0], 500)).all()


def test_a_bad_launch_says_so_and_leaves_the_context_alive(add: driver.Kernel, stream: int) -> None:
    x = DeviceArray.from_host(np.zeros(8, np.float32))
    arguments = driver.pack("qif", (x.pointer, 8, 1.0))
    with pytest.raises(CudaError, match="cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE"):
        driver.launch(add, (1, 1, 1), 4096, 0, stream, arguments)
    driver.launch(add, (1, 1, 1), 32, 0, 0, arguments)
    assert (x.copy_to_host() == 1).all()


def test_what_is_no_kernel_is_an_error() -> None:
    with pytest.raises(CudaError, match="cuModuleLoadData"):
        driver.load_kernel(b"\x7fELF nonsense", "add", 0, 0)
    with pytest.raises(CudaError, match="cuModuleGetFunction failed with CUDA_ERROR_NOT_FOUND"):
        driver.load_kernel(ADD_PTX, "subtract", 0, 0)
    with pytest.raises(CudaError, match="cuFuncSetAttribute"):
        driver.load_kernel(ADD_PTX, "add", 1 << 30, 0)


def test_a_launch_costs_few_microseconds(add: driver.Kernel, stream: int) -> None:
    import time

    x = DeviceArray.from_host(np.zeros(8, np.float32))
    arguments = driver.pack("qif", (x.pointer, 8, 0.0))
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(500):
            with driver.on_device(0):
                arguments.repack((x.pointer, 8, 0.0))
                driver.launch(add, (1, 1, 1), 32, 0, stream, arguments)
        best = min(best, (time.perf_counter() - begin) / 500)
        driver.synchronize(stream)
    print(f"{best * 1e6:.2f} µs per launch")
    assert best < 50e-6, "ten times what it should be: something slow was put in its way"


# ---- other libraries --------------------------------------------------------------------------------------------


def test_our_own_array_is_read_through_its_interface() -> None:
    x = DeviceArray.from_host(np.arange(6.0).reshape(2, 3))
    view = view_of("x", x)
    assert (view.pointer, view.shape, view.strides, view.dtype) == (x.pointer, (2, 3), (3, 1), "float64")
    assert (view.device, view.kind) == (0, "dlpack")
    made, of_made = arrays.new_like("dlpack", x, (4, 0), "float32", 0)
    assert made.shape == (4, 0) == of_made.shape and made.copy_to_host().shape == (4, 0)


def test_dlpack_of_our_own_array() -> None:
    torch = torch_with_cuda()
    pytest.importorskip("cuda.core")
    x = DeviceArray.from_host(np.arange(6.0).reshape(2, 3))
    tensor = torch.from_dlpack(x)
    del x
    assert (tensor.cpu().numpy() == np.arange(6.0).reshape(2, 3)).all()


class OnlyDlpack:
    """A tensor that hides all but DLPack."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def test_an_array_that_speaks_dlpack_only_is_read() -> None:
    torch = torch_with_cuda()
    pytest.importorskip("cuda.core")
    tensor = torch.arange(12, device="cuda:0", dtype=torch.float32).reshape(3, 4).T
    view = view_of("x", OnlyDlpack(tensor))
    assert (view.pointer, view.shape, view.strides) == (tensor.data_ptr(), (4, 3), (1, 4))
    assert (view.dtype, view.device, view.kind) == ("float32", 0, "dlpack")


def test_torch_tensors_streams_and_results() -> None:
    torch = torch_with_cuda()
    x = torch.zeros((4, 6), device="cuda:0", dtype=torch.bfloat16, requires_grad=True)
    view = view_of("x", x.T)
    assert (view.pointer, view.shape, view.strides, view.dtype) == (x.data_ptr(), (6, 4), (1, 6), "bfloat16")
    assert (view.device, view.kind) == (0, "torch")
    made, of_made = arrays.new_like("torch", x, (2, 3), "float64", 0)
    assert made.dtype == torch.float64 and of_made.pointer == made.data_ptr() and of_made.strides == (3, 1)
    assert arrays.current_stream("torch", 0) == torch.cuda.current_stream(0).cuda_stream == 0
    side = torch.cuda.Stream(0)
    with torch.cuda.stream(side):
        assert arrays.current_stream("torch", 0) == side.cuda_stream != 0
        arrays.wait_for(view, 0)
    with pytest.raises(BlisgemmTypeError, match="resolve_conj"):
        view_of("x", torch.zeros(2, 2, device="cuda:0", dtype=torch.complex64).conj())
    with pytest.raises(BlisgemmTypeError, match="dense"):
        view_of("x", torch.zeros(2, 2, device="cuda:0").to_sparse())


def test_a_kernel_runs_in_the_order_of_torchs_stream(add: driver.Kernel) -> None:
    torch = torch_with_cuda()
    side = torch.cuda.Stream(0)
    with torch.cuda.stream(side):
        x = torch.zeros(1 << 20, device="cuda:0")
        for _ in range(50):
            x += 1
            arguments = driver.pack("qif", (x.data_ptr(), x.numel(), 1.0))
            driver.launch(add, (4096, 1, 1), 256, 0, arrays.current_stream("torch", 0), arguments)
        assert (x == 100).all()


def test_a_graph_keeps_its_buffers_and_replays(add: driver.Kernel) -> None:
    torch = torch_with_cuda()
    x = torch.zeros(256, device="cuda:0")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = arrays.current_stream("torch", 0)
        assert driver.is_capturing(stream)
        scratch = driver.workspace(4096, 0, stream)
        zeros = driver.counters(64, 0, stream)
        late = driver.load_kernel(ADD_PTX, "add", 0, 0)  # a first call inside the capture
        temporary = driver.allocate(1024, stream)
        driver.copy_device(temporary, x.data_ptr(), 1024, stream)
        for pointer in (temporary, x.data_ptr()):
            driver.launch(late, (1, 1, 1), 256, 0, stream, driver.pack("qif", (pointer, 256, 1.0)))
        driver.launch(add, (1, 1, 1), 256, 0, stream, driver.pack("qif", (scratch, 256, 1.0)))
        driver.free(temporary, stream)
    assert not to_host(zeros, 64, "int32").any()
    driver.workspace(1 << 20, 0, stream)  # grows: the graph's buffer stays
    driver.release()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert (x == 3).all()
    assert (to_host(temporary, 256) == 3).all()


def test_cupy_arrays_streams_and_results() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(12, dtype=cupy.float32).reshape(3, 4)[:, ::2]
    view = view_of("x", x)
    assert (view.pointer, view.shape, view.strides) == (x.data.ptr, (3, 2), (4, 2))
    assert (view.dtype, view.device, view.kind) == ("float32", 0, "cupy")
    assert view_of("x", x[::-1]).strides == (-4, 2)
    made, of_made = arrays.new_like("cupy", x, (2, 5), "complex64", 0)
    assert isinstance(made, cupy.ndarray) and of_made.pointer == made.data.ptr
    assert arrays.current_stream("cupy", 0) == 0
    with cupy.cuda.Stream(non_blocking=True) as side:
        assert arrays.current_stream("cupy", 0) == side.ptr
        assert view_of("x", x).stream == side.ptr
        arrays.wait_for(view_of("x", x), 0)
    assert (cupy.asarray(DeviceArray.from_host(np.arange(4.0))) == cupy.arange(4.0)).all()


def test_numba_arrays_and_results() -> None:
    cuda = pytest.importorskip("numba.cuda")
    if not hasattr(np, "row_stack"):
        pytest.skip("this Numba doesn't know this NumPy")
    x = cuda.to_device(np.arange(6, dtype=np.float32).reshape(2, 3))
    view = view_of("x", x)
    assert (view.shape, view.strides, view.dtype, view.device, view.kind) == ((2, 3), (3, 1), "float32", 0, "numba")
    assert (to_host(view.pointer, 6) == np.arange(6)).all()
    made, of_made = arrays.new_like("numba", x, (4, 4), "float64", 0)
    assert made.shape == (4, 4) and of_made.kind == "numba"
    assert arrays.current_stream("numba", 0) == 0
