"""The host side of the GPU layer, as far as it can be tried without a GPU: views, packing, the cache, what is missing.

Knows: fake arrays, fake driver modules, damaged files. Does not know: a device; tests/cuda has what needs one.
"""

from __future__ import annotations

import pickle
import struct
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import run_python

from blisgemm import errors
from blisgemm.cuda import arrays, binding, cubins, modules
from blisgemm.cuda.arrays import View, overlap, view_of

# ---- what loads, what is missing --------------------------------------------------------------------------------


def test_importing_the_host_side_loads_no_cuda_and_no_array_library() -> None:
    done = run_python(
        """
        import sys
        import blisgemm, blisgemm.cuda.driver, blisgemm.cuda.arrays, blisgemm.cuda.cubins, blisgemm.cuda.device_array
        heavy = {"numba", "numba_cuda", "llvmlite", "cuda", "torch", "cupy"}
        print(sorted({name.split(".")[0] for name in sys.modules} & heavy))
        """
    )
    assert done.stdout.strip() == "[]"


def test_without_cuda_bindings_the_reason_names_the_package_and_the_extras() -> None:
    done = run_python(
        """
        import sys
        sys.modules["cuda"] = sys.modules["cuda.bindings"] = None
        from blisgemm.cuda import driver
        from blisgemm.errors import CudaUnavailableError
        print(driver.is_available())
        try:
            driver.device_count()
        except CudaUnavailableError as error:
            print(error)
        """
    )
    available, reason = done.stdout.splitlines()
    assert available == "False"
    assert "cuda-bindings" in reason and "blisgemm[cuda12]" in reason and "blisgemm[cuda13]" in reason


class Status(int):
    """A status as cuda-bindings returns it: an integer with a name."""

    name: str

    def __new__(cls, value: int, name: str) -> Status:
        made = super().__new__(cls, value)
        made.name = name
        return made


SUCCESS = Status(0, "CUDA_SUCCESS")
OUT_OF_MEMORY = Status(2, "CUDA_ERROR_OUT_OF_MEMORY")
NO_DEVICE = Status(100, "CUDA_ERROR_NO_DEVICE")


