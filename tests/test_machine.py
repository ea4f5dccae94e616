"""What the machine layer promises: right facts, visible gaps, and no reader that raises.

The readers are fed fake systems, so these tests give the same answers on every host.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blisgemm.errors import OverrideError
from blisgemm.machine import (
    ISAS,
    KNOWN,
    CpuLimits,
    cpu_limits,
    current,
    detect,
    detect_machine,
    host_arch,
    host_features,
    host_isas,
    isas_of,
    resolve_arch,
    usable_cpus,
)
from blisgemm.machine.known import (
    DEFAULTS,
    LLVM_NAMES,
    LLVM_RELATIVES,
    CacheReading,
    complete_caches,
    lender_for,
)

KIB = 1024
MIB = 1024 * KIB

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sysfs is Linux's")


@pytest.fixture(autouse=True)
def fresh_current(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("BLISGEMM_ARCH", raising=False)
    current.cache_clear()
    yield
    current.cache_clear()


def write(root: Path, files: dict[str, str]) -> Path:
    """Write a fake system, one file per row, each with the newline that a kernel ends it with."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cache(cpu: int, index: int, level: str, kind: str, size: str, ways: str, shared: str) -> dict[str, str]:
    folder = f"cpu{cpu}/cache/index{index}"
    return {
        f"{folder}/level": level,
        f"{folder}/type": kind,
        f"{folder}/size": size,
        f"{folder}/ways_of_associativity": ways,
        f"{folder}/coherency_line_size": "64",
        f"{folder}/shared_cpu_list": shared,
    }


def zen4_system(root: Path) -> Path:
    """A complex of two cores with two threads each: CPUs 0 and 2 are one core, 1 and 3 the other."""
    files: dict[str, str] = {}
    for cpu in range(4):
        siblings = f"{cpu % 2},{cpu % 2 + 2}"
        files[f"cpu{cpu}/topology/thread_siblings_list"] = siblings
        files |= cache(cpu, 0, "1", "Data", "32K", "8", siblings)
        files |= cache(cpu, 1, "1", "Instruction", "32K", "8", siblings)
        files |= cache(cpu, 2, "2", "Unified", "1024K", "8", siblings)
        files |= cache(cpu, 3, "3", "Unified", "32M", "16", "0-3")
    return write(root, files)


# --- known machines ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN)
def test_known_caches_are_whole_sets_and_grow_with_the_level(name: str) -> None:
    machine = KNOWN[name]
    for level in machine.caches:
        assert level.size_bytes == level.sets * level.ways * level.line_bytes
        assert level.way_bytes * level.ways == level.size_bytes
        assert level.cores >= 1
        assert level.line_bytes & (level.line_bytes - 1) == 0
    # L1 is indexed by address bits alone; L2 of every core here too. L3 may hash over slices.
    for level in (machine.l1, machine.l2):
        assert level.sets & (level.sets - 1) == 0
    sizes = [level.size_bytes for level in machine.caches]
    assert sizes == sorted(set(sizes))
    assert [level.level for level in machine.caches] == [1, 2, 3][: len(sizes)]


@pytest.mark.parametrize("name", KNOWN)
def test_known_machines_name_their_source_and_a_set_of_their_own_arch(name: str) -> None:
    machine = KNOWN[name]
    assert machine.name == name
    assert machine.source
    assert machine.isa in isas_of(machine.arch)
    assert machine.page_bytes in (4 * KIB, 16 * KIB)


def test_known_machines_match_the_manuals() -> None:
    expected = {
        "haswell": ((32 * KIB, 8), (256 * KIB, 8), (8 * MIB, 16)),
        "skylake-x": ((32 * KIB, 8), (MIB, 16), (14_080 * KIB, 11)),
        "sapphire-rapids": ((48 * KIB, 12), (2 * MIB, 16), (105 * MIB, 15)),
        "zen3": ((32 * KIB, 8), (512 * KIB, 8), (32 * MIB, 16)),
        "zen4": ((32 * KIB, 8), (MIB, 8), (32 * MIB, 16)),
        "apple-m1": ((128 * KIB, 8), (12 * MIB, 12)),
        "neoverse-n1": ((64 * KIB, 4), (MIB, 8), (32 * MIB, 16)),
        "neoverse-v1": ((64 * KIB, 4), (MIB, 8), (32 * MIB, 16)),
    }
    for name, caches in expected.items():
        assert tuple((level.size_bytes, level.ways) for level in KNOWN[name].caches) == caches, name


