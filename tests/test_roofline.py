"""Rooflines: the field's seed numbers, data sheets by hand, places under the roofs, the chart, the command."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from blisgemm.cli import main
from blisgemm.cuda.device import KNOWN_DEVICES
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.machine import ISAS, KNOWN
from blisgemm.machine.facts import Machine
from blisgemm.teach.elsewhere import plan_on
from blisgemm.teach.machines import TEACHING_MACHINE
from blisgemm.teach.placing import device_roofline, product_roofline, roofline, rung_intensity, rung_points
from blisgemm.teach.rates import GPU_BYTES_PER_SECOND, Level, Rates, data_sheet, device_sheet
from blisgemm.teach.roofline import (
    Point,
    Roofline,
    bounds_of,
    points_of,
    ridge,
    roofline_of,
    ruling,
    tile_intensity,
    wave_share,
    waves,
)
from blisgemm.teach.traffic import traffic_of

# 16 GFLOP/s; L1 64 GB/s a core, memory 8 GB/s for all
SMALL = Rates("small", "by hand", (("float32", 16e9),), (Level("L1", 64e9), Level("memory", None, 8e9)), 2)


# ---- the seed numbers -----------------------------------------------------------------------------


def test_the_seed_numbers_of_the_field() -> None:
    assert tile_intensity(128, 128, "float32") == 32
    assert 290 < ridge(989e12, 3.35e12) < 300
    assert waves(133, 132) == 2 and waves(132, 132) == 1
    assert wave_share(133, 132) == 133 / 264


def test_intensity_of_a_tile_by_hand() -> None:
    assert tile_intensity(1, 1, "float32") == 2 / 8
    assert tile_intensity(4, 4, "float64") == 32 / 64
    assert tile_intensity(2, 2, "complex64") == 4 * 8 / (4 * 8)
    with pytest.raises(BlisgemmValueError, match=r"^bm: expected an integer >= 1; got 0"):
        tile_intensity(0, 4)
    with pytest.raises(BlisgemmValueError, match=r"^dtype: expected one of .*; got 'int3'"):
        tile_intensity(4, 4, "int3")


# ---- data sheets ----------------------------------------------------------------------------------


def sheet(machine: Machine) -> Rates:
    rates = data_sheet(machine)
    assert rates is not None
    return rates


def test_peaks_are_lanes_times_pipes_times_two_times_the_clock() -> None:
    assert sheet(KNOWN["haswell"]).peak("float32") == 8 * 2 * 2 * 3.9e9
    assert sheet(KNOWN["skylake-x"]).peak("float64") == 8 * 2 * 2 * 4.5e9
    # a 512-bit operation passes Zen 4's 256-bit pipes twice: a cycle does no more than with AVX2
    assert sheet(KNOWN["zen4"]).peak("float32") == 8 * 2 * 2 * 5.4e9
    # Nehalem multiplies in one pipe and adds in another
    assert sheet(KNOWN["generic-sse2"]).peak("float32") == 4 * 2 * 2.93e9
    assert sheet(KNOWN["apple-m1"]).peak("float64", 4) == 4 * 2 * 4 * 2 * 3.2e9


def test_a_lower_vector_set_has_a_lower_peak() -> None:
    from dataclasses import replace

    peaks = [sheet(replace(KNOWN["skylake-x"], isa=ISAS[name])).peak("float32") for name in ("avx512", "avx2", "sse2")]
    assert peaks[0] == 2 * peaks[1] == 8 * peaks[2]  # half the lanes; then half again, and two instructions a term


@pytest.mark.parametrize("machine", KNOWN.values(), ids=KNOWN)
def test_every_sheet_is_plausible(machine: Machine) -> None:
    rates = data_sheet(machine)
    if rates is None:
        assert machine.name in ("generic-neon", "generic")
        return
    assert rates.peak("float32") == 2 * rates.peak("float64") == rates.peak("complex64")
    assert rates.levels[0].name == "L1" and rates.levels[-1].name == "memory"
    one = [level.rate(1) for level in rates.levels]
    assert all(rate > 1e9 for rate in one) and rates.source
    on_chip = [level.rate(1) for level in rates.levels if level.name != "memory"]
    assert on_chip == sorted(on_chip, reverse=True)
    assert rates.bandwidth("memory", 1) == rates.bandwidth("memory", 64)
    assert rates.bandwidth("L1", 3) == 3 * on_chip[0]
    assert rates.bandwidth("L9") is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tile_intensity(0, 1), "bm: expected an integer >= 1; got 0"),
        (lambda: tile_intensity(4, 1.5), "bn: expected an integer >= 1; got 1.5"),
        (lambda: ridge(1, 0), "bytes_per_second: expected a rate above 0; got 0"),
        (lambda: ridge("a", 1), "flops_per_second: expected a rate above 0; got 'a'"),
        (lambda: waves(1, 0), "multiprocessors: expected an integer >= 1; got 0"),
        (lambda: wave_share(-1, 132), "tiles: expected an integer >= 1; got -1"),
        (lambda: data_sheet("haswell"), "machine: expected a Machine, as machine_named returns; got 'haswell'"),
        (lambda: device_sheet(3), "device: expected one of .*; got 3"),
        (lambda: roofline_of(data_sheet(KNOWN["zen3"]), "float32", 0), "threads: expected an integer >= 1; got 0"),
        (lambda: roofline_of(data_sheet(KNOWN["zen3"]), "float32").attainable(math.nan, "L1"), "intensity: expected"),
        (lambda: roofline(9, 9, 9, machine="haswell", threads=5), "threads: expected at most the 4 cores of haswell"),
    ],
)
def test_what_is_no_rate_or_count_is_named(call: Any, message: str) -> None:
    with pytest.raises((BlisgemmValueError, BlisgemmTypeError), match=message):
        call()


def test_gpus() -> None:
    assert set(GPU_BYTES_PER_SECOND) == set(KNOWN_DEVICES)
    for name in KNOWN_DEVICES:
        device, rates = device_sheet(name)
        assert rates.peak("float32") == device.multiprocessors * device.fmas("float32") * 2 * device.clock_ghz * 1e9
    _, h100 = device_sheet("H100")
    assert h100.bandwidth("memory") == 3.35e12
    with pytest.raises(BlisgemmValueError, match=r"^device: expected one of .*; got 'abacus'"):
        device_sheet("abacus")


def test_no_peak_no_answer() -> None:
    with pytest.raises(BlisgemmValueError, match=r"^dtype: expected one with a peak, float32; got 'float64'"):
        SMALL.peak("float64")
    assert SMALL.peak("complex64", 2) == 32e9


# ---- under the roofs ------------------------------------------------------------------------------


def test_roofs_by_hand() -> None:
    chart = roofline_of(SMALL, "float32", 2)
    assert chart.peak == 32e9
    assert chart.ridge("L1") == 32 / 128 and chart.ridge("memory") == 32 / 8
    assert chart.attainable(1.0, "memory") == 8e9
    assert chart.attainable(4.0, "memory") == chart.attainable(1e6, "memory") == 32e9
    with pytest.raises(BlisgemmValueError, match=r"^level: expected one of L1, memory; got 'L2'"):
        chart.ridge("L2")


def test_a_product_has_a_point_for_every_roof_at_the_height_of_the_lowest() -> None:
    plan = plan_on("haswell", 2, 3000, 3000, threads=1)
    traffic, rates = traffic_of(plan), sheet(KNOWN["haswell"])
    points = points_of("x", traffic, rates, "float32", 1)
    assert [point.level for point in points] == ["L1", "L2", "L3", "memory"]
    chart = roofline_of(rates, "float32", 1, points)
    lowest = min(chart.attainable(p.intensity, p.level) for p in points)
    assert all(math.isclose(p.flops_per_second, lowest) for p in points)
    assert ruling(bounds_of(traffic, rates, "float32", 1)).name == "memory"
    timed = points_of("x", traffic, rates, "float32", 1, measured=1e9)
    assert {p.flops_per_second for p in timed} == {1e9} and all(p.measured for p in timed)


def test_large_squares_are_bound_by_compute_and_one_row_by_what_is_far_away() -> None:
    for name in ("haswell", "zen3", "skylake-x", "neoverse-n1", "apple-m1"):
        rates = sheet(KNOWN[name])
        large, row = (traffic_of(plan_on(name, m, 4000, 4000, threads=1)) for m in (4000, 1))
        assert ruling(bounds_of(large, rates, "float32", 1)).name == "compute"
        limit = ruling(bounds_of(row, rates, "float32", 1)).name
        if name in ("haswell", "zen3", "apple-m1"):
            assert limit == "memory"
        else:  # one core of a server draws less than all channels could send
            assert limit in ("L1", "L3")


def test_points_of_a_level_without_roof_or_of_no_bytes_are_left_out() -> None:
    points = (Point("a", "L2", 1.0, 1e9), Point("b", "memory", math.inf, 1e9), Point("c", "memory", 1.0, 1e9))
    assert [point.name for point in roofline_of(SMALL, "float32", 1, points).points] == ["c"]


def test_a_machine_that_nobody_describes_has_no_roofline() -> None:
    with pytest.raises(BlisgemmValueError, match=r"^machine: expected one with a data sheet; nobody .* teaching is"):
        product_roofline(None, "float32", 1, None, TEACHING_MACHINE)


def test_gpu_products() -> None:
    chart, words = device_roofline("h100", (4096, 4096, 4096))
    tiles, once = chart.points
    assert once.intensity == 2 * 4096**3 / (4 * 3 * 4096**2)
    assert tiles.intensity < once.intensity and once.flops_per_second == chart.peak
    assert "132 multiprocessors" in words and "waves" in words
    row, _ = device_roofline("h100", (1, 4096, 4096))
    assert row.points[1].flops_per_second < row.peak / 10  # matrix times vector: memory
    assert device_roofline("t4", None)[0].points == ()


def test_rungs_rise_in_intensity_with_their_tiles() -> None:
    plan = plan_on("haswell", 512, 512, 512, path="packed", threads=1)
    assert plan.kernel is not None
    mr, nr = plan.kernel.mr, plan.kernel.nr
    at = [rung_intensity(number, plan) for number in range(9)]
    assert at[0] == at[1] == 0.25 and at[2] == 2 / 12 and at[3] == 1.0
    assert at[4] == at[5] == 2 * mr * nr / (4 * (mr + nr))
    assert at[6] == at[8] == traffic_of(plan).intensity("L1") < at[5]
    points = rung_points([("r0", 5e6), ("r8", 9e10)], plan)
    assert [(p.name, p.intensity, p.measured) for p in points] == [("r0", at[0], True), ("r8", at[8], True)]


# ---- the chart ------------------------------------------------------------------------------------


def chart_of_four() -> Roofline:
    points = [Point(f"p{i}", ("L1", "memory")[i % 2], 2.0**i, 1e9 * (i + 1), True) for i in range(4)]
    return roofline_of(SMALL, "float32", 1, points)


def test_text_names_peak_roofs_and_points() -> None:
    text = str(chart_of_four())
    for word in ("16 GFLOP/s", "64 GB/s", "8 GB/s", "p0", "p3", "reaches the peak at 2 FLOP/byte", "by hand"):
        assert word in text
    drawn = [line for line in text.splitlines() if "│" in line]
    assert len(drawn) == 18 and all(len(line) <= 16 + 72 for line in drawn)
    for mark in "abcd":
        assert sum(line.split("│", 1)[1].count(mark) for line in drawn) >= 1
    # the memory's roof ends where it meets the peak: to the right there is only the flat one
    assert any("───" in line and "GFLOP/s" in line for line in drawn)


def test_a_chart_without_points_or_with_one_roof_is_drawn() -> None:
    assert "│" in str(roofline_of(SMALL, "float32", 1))
    bare = Rates("bare", "by hand", (("float32", 1e9),), (Level("memory", None, 1e9),))
    assert "1 GFLOP/s" in str(roofline_of(bare, "float32", 1))


def test_chart_as_json() -> None:
    told = chart_of_four().to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["roofs"][1] == {"level": "memory", "bytes_per_second": 8e9, "ridge_flops_per_byte": 2.0}
    assert told["points"][1]["attainable_flops_per_second"] == 16e9


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from blisgemm.teach.roofplot import draw_roofline, roofline_figure

    path = tmp_path / f"roof{suffix}"
    draw_roofline(chart_of_four(), path)
    assert path.stat().st_size > 5000
    words = {text.get_text() for text in roofline_figure(chart_of_four()).axes[0].texts}
    assert {"L1: 64 GB/s", "memory: 8 GB/s", "peak, float32: 16 GFLOP/s", "p0: 1 GFLOP/s", "p3: 4 GFLOP/s"} <= words
    product = product_roofline(plan_on("zen3", 500, 500, 500, threads=1), "float32", 1, None)
    words = {text.get_text() for text in roofline_figure(product).axes[0].texts}
    assert any("500×500×500: at most" in word for word in words) and "memory" in words
    with pytest.raises(BlisgemmValueError, match=r"^plot: expected a file that can be written"):
        draw_roofline(product, tmp_path / "roof.cake")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from blisgemm.teach.roofplot import roofline_figure

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BlisgemmValueError, match=r"pip install 'blisgemm\[plot\]'"):
        roofline_figure(chart_of_four())


# ---- the command ----------------------------------------------------------------------------------


def test_a_data_sheet_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "1000", "1000", "1000", "--machine", "haswell"]) == 0
    expected = product_roofline(plan_on("haswell", 1000, 1000, 1000, threads=1), "float32", 1, None)
    assert capsys.readouterr().out == f"{expected}\n"
    assert main(["roofline", "--device", "h200", "4096", "4096", "4096", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == device_roofline("h200", (4096, 4096, 4096))[0].to_dict()


def test_this_machine_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "64", "64", "64", "--time", "--seconds", "0.2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["peak_flops_per_second"] > 1e8 and "measured on this machine" in told["source"]
    rates = [roof["bytes_per_second"] for roof in told["roofs"]]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 1e7
    assert told["points"] and all(point["measured"] for point in told["points"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1", "2"], "M N K: expected three extents of at least 1; got 1 2"),
        (["0", "2", "3"], "M N K: expected three extents"),
        (["--machine", "pdp-11"], "machine: expected one of"),
        (["--machine", "generic"], "machine: expected one with a data sheet"),
        (["--device", "abacus"], "device: expected one of"),
        (["--machine", "zen3", "--device", "h200"], "--machine: expected nothing beside --device"),
        (["--machine", "zen3", "--time", "1", "1", "1"], "--time, --ladder: expected on this machine only"),
        (["--time"], "--time: expected M N K"),
        (["--dtype", "int8"], "--dtype: expected float32"),
        (["--ladder", "64", "--dtype", "complex64"], "--ladder: expected at least 16"),
        (["--seconds", "0"], "--seconds: expected a positive number"),
        (["--machine", "zen3", "--plot", "/nowhere/at/all.png"], "--plot: expected a file in an existing folder"),
        (["--plot", "."], "--plot: expected a file; . is a folder"),
        (["--device", "h200", "--threads", "2"], "--threads: expected nothing beside --device"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", *words]) == 2
    assert capsys.readouterr().err.startswith(f"blisgemm roofline: error: {message}")