def fake_api(**functions: Any) -> types.ModuleType:
    """Return a driver module on which everything succeeds but what is given."""
    api = types.ModuleType("cuda.bindings.driver")
    defaults = {
        "cuInit": lambda flags: (SUCCESS,),
        "cuDriverGetVersion": lambda: (SUCCESS, 13000),
        "cuDeviceGetCount": lambda: (SUCCESS, 1),
        "cuMemGetInfo": lambda: (SUCCESS, 3 << 20, 10 << 20),
        "cuGetErrorString": lambda status: (SUCCESS, b"what it means"),
    }
    for name, function in (defaults | functions).items():
        setattr(api, name, function)
    return api


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that puts a fake driver module in the place of the real one."""

    def put(version: str = "13.0.0", **functions: Any) -> None:
        package = types.ModuleType("cuda.bindings")
        package.__version__ = version  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda.bindings", package)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake_api(**functions))
        monkeypatch.setattr(binding, "_api", None)
        binding._look.cache_clear()

    yield put
    binding._look.cache_clear()


def no_library(flags: int) -> Any:
    raise RuntimeError("Failed to dlopen libcuda.so.1")


@pytest.mark.parametrize(
    ("functions", "version", "words"),
    [
        ({"cuInit": no_library}, "13.0.0", ["no usable NVIDIA driver library", "libcuda.so.1"]),
        ({"cuInit": lambda flags: (NO_DEVICE,)}, "13.0.0", ["sees no CUDA device", "CUDA_VISIBLE_DEVICES"]),
        ({"cuDeviceGetCount": lambda: (SUCCESS, 0)}, "12.9.1", ["sees no CUDA device"]),
        ({"cuDriverGetVersion": lambda: (SUCCESS, 12040)}, "13.1.0", ["too old", "12.4", "13.0"]),
        ({"cuDriverGetVersion": lambda: (SUCCESS, 11080)}, "12.9.1", ["too old", "11.8", "12.0"]),
        ({"cuInit": lambda flags: (Status(3, "CUDA_ERROR_NOT_INITIALIZED"),)}, "13.0.0", ["forked", "spawn"]),
    ],
)
def test_what_is_missing_has_its_own_sentence(install: Any, functions: Any, version: str, words: list[str]) -> None:
    install(version, **functions)
    reason = binding.why_unavailable()
    assert reason is not None and not binding.is_available()
    for word in [*words, "blisgemm[cuda12]"]:
        assert word in reason
    with pytest.raises(errors.CudaUnavailableError, match="blisgemm"):
        binding.driver()


def test_an_older_driver_serves_the_bindings_of_its_own_major_version(install: Any) -> None:
    install("12.9.1", cuDriverGetVersion=lambda: (SUCCESS, 12040))
    assert binding.why_unavailable() is None


def test_check_unpacks_and_names_the_call(install: Any) -> None:
    install()
    assert binding.check((SUCCESS,), "cuX") is None
    assert binding.check((SUCCESS, 5), "cuX") == 5
    assert binding.check((SUCCESS, 5, 6), "cuX") == (5, 6)
    with pytest.raises(errors.CudaError) as caught:
        binding.check((Status(700, "CUDA_ERROR_X"), 0), "cuX")
    assert (caught.value.call, caught.value.name, caught.value.text) == ("cuX", "CUDA_ERROR_X", "what it means")
    assert str(caught.value) == "cuX failed with CUDA_ERROR_X: what it means"
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, errors.BlisgemmError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_out_of_memory_says_how_much_is_free(install: Any) -> None:
    install()
    with pytest.raises(errors.CudaError, match="too little free memory for this: 3 of 10 MiB are free"):
        binding.check((OUT_OF_MEMORY,), "cuMemAlloc")
    install(cuMemGetInfo=lambda: (OUT_OF_MEMORY, 0, 0))
    with pytest.raises(errors.CudaError, match=r"too little free memory for this$"):
        binding.check((OUT_OF_MEMORY,), "cuMemAlloc")


# ---- arguments of kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "values"),
    [
        ("qqqiid", (1 << 62, -1, 0, 7, -7, 0.1)),
        ("iqifd", (1, 1 << 40, 2, 0.5, -0.0)),
        ("fif", (1.5, 3, -2.25)),
        ("Tiq", (bytes(range(128)), 1, 2)),
        ("", ()),
    ],
)
def test_packed_arguments_lie_where_the_driver_reads_them(format: str, values: tuple[Any, ...]) -> None:
    packed = modules.pack(format, values)
    assert packed.values() == values
    for letter, address in zip(format, packed._addresses, strict=False):
        assert address % {"q": 8, "d": 8, "i": 4, "f": 4, "T": 1}[letter] == 0


def test_repacking_keeps_the_addresses() -> None:
    packed = modules.pack("qid", (1, 2, 3.0))
    pointer, addresses = packed.pointer, list(packed._addresses)
    packed.repack((np.int64(4), np.int32(5), np.float64(6)))
    assert packed.values() == (4, 5, 6.0)
    assert (packed.pointer, list(packed._addresses)) == (pointer, addresses)


def test_packing_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="not x"):
        modules.pack("qx", (1, 2))
    with pytest.raises(struct.error):
        modules.pack("i", (1 << 31,))
    with pytest.raises(struct.error):
        modules.pack("qq", (1,))


# ---- views ------------------------------------------------------------------------------------------------------


class Fake:
    """An array in GPU memory, as its interface describes it."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (2, 3), "typestr": "<f4", "data": (4096, False), "strides": None,
        } | interface  # fmt: skip