def test_every_llvm_name_and_every_set_leads_to_a_known_machine() -> None:
    assert set(LLVM_NAMES.values()) | set(LLVM_RELATIVES.values()) <= set(KNOWN)
    assert not set(LLVM_NAMES) & set(LLVM_RELATIVES)
    for isa in ISAS.values():
        assert KNOWN[DEFAULTS[isa.name]].isa == isa
        assert lender_for("a processor of the future", isa).isa == isa


# --- completing what was read -------------------------------------------------------------------


def test_a_full_reading_is_kept_without_notes() -> None:
    readings = {
        1: CacheReading(48 * KIB, 12, 64, 1),
        2: CacheReading(2 * MIB, 16, 64, 1),
        3: CacheReading(260 * MIB, 20, 64, 60),
    }
    l1, l2, l3, notes = complete_caches(readings, KNOWN["generic-neon"])
    assert (l1.size_bytes, l2.ways, l3 and l3.cores) == (48 * KIB, 16, 60)
    assert notes == ()


def test_no_reading_at_all_takes_the_lenders_caches_and_says_so() -> None:
    lender = KNOWN["neoverse-v1"]
    *caches, notes = complete_caches({}, lender)
    assert tuple(caches) == lender.caches
    assert notes == ("caches: none reported; assumed those of neoverse-v1",)


def test_unknown_ways_are_lent_and_named() -> None:
    readings = {1: CacheReading(64 * KIB, None, 64, 1), 2: CacheReading(MIB, None, 64, 1)}
    l1, l2, l3, notes = complete_caches(readings, KNOWN["neoverse-n1"])
    assert (l1.ways, l2.ways, l3) == (4, 8, None)
    assert notes == (
        "L1: not reported; assumed, after neoverse-n1: ways 4",
        "L2: not reported; assumed, after neoverse-n1: ways 8",
        "L3: none reported; assumed that there is none",
    )


def test_lent_ways_divide_the_size_that_was_read() -> None:
    readings = {1: CacheReading(128 * KIB, None, 128, 1), 2: CacheReading(16 * MIB, None, 128, 4)}
    _, l2, _, notes = complete_caches(readings, KNOWN["apple-m1"])
    assert l2.ways == 16
    assert l2.sets * l2.ways * l2.line_bytes == 16 * MIB
    assert "ways 16" in notes[1]


@pytest.mark.parametrize(
    "garbage",
    [
        CacheReading(3, 8, 64, 1),
        CacheReading(32 * KIB, 1 << 40, 64, 1),
        CacheReading(32 * KIB, 8, 1 << 40, 1),
        CacheReading(32 * KIB, 8, 63, 1),
        CacheReading(32 * KIB, 0, 0, 0),
        CacheReading(),
    ],
)
@pytest.mark.parametrize("lender", ["apple-m1", "generic", "skylake-x"])
def test_garbage_readings_still_give_caches_with_at_least_one_set(garbage: CacheReading, lender: str) -> None:
    l1, l2, l3, notes = complete_caches({1: garbage, 2: garbage, 3: garbage}, KNOWN[lender])
    for level in (l1, l2, *([l3] if l3 else [])):
        assert level.sets >= 1
        assert level.ways >= 1
        assert level.cores >= 1
        assert level.line_bytes & (level.line_bytes - 1) == 0
    assert notes


# --- sysfs ----------------------------------------------------------------------------------------


def test_sysfs_sizes_ways_and_sharing_in_cores_not_threads(tmp_path: Path) -> None:
    readings, notes = detect.read_sysfs_caches(zen4_system(tmp_path), cpu=3)
    assert readings == {
        1: CacheReading(32 * KIB, 8, 64, 1),
        2: CacheReading(MIB, 8, 64, 1),
        3: CacheReading(32 * MIB, 16, 64, 2),
    }
    assert notes == ()


def test_sysfs_ways_zero_are_unknown(tmp_path: Path) -> None:
    root = write(tmp_path, cache(0, 0, "1", "Data", "64K", "0", "0"))
    readings, _ = detect.read_sysfs_caches(root)
    assert readings == {1: CacheReading(64 * KIB, None, 64, 1)}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024K", MIB),
        ("32M", 32 * MIB),
        ("1G", 1024 * MIB),
        ("49152", 48 * KIB),
        ("0K", None),
        ("-1", None),
        ("K", None),
        ("1.5M", None),
        ("32K garbage", None),
        ("\u0661K", None),
        ("9" * 400, None),
        ("", None),
    ],
)
def test_sysfs_size_is_bytes_or_unknown(tmp_path: Path, text: str, size: int | None) -> None:
    root = write(tmp_path, cache(0, 0, "2", "Unified", "", "8", "0"))
    (root / "cpu0/cache/index0/size").write_text(text, encoding="utf-8")
    readings, _ = detect.read_sysfs_caches(root)
    assert readings[2].size_bytes == size


@pytest.mark.parametrize("text", ["", "0-", "x", "5-2", "0-999999", "0-99999999999", "0,,1", "-1"])
def test_sysfs_garbage_cpu_list_leaves_the_sharing_unknown(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, cache(0, 0, "3", "Unified", "8192K", "16", text))
    readings, _ = detect.read_sysfs_caches(root)
    assert readings[3].cores is None


def test_sysfs_unreadable_entry_is_noted_and_skipped(tmp_path: Path) -> None:
    files = cache(0, 0, "one", "Data", "32K", "8", "0") | cache(0, 1, "2", "Unified", "512K", "8", "0")
    root = write(tmp_path, files)
    (root / "cpu0/cache/index2").mkdir()
    (root / "cpu0/cache/index3").write_bytes(b"\xff\x00")
    readings, notes = detect.read_sysfs_caches(root)
    assert set(readings) == {2}
    assert len(notes) == 3
    assert "index0" in notes[0]


def test_sysfs_of_bytes_that_are_no_text_does_not_raise(tmp_path: Path) -> None:
    root = write(tmp_path, cache(0, 0, "1", "Data", "32K", "8", "0"))
    for name in ("size", "ways_of_associativity", "coherency_line_size", "shared_cpu_list"):
        (root / "cpu0/cache/index0" / name).write_bytes(b"\xff\xfe\x00\n\n")
    readings, _ = detect.read_sysfs_caches(root)
    assert readings == {1: CacheReading()}


def test_absent_sysfs_reads_as_nothing(tmp_path: Path) -> None:
    assert detect.read_sysfs_caches(tmp_path / "nowhere") == ({}, ())


def test_cores_are_counted_once_per_sibling_pair(tmp_path: Path) -> None:
    root = zen4_system(tmp_path)
    assert detect.count_cores({0, 1, 2, 3}, root) == 2
    assert detect.count_cores({0, 2}, root) == 1
    assert detect.count_cores({3}, root) == 1
    assert detect.count_cores({0, 1, 2, 3}, tmp_path / "nowhere") == 4


# --- the whole machine ------------------------------------------------------------------------------


@linux_only
def test_detected_machine_has_the_caches_of_sysfs_and_the_affinitys_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect, "cpu_limits", lambda: CpuLimits(4, (0, 1, 2, 3), None, ""))
    machine = detect_machine(zen4_system(tmp_path))
    assert [level.size_bytes for level in machine.caches] == [32 * KIB, MIB, 32 * MIB]
    assert machine.l3 is not None
    assert machine.l3.cores == 2
    assert machine.cores == 2
    assert machine.notes == ()
    assert machine.isa == host_isas()[0]


@linux_only
def test_affinity_of_one_cpu_gives_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert cpu_limits(tmp_path, tmp_path).affinity == (3,)
    assert usable_cpus() == 1
    assert detect_machine(zen4_system(tmp_path)).cores == 1