@pytest.fixture(autouse=True)
def _pointers_of_device_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "pointer_device", lambda pointer: None if pointer == 13 else 1)


def test_the_interface_without_strides_is_c_order() -> None:
    view = view_of("a", Fake(stream=7))
    assert (view.pointer, view.shape, view.strides, view.dtype) == (4096, (2, 3), (3, 1), "float32")
    assert (view.device, view.kind, view.read_only, view.stream) == (1, "dlpack", False, 7)


def test_the_interface_with_strides_counts_elements() -> None:
    view = view_of("a", Fake(typestr="<c16", strides=(-16, 64), data=(4096, True)))
    assert (view.strides, view.dtype, view.read_only, view.stream) == ((-1, 4), "complex128", True, None)


def test_an_array_without_elements_has_no_pointer() -> None:
    assert view_of("a", Fake(shape=(0, 3), data=(0, False))).pointer == 0
    assert view_of("a", Fake(shape=(0, 3), data=(None, False))).pointer == 0


def test_bfloat16_is_told_by_the_dtype() -> None:
    fake = Fake(typestr="|V2")
    with pytest.raises(errors.BlisgemmTypeError, match=r"^a: expected a dtype of numbers, got '\|V2'$"):
        view_of("a", fake)
    fake.dtype = types.SimpleNamespace(name="bfloat16")  # type: ignore[attr-defined]
    assert view_of("a", fake).dtype == "bfloat16"


@pytest.mark.parametrize("typestr", [">f4", "<M8[s]", "<U4", "nonsense"])
def test_foreign_dtypes_are_refused_by_name(typestr: str) -> None:
    with pytest.raises(errors.BlisgemmTypeError, match=r"^left: expected"):
        view_of("left", Fake(typestr=typestr))


def test_masks_odd_strides_and_host_pointers_are_refused() -> None:
    with pytest.raises(errors.BlisgemmTypeError, match="masked"):
        view_of("a", Fake(mask=Fake()))
    with pytest.raises(errors.BlisgemmValueError, match=r"whole elements of 4 bytes, got \(12, 6\) bytes"):
        view_of("a", Fake(strides=(12, 6)))
    with pytest.raises(errors.BlisgemmTypeError, match="0xd, which isn't GPU memory"):
        view_of("a", Fake(data=(13, False)))


def test_numpy_arrays_and_lists_are_host_memory() -> None:
    x = np.arange(12.0).reshape(3, 4)[::2, ::-1]
    view = view_of("a", x)
    assert (view.pointer, view.strides, view.dtype) == (x.ctypes.data, (8, -1), "float64")
    assert (view.device, view.kind, view.read_only) == (-1, "numpy", False) and view.owner is x
    assert view_of("a", [[1, 2], [3, 4]]).dtype == "int64"
    assert view_of("a", np.float32(2)).shape == ()
    x.flags.writeable = False
    assert view_of("a", x).read_only
    with pytest.raises(errors.BlisgemmTypeError, match="byte order"):
        view_of("a", np.zeros(3, ">f8"))
    with pytest.raises(errors.BlisgemmTypeError, match="expected numbers"):
        view_of("a", [None, "x"])


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(errors.BlisgemmTypeError, match=r"^b: expected an array in GPU memory or a NumPy array, got bu"):
        view_of("b", object())


def test_a_tensor_of_the_cpu_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(errors.BlisgemmTypeError, match=r"b: expected an array in GPU memory .* torch tensor on cpu"):
        view_of("b", torch.zeros(2, 2))


class OnCuda:
    """A tensor that says it's on the GPU: what torch answers, without one."""

    is_cuda, device = True, "cuda:1"

    def __init__(self, **facts: Any) -> None:
        torch = sys.modules["torch"]
        self.dtype, self.layout, self.shape = torch.bfloat16, torch.strided, (2, 3)
        self.conj = self.neg = False
        self.__dict__.update(facts)

    def is_conj(self) -> bool:
        return self.conj

    def is_neg(self) -> bool:
        return self.neg

    def stride(self) -> tuple[int, ...]:
        return 1, 2

    def data_ptr(self) -> int:
        return 4096

    def get_device(self) -> int:
        return 1