@linux_only
def test_affinity_set_for_real_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
        assert detect_machine().cores == 1
    finally:
        os.sched_setaffinity(0, before)


@linux_only
def test_quota_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "cpu_limits", lambda: CpuLimits(4, (0, 1, 2, 3), 0.5, "cpu.max"))
    assert detect_machine(zen4_system(tmp_path)).cores == 1


@linux_only
def test_caches_come_from_the_fastest_cpu_of_a_hybrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"cpu0/cpu_capacity": "446", "cpu1/cpu_capacity": "1024"}
    files |= cache(0, 0, "1", "Data", "32K", "4", "0") | cache(1, 0, "1", "Data", "64K", "4", "1")
    monkeypatch.setattr(detect, "cpu_limits", lambda: CpuLimits(2, (0, 1), None, ""))
    assert detect_machine(write(tmp_path, files)).l1.size_bytes == 64 * KIB


@linux_only
@pytest.mark.parametrize(
    ("llvm_name", "name", "lender"),
    [
        ("neoverse-n1", "neoverse-n1", "neoverse-n1"),
        ("neoverse-n2", "neoverse-n2", "neoverse-n1"),
        ("znver4", "zen4", "zen4"),
        ("", "unknown", None),
    ],
)
def test_host_without_cache_files_borrows_by_llvm_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llvm_name: str, name: str, lender: str | None
) -> None:
    monkeypatch.setattr(detect, "_llvm_host_name", lambda: llvm_name)
    machine = detect_machine(tmp_path)
    known = KNOWN[lender or DEFAULTS[host_isas()[0].name]]
    assert machine.name == name
    assert machine.caches == known.caches
    assert machine.notes == (f"caches: none reported; assumed those of {known.name}",)


def test_macos_reads_the_performance_cores() -> None:
    m1 = {
        "hw.perflevel0.l1dcachesize": 128 * KIB,
        "hw.perflevel0.l2cachesize": 12 * MIB,
        "hw.perflevel0.cpusperl2": 4,
        "hw.perflevel0.physicalcpu": 4,
        "hw.perflevel0.logicalcpu": 4,
        "hw.l1dcachesize": 64 * KIB,
        "hw.l2cachesize": 4 * MIB,
        "hw.cachelinesize": 128,
    }
    *caches, notes = complete_caches(detect.read_sysctl_caches(m1.get), KNOWN["apple-m1"])
    assert caches == [KNOWN["apple-m1"].l1, KNOWN["apple-m1"].l2, None]
    assert len(notes) == 3


def test_macos_on_intel_counts_cores_not_threads() -> None:
    i7 = {
        "hw.l1dcachesize": 32 * KIB,
        "hw.l2cachesize": 256 * KIB,
        "hw.l3cachesize": 8 * MIB,
        "hw.cachelinesize": 64,
        "hw.physicalcpu": 4,
        "hw.logicalcpu": 8,
        "hw.cpusperl2": 2,
    }
    l1, l2, l3, _ = complete_caches(detect.read_sysctl_caches(i7.get), KNOWN["haswell"])
    assert (l1, l2, l3) == KNOWN["haswell"].caches
    assert detect.read_sysctl_caches(lambda _: None) == {}


def test_a_sysctl_name_that_does_not_exist_is_none() -> None:
    assert detect._sysctl("hw.no_such_name") is None


# --- CPUs that this process may use -----------------------------------------------------------------


def test_nested_cgroup_v2_takes_the_tightest_level(tmp_path: Path) -> None:
    proc = write(tmp_path, {"proc": "0::/slice/pod/box"}) / "proc"
    root = write(
        tmp_path / "cgroup",
        {
            "slice/cpu.max": "400000 100000",
            "slice/pod/cpu.max": "75000 50000",
            "slice/pod/box/cpu.max": "max 100000",
            "other/cpu.max": "1000 100000",
        },
    )
    quota, source = detect.read_cgroup_quota(proc, root)
    assert quota == 1.5
    assert Path(source) == root / "slice/pod/cpu.max"
    assert CpuLimits(8, None, quota, source).usable == 2


def test_cgroup_v1_and_its_parents(tmp_path: Path) -> None:
    proc = write(tmp_path, {"proc": "9:cpuset:/a/b\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/"}) / "proc"
    root = write(
        tmp_path / "cgroup",
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/a/cpu.cfs_quota_us": "250000",
            "cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/a/b/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000",
            "cpuset/a/b/cpu.cfs_quota_us": "1",
            "cpuset/a/b/cpu.cfs_period_us": "100000",
        },
    )
    quota, source = detect.read_cgroup_quota(proc, root)
    assert quota == 2.5
    assert Path(source) == root / "cpu,cpuacct/a/cpu.cfs_quota_us"


def test_cgroup_v2_beside_v1(tmp_path: Path) -> None:
    proc = write(tmp_path, {"proc": "1:cpuset:/\n0::/box"}) / "proc"
    root = write(tmp_path / "cgroup", {"unified/box/cpu.max": "300000 100000"})
    assert detect.read_cgroup_quota(proc, root)[0] == 3.0


def test_container_whose_path_is_its_hosts_falls_back_to_its_root(tmp_path: Path) -> None:
    proc = write(tmp_path, {"proc": "0::/../../kubepods/pod1/box"}) / "proc"
    root = write(tmp_path / "cgroup", {"cpu.max": "200000 100000"})
    assert detect.read_cgroup_quota(proc, root)[0] == 2.0


@pytest.mark.parametrize("text", ["max 100000", "", "0 100000", "-1", "100000 0", "x y z", "1e5 1e5", "\x00"])
def test_no_or_garbage_quota_is_no_limit(tmp_path: Path, text: str) -> None:
    proc = write(tmp_path, {"proc": "0::/box\n\nnonsense\n:::\n0::/\x00"}) / "proc"
    root = write(tmp_path / "cgroup", {"box/cpu.max": text, "cpu.cfs_quota_us": "100000"})
    assert detect.read_cgroup_quota(proc, root) == (None, "")
    assert detect.read_cgroup_quota(tmp_path / "absent", tmp_path / "absent") == (None, "")


@pytest.mark.parametrize(
    ("limits", "usable"),
    [
        (CpuLimits(8, None, None, ""), 8),
        (CpuLimits(8, (1, 5), None, ""), 2),
        (CpuLimits(8, (1, 5, 7), 2.01, "f"), 3),
        (CpuLimits(8, (1, 5, 7), 0.1, "f"), 1),
        (CpuLimits(2, (0, 1), 64.0, "f"), 2),
        (CpuLimits(1, (), None, ""), 1),
    ],
)
def test_usable_is_the_least_limit_and_at_least_one(limits: CpuLimits, usable: int) -> None:
    assert limits.usable == usable


# --- vector sets and the override ---------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, arch: str, *features: str) -> None:
    monkeypatch.setattr(detect, "host_arch", lambda: arch)
    monkeypatch.setattr(detect, "host_features", lambda: frozenset(features))


@pytest.mark.parametrize(
    ("said", "arch"),
    [
        ("AMD64", "x86_64"),
        ("x86_64", "x86_64"),
        ("arm64", "aarch64"),
        ("aarch64", "aarch64"),
        ("ppc64le", "ppc64le"),
    ],
)
def test_arch_is_normalised(monkeypatch: pytest.MonkeyPatch, said: str, arch: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: said)
    assert host_arch() == arch