def test_tensors_are_read_without_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "Tensor", OnCuda)
    view = view_of("a", OnCuda())
    assert (view.pointer, view.shape, view.strides, view.dtype, view.device) == (4096, (2, 3), (1, 2), "bfloat16", 1)
    for facts, words in [
        ({"conj": True}, r"\.resolve_conj\(\)"),
        ({"neg": True}, r"\.resolve_neg\(\)"),
        ({"layout": torch.sparse_coo}, "dense"),
        ({"dtype": torch.qint8}, "dtype of numbers"),
    ]:
        with pytest.raises(errors.BlisgemmTypeError, match=words):
            view_of("a", OnCuda(**facts))


def test_dlpack_on_the_cpu_is_refused() -> None:
    class Exporter:
        def __dlpack__(self, **keywords: Any) -> Any: ...

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(errors.BlisgemmTypeError, match=r"a: expected an array in GPU memory .* DLPack device \(1, 0\)"):
        view_of("a", Exporter())


def view(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str = "float32") -> View:
    return View(pointer, shape, strides, dtype, 0, "dlpack", None)


def test_overlap_compares_first_and_last_bytes() -> None:
    x = view(1000, (2, 3), (3, 1))  # bytes 1000 to 1023
    assert overlap(x, x)
    assert overlap(x, view(1023, (1,), (1,), "int8")) and not overlap(x, view(1024, (1,), (1,), "int8"))
    assert overlap(view(1040, (6,), (-2,)), x) and not overlap(view(1044, (6,), (-1,)), x)
    assert not overlap(x, view(1000, (0, 5), (5, 1)))
    assert overlap(view(1000, (1000,), (0,)), x), "a broadcast axis adds nothing"
    assert not overlap(view(996, (1000,), (0,)), x)


class Recorder:
    """An event that notes which streams meet in it."""

    met: list[tuple[str, int]]

    def record(self, stream: int) -> None:
        self.met.append(("record", stream))

    def wait(self, stream: int) -> None:
        self.met.append(("wait", stream))


@pytest.mark.parametrize(("named", "ours", "waits"), [(None, 5, False), (5, 5, False), (1, 0, False), (7, 5, True)])
def test_another_stream_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, named: int | None, ours: int, waits: bool
) -> None:
    Recorder.met = []
    monkeypatch.setattr(arrays, "Event", Recorder)
    arrays.wait_for(view_of("a", Fake(stream=named)), ours)
    assert Recorder.met == ([("record", 7), ("wait", 5)] if waits else [])


# ---- the cache of cubins ----------------------------------------------------------------------------------------

ENTRY = cubins.Entry(b"\x7fELF" + bytes(range(256)) * 8, "gemm_f32", {"registers": 128, "format": "qqqiif"})


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BLISGEMM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("BLISGEMM_VERBOSE", "1")
    return tmp_path / "cache" / "cuda"


def test_what_was_saved_is_loaded(folder: Path) -> None:
    key = cubins.key(("sgemm", (128, 64, 32), (9, 0)))
    assert cubins.load(key) is None
    cubins.save(key, ENTRY)
    assert cubins.load(key) == ENTRY
    assert cubins.load(cubins.key(("sgemm", (128, 64, 32), (8, 0)))) is None
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.parent.stat().st_mode & 0o777 == 0o700
    assert [path.suffix for path in folder.iterdir()] == [".cubin"]
    assert cubins.clear() == 1 and cubins.load(key) is None