@pytest.mark.parametrize("name", ISAS)
def test_a_set_runs_exactly_when_all_its_features_are_there(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    isa = ISAS[name]
    arch = "riscv64" if isa.arch == "any" else isa.arch
    pretend(monkeypatch, arch, *isa.features)
    assert isa in host_isas()
    assert host_isas()[-1] == ISAS["generic"]
    for missing in isa.features:
        pretend(monkeypatch, arch, *(set(isa.features) - {missing}))
        assert isa not in host_isas()


def fake_llvm(monkeypatch: pytest.MonkeyPatch, features: dict[str, bool] | None) -> None:
    def reply() -> dict[str, bool]:
        if features is None:
            raise RuntimeError("failed to get host cpu features.")
        return features

    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", reply)


def test_avx512_that_the_kernel_hides_is_not_a_feature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_llvm(monkeypatch, {"avx512f": True, "avx512vl": True, "avx512bf16": True, "avx2": True, "fma": False})
    shown = write(tmp_path, {"shown": "processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 fma"}) / "shown"
    hidden = write(tmp_path, {"hidden": "processor\t: 0\nflags\t\t: fpu avx2"}) / "hidden"
    silent = write(tmp_path, {"silent": "Features\t: fp asimd"}) / "silent"
    assert host_features(shown) - {"sse2", "neon"} == {"avx512f", "avx512bf16", "avx2"}
    assert host_features(hidden) - {"sse2", "neon"} == {"avx2"}
    for unreadable in (silent, tmp_path / "absent"):
        assert {"avx512f", "avx512vl", "avx512bf16", "avx2"} <= host_features(unreadable)


@pytest.mark.parametrize(("arch", "base"), [("x86_64", {"sse2"}), ("aarch64", {"neon"}), ("s390x", set())])
def test_base_features_hold_where_llvm_reports_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arch: str, base: set[str]
) -> None:
    fake_llvm(monkeypatch, None)
    monkeypatch.setattr("platform.machine", lambda: arch)
    assert host_features(tmp_path / "absent") == base


def test_override_takes_machines_and_sets_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "x86_64", *ISAS["avx512"].features, "sse2")
    assert resolve_arch("AVX2") == ISAS["avx2"]
    assert resolve_arch(" Haswell ") == ISAS["avx2"]
    assert resolve_arch("Zen4") == ISAS["avx512"]
    assert resolve_arch("generic") == ISAS["generic"]


@pytest.mark.parametrize("text", ["pentium", "avx-512", "", "None"])
def test_unknown_override_lists_every_valid_name(text: str) -> None:
    with pytest.raises(OverrideError) as caught:
        resolve_arch(text)
    message = str(caught.value)
    assert "BLISGEMM_ARCH" in message
    assert repr(text) in message
    assert all(name in message for name in (*ISAS, *KNOWN))


def test_override_that_cannot_run_names_the_missing_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "x86_64", "sse2", "avx2", "fma", "avx512f")
    with pytest.raises(OverrideError, match=r"avx512 needs avx512vl, avx512bw, avx512dq, which .* avx2, sse2"):
        resolve_arch("skylake-x")
    with pytest.raises(OverrideError, match=r"neon needs neon of aarch64, which this x86_64 host"):
        resolve_arch("apple-m1")


def test_current_with_an_override_keeps_the_hosts_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = current()
    assert current() is plain
    lowest = host_isas()[-1]
    monkeypatch.setenv("BLISGEMM_ARCH", lowest.name.upper())
    assert current() is plain
    current.cache_clear()
    forced = current()
    assert forced.isa == lowest
    assert forced == dataclasses.replace(plain, isa=lowest, notes=forced.notes)
    assert forced.notes[: len(plain.notes)] == plain.notes
    assert "BLISGEMM_ARCH=GENERIC" in forced.notes[-1]
    assert plain.isa.name in forced.notes[-1]


def test_current_refuses_a_bad_override_each_time_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLISGEMM_ARCH", "no-such-machine")
    for _ in range(2):
        with pytest.raises(OverrideError):
            current()
    monkeypatch.setenv("BLISGEMM_ARCH", "  ")
    assert current().isa == host_isas()[0]


def test_this_host_is_detected_whole() -> None:
    machine = current()
    assert machine.arch == host_arch()
    assert 1 <= machine.cores <= usable_cpus() <= (os.cpu_count() or 1)
    assert all(level.sets >= 1 for level in machine.caches)
    assert machine.page_bytes >= 4 * KIB
    assert hash(machine) == hash(dataclasses.replace(machine))


def test_importing_the_machine_layer_loads_no_compiler() -> None:
    code = "import sys, blisgemm.machine; print([m for m in ('llvmlite', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