@pytest.mark.parametrize("damage", ["nothing left", "cut", "one bit", "longer", "a header of nonsense"])
def test_a_damaged_file_is_no_file(folder: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib

    key = cubins.key((damage,))
    cubins.save(key, ENTRY)
    (path,) = folder.iterdir()
    blob = bytearray(path.read_bytes())
    if damage == "nothing left":
        blob = bytearray()
    elif damage == "cut":
        del blob[len(blob) // 2 :]
    elif damage == "one bit":
        blob[-1] ^= 1
    elif damage == "longer":
        blob += b"x"
    else:
        payload = b"\xff\xff\x00\x00" + b"not JSON"
        blob = bytearray(hashlib.sha256(payload).digest() + payload)
    path.write_bytes(blob)
    assert cubins.load(key) is None
    assert path.name in capsys.readouterr().err
    cubins.save(key, ENTRY)
    assert cubins.load(key) == ENTRY


def test_two_writers_at_once_leave_one_good_file(folder: Path) -> None:
    key = cubins.key(("contended",))
    start = threading.Barrier(4)
    seen: list[cubins.Entry | None] = []

    def write() -> None:
        start.wait()
        for _ in range(20):
            cubins.save(key, ENTRY)
            seen.append(cubins.load(key))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [ENTRY] * 80
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("place", ["", "/proc/nothing/here"])
def test_off_or_unwritable_is_no_error(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("BLISGEMM_CACHE_DIR", place)
    cubins.save(cubins.key((1,)), ENTRY)
    assert cubins.load(cubins.key((1,))) is None
    assert cubins.entries() == [] and cubins.clear() == 0


def test_a_folder_in_the_place_of_the_file_is_no_error(folder: Path) -> None:
    key = cubins.key((2,))
    cubins.save(key, ENTRY)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    cubins.save(key, ENTRY)
    assert cubins.load(key) is None


def test_metadata_that_json_has_no_word_for_is_no_error(folder: Path) -> None:
    cubins.save(cubins.key((3,)), cubins.Entry(b"x", "f", {"bad": object()}))
    assert cubins.entries() == []


def test_the_oldest_files_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(cubins, "_MAX_FILES", 3)
    keys = [cubins.key((place,)) for place in range(5)]
    for place, key in enumerate(keys):
        cubins.save(key, ENTRY)
        for path in folder.glob(f"{key}*"):
            os.utime(path, (place, place))
    assert [cubins.load(key) is not None for key in keys] == [False, False, True, True, True]


def test_each_compiler_has_its_own_file_and_none_takes_the_newest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    key = cubins.key(("compiled twice",))
    for versions, name in [("numba-cuda 1", "first"), ("numba-cuda 2", "second")]:
        monkeypatch.setattr(cubins, "compiler_versions", lambda versions=versions: versions)
        cubins.save(key, cubins.Entry(b"x", name))
        found = cubins.load(key)
        assert found is not None and found.name == name
        path = folder / cubins._file_name(key, versions)
        os.utime(path, (int(versions[-1]), int(versions[-1])))
    monkeypatch.setattr(cubins, "compiler_versions", lambda: "numba-cuda 3")
    assert cubins.load(key) is None
    monkeypatch.setattr(cubins, "compiler_versions", lambda: None)
    found = cubins.load(key)
    assert found is not None and found.name == "second"
    path.write_bytes(b"damaged")
    found = cubins.load(key)
    assert found is not None and found.name == "first"


def test_a_program_that_only_runs_kernels_needs_no_compiler_installed(folder: Path) -> None:
    key = cubins.key(("shared",))
    cubins.save(key, ENTRY)
    done = run_python(
        f"""
        import importlib.metadata as metadata
        def version(name):
            raise metadata.PackageNotFoundError(name)
        metadata.version = version
        from blisgemm.cuda import cubins
        print(cubins.compiler_versions(), cubins.load({key!r}).name)
        """,
        BLISGEMM_CACHE_DIR=str(folder.parent),
    )
    assert done.stdout.split() == ["None", "gemm_f32"]
