"""Explanations: expected traffic by hand and against the simulated caches, every machine, JSON, HTML, the command."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import blisgemm
from blisgemm.blocking import Blocking, footprints, kc_for, low_et_al
from blisgemm.cli import main
from blisgemm.errors import BlisgemmTypeError, BlisgemmValueError
from blisgemm.machine import ISAS, KNOWN
from blisgemm.plan import PASSING, Plan
from blisgemm.teach.alternatives import LOW
from blisgemm.teach.elsewhere import plan_on
from blisgemm.teach.explain import Explanation, explain, explain_plan
from blisgemm.teach.html import fragment, page
from blisgemm.teach.machines import TEACHING_MACHINE
from blisgemm.teach.traffic import Traffic, flops_of, traffic_of
from blisgemm.ukernel.spec import KernelSpec

KERNEL = KernelSpec("float32", "float32", "float32", 4, 8, ISAS["generic"])
SHAPES = [(1000, 1000, 1000), (3000, 40, 3000), (2, 2000, 2000), (10, 2000, 2000), (30, 20, 10), (500, 1, 300)]


def packed_plan(m: int, n: int, k: int, mc: int, nc: int, kc: int, **more: object) -> Plan:
    sizes = footprints(TEACHING_MACHINE, KERNEL, mc, nc, kc)
    return Plan(m, n, k, "float32", "packed", KERNEL, Blocking(mc, nc, kc, sizes, ()), TEACHING_MACHINE, **more)  # type: ignore[arg-type]


def by_level(traffic: Traffic) -> dict[str, dict[str, int]]:
    return {each.level: dict(each.operands) for each in traffic.levels}


# ---- traffic --------------------------------------------------------------------------------------


def test_traffic_of_the_packed_path_by_hand() -> None:
    """8 x 16 x 8 with two kc blocks: A is 256 bytes, B and C are 512."""
    traffic = traffic_of(packed_plan(8, 16, 8, mc=8, nc=16, kc=4))
    assert traffic.flops == 2 * 8 * 16 * 8
    assert by_level(traffic)["L1"] == {
        "A": 256,  # read by packing
        "packed A": 256 + 2 * 256,  # written; read for each of 16 / 8 micro-panels of B
        "B": 512,
        "packed B": 512 + 2 * 512,  # written; read for each of 8 / 4 micro-panels of A
        "C": 512 + 2 * 512,  # written, then read and written
    }
    # all of it fits in L2 (8 KiB): everything comes once, what was written goes back; buffers are of one kc block
    assert by_level(traffic)["memory"] == {"A": 256, "packed A": 2 * 128, "B": 512, "packed B": 2 * 256, "C": 2 * 512}


def test_a_second_panel_of_a_packs_b_again_and_a_second_block_of_b_reads_a_again() -> None:
    one = by_level(traffic_of(packed_plan(32, 32, 16, mc=32, nc=32, kc=16)))["L1"]
    two_panels = by_level(traffic_of(packed_plan(32, 32, 16, mc=16, nc=32, kc=16)))["L1"]
    assert two_panels["B"] == 2 * one["B"] == 2 * 32 * 16 * 4
    assert two_panels["packed B"] - one["packed B"] == 32 * 16 * 4  # it is written once more
    assert two_panels["A"] == one["A"] and two_panels["packed A"] == one["packed A"]
    tiny = replace(TEACHING_MACHINE, l2=replace(TEACHING_MACHINE.l2, size_bytes=2048), l3=None)
    plans = [replace(packed_plan(32, 32, 16, mc=32, nc=nc, kc=16), machine=tiny) for nc in (32, 8)]
    far = [by_level(traffic_of(plan))["memory"]["packed A"] for plan in plans]
    assert far[1] - far[0] == 3 * 32 * 16 * 4  # four blocks of B in place of one


def test_half_reads_a_as_it_lies() -> None:
    packed, half = (by_level(traffic_of(packed_plan(8, 16, 8, 8, 16, 8, half=half))) for half in (False, True))
    assert "packed A" not in half["L1"] and half["L1"]["A"] == packed["L1"]["packed A"] - packed["L1"]["A"]
    assert half["memory"]["A"] == packed["memory"]["A"] == 256


def test_traffic_of_the_direct_path_by_hand() -> None:
    blocking = Blocking(mc=8, nc=16, kc=8, footprints=(), reasons=())
    plan = Plan(8, 16, 8, "float32", "direct", KERNEL, blocking, TEACHING_MACHINE)
    assert by_level(traffic_of(plan))["L1"] == {"A": 2 * 256, "B": 2 * 512, "C": 512}
    copied = by_level(traffic_of(replace(plan, access="copied")))["L1"]
    assert copied == {"A": 2 * 256, "B": 512, "copy of B": 512 + 2 * 512, "C": 512}
    # two threads side by side each read all of A, and half of B and C
    beside = traffic_of(replace(plan, jr_ways=2))
    assert by_level(beside)["L1"] == by_level(traffic_of(plan))["L1"]
    assert by_level(beside)["L2"]["A"] == 2 * 256 and by_level(beside)["L2"]["B"] == 512


def test_the_order_of_the_direct_path_decides_which_operand_passes() -> None:
    """One strip of 64 x 64 stays in L1 (2 KiB); the other operand, 4 KiB, passes by each time."""
    blocking = Blocking(mc=64, nc=64, kc=16, footprints=(), reasons=())
    machine = replace(TEACHING_MACHINE, l1=replace(TEACHING_MACHINE.l1, size_bytes=2048))
    plan = Plan(64, 64, 16, "float32", "direct", KERNEL, blocking, machine)
    down, along = (by_level(traffic_of(replace(plan, rows_first=rows)))["L2"] for rows in (False, True))
    assert down["A"] == 64 * 16 * 4 * 8 and down["B"] == 64 * 16 * 4 * 2  # a strip of B is 8 wide, half of a line
    assert along["A"] == 64 * 16 * 4 and along["B"] == 64 * 16 * 4 * 16


def test_where_b_passes_by_it_comes_from_memory_once() -> None:
    cases = (
        (2, "sweep", "zen3", "float32"), (7, "sweep", "zen3", "float32"), (8, "stream", "skylake-x", "float64"),
        (40, "strips", "skylake-x", "float32"),
    )  # fmt: skip
    for m, path, machine, dtype in cases:
        plan = plan_on(machine, m, 4000, 4000, dtype, threads=1)
        assert plan.path == path
        traffic, size = traffic_of(plan), 8 if dtype == "float64" else 4
        assert by_level(traffic)["memory"]["B"] == 4000 * 4000 * size
        assert plan.kernel is not None
        rows = 1 if path == "strips" else -(-m // (plan.kernel.sweep_rows if path == "sweep" else plan.kernel.mr))
        assert by_level(traffic)["L1"]["B"] == rows * 4000 * 4000 * size


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 4])
def test_every_operand_moves_at_least_once_and_outer_levels_move_less(
    shape: tuple[int, int, int], threads: int
) -> None:
    m, n, k = shape
    for machine in ("haswell", "zen4", "apple-m1", "generic"):
        traffic = traffic_of(plan_on(machine, m, n, k, "float64", threads=threads))
        assert traffic.flops == flops_of(m, n, k, "float64")
        counts = [each.bytes for each in traffic.levels[1:]]
        assert counts[-1] >= 8 * (m * k + k * n + 2 * m * n)
        assert counts == sorted(counts, reverse=True)
        assert all(each.bytes == sum(count for _, count in each.operands) for each in traffic.levels)


def test_threads_share_the_work_and_a_batch_multiplies_it() -> None:
    one, four = (traffic_of(plan_on("zen3", 1000, 1000, 1000, threads=t)) for t in (1, 4))
    assert one.bytes_of("L1") == four.bytes_of("L1")
    plan = plan_on("zen3", 30, 30, 30, threads=1)
    assert traffic_of(replace(plan, batch=7)).bytes_of("memory") == 7 * traffic_of(plan).bytes_of("memory")


def test_threads_fetch_what_they_share_into_each_of_their_own_caches_but_once_into_a_shared_one() -> None:
    plan = plan_on("zen3", 1000, 1000, 1000, threads=1)
    assert plan.blocking is not None and plan.path == "packed"
    tiles = replace(plan.blocking, mt=252, nb=1008)
    one, four = (replace(plan, ic_ways=ways, blocking=tiles) for ways in (1, 4))
    near, far = (by_level(traffic_of(four))[level] for level in ("L3", "memory"))
    assert near["packed B"] > 1.9 * by_level(traffic_of(one))["L3"]["packed B"]  # four L2 each fetch all of B
    assert near["packed A"] < 1.2 * by_level(traffic_of(one))["L3"]["packed A"]  # and each its own rows of A
    assert far["A"] == far["B"] == 1000 * 1000 * 4 and far["C"] == 2 * far["A"]
    blocking = Blocking(mc=64, nc=64, kc=16, footprints=(), reasons=())
    direct = Plan(64, 64, 16, "float32", "direct", KERNEL, blocking, KNOWN["haswell"], jr_ways=2)
    beyond = by_level(traffic_of(direct))
    assert beyond["L2"]["A"] == 2 * 64 * 16 * 4 and beyond["L2"]["B"] == 64 * 16 * 4
    assert beyond["memory"]["A"] == 64 * 16 * 4


def test_numpy_products_have_no_traffic() -> None:
    plan = blisgemm.make_plan(4, 4, 4, "int32")
    with pytest.raises(BlisgemmValueError, match=r"^plan: expected one that the library's loops run; got path 'numpy'"):
        traffic_of(plan)
    explained = explain(4, 4, 4, "int32")
    assert explained.traffic is None and explained.bounds == () and "NumPy multiplies" in str(explained)


# ---- explanations ---------------------------------------------------------------------------------


class _Tags(HTMLParser):
    """Raises unless every tag is closed in its turn; collects attributes and text."""

    VOID = ("meta", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        assert tag != "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked_html(text: str) -> _Tags:
    """Return the parsed text, which must be closed and refer to nothing outside."""
    tags = _Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open
    assert not {name for name, _ in tags.attributes} & {"src", "href", "srcset", "data", "action", "onclick"}
    assert not re.search(r"https?:|//|url\(|@import|<script|<link", text)
    return tags


@pytest.mark.parametrize("machine", [*KNOWN, "teaching"])
def test_every_known_machine_explains_every_path(machine: str) -> None:
    for number, (m, n, k) in enumerate(SHAPES):
        dtype = ("float32", "float64", "complex64", "complex128")[number % 4]
        explained = explain(m, n, k, dtype, machine=machine)
        plan = explained.plan
        assert plan.machine.name == machine and plan.kernel is not None
        assert plan.kernel.isa == plan.machine.isa and plan.kernel.acc_dtype == dtype
        assert plan.threads <= plan.machine.cores
        assert explained.places and explained.traffic is not None
        told = explained.to_dict()
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        for title in ("where the blocks lie", "expected traffic", "not chosen", "the model"):
            assert title in str(explained)
        checked_html(explained._repr_html_())
        if explained.rates is None:
            assert not explained.bounds and "No times" in str(explained)
        else:
            assert explained.ruling is not None
            assert explained.ruling.seconds == max(bound.seconds for bound in explained.bounds)
            assert explained.serial == sum(bound.seconds for bound in explained.bounds)
            assert explained.attainable == explained.traffic.flops / explained.ruling.seconds


def test_the_plan_of_this_machine_is_the_one_that_runs() -> None:
    assert explain(300, 400, 500, threads=1).plan == blisgemm.make_plan(300, 400, 500, threads=1)
    assert explain(300, 400, 500).plan == blisgemm.make_plan(300, 400, 500)


def test_nothing_to_multiply_is_explained_too() -> None:
    for m, n, k, path, moved in ((0, 5, 5, "empty", 0), (5, 5, 0, "scale", 2 * 100)):
        explained = explain(m, n, k, machine="haswell")
        assert explained.plan.path == path and explained.traffic is not None
        assert explained.traffic.flops == 0 and explained.traffic.bytes_of("memory") == moved
        assert explained.alternatives == () and str(explained)
        checked_html(page(explained))


def test_alternatives_are_what_the_choosing_functions_say() -> None:
    explained = explain(3000, 3000, 3000, machine="haswell", threads=1)
    plan, found = explained.plan, {other.name: other for other in explained.alternatives}
    assert plan.kernel is not None and plan.blocking is not None
    assert plan.path not in found and plan.kernel.name not in found
    assert {other.name for other in explained.alternatives if other.kind == "path"} == {*PASSING, "direct"}
    rejected = {other.name for other in explained.alternatives if other.kind == "kernel"}
    everything = {spec.name for spec in blisgemm.ukernel.catalog.kernels("float32", "avx2")}
    assert rejected == everything - {plan.kernel.name}
    twice = found[f"nc = {2 * plan.blocking.nc}"]
    share = footprints(plan.machine, plan.kernel, plan.blocking.mc, 2 * plan.blocking.nc, plan.blocking.kc)[3].share
    assert f"would take {share * 100:.0f} % of L2" in twice.why
    # nobody is in the way of comparing: the cost of a path is that of the plan with this path
    direct = plan_on("haswell", 3000, 3000, 3000, threads=1, path="direct")
    assert dict(found["direct"].levels) == {e.level: e.bytes for e in traffic_of(direct).levels}
    low = next(other for other in explained.alternatives if other.kind == LOW)
    answer = low_et_al(plan.machine, plan.kernel)
    assert answer.text in low.why and f"kc {answer.kc}" in low.name
    assert f"not the library's {kc_for('float32', 3000)}" in low.why


def test_what_cannot_run_is_said_with_the_reason() -> None:
    explained = explain(500, 1, 300, machine="haswell", threads=1)  # turned, so B has no rows of unit stride
    impossible = [other for other in explained.alternatives if not other.levels]
    assert impossible and all(other.why.startswith("not possible: path: expected") for other in impossible)


def test_a_plan_alone_is_explained_without_alternatives() -> None:
    explained = explain_plan(plan_on("zen4", 200, 200, 200, threads=1))
    assert explained.alternatives == () and "not chosen" not in str(explained)


def test_arguments_are_checked() -> None:
    with pytest.raises(BlisgemmValueError, match=r"^machine: expected one of .*haswell.*; got 'pdp-11'"):
        explain(2, 2, 2, machine="pdp-11")
    with pytest.raises(BlisgemmTypeError, match=r"^threads: expected an integer >= 1; got 1.5"):
        explain(2, 2, 2, machine="haswell", threads=1.5)  # type: ignore[arg-type]
    with pytest.raises(BlisgemmValueError, match=r"^m: expected an integer >= 0; got -1"):
        explain(-1, 2, 2)


def test_html_escapes_names_and_fills_no_bar_beyond_its_end() -> None:
    odd = replace(KNOWN["haswell"], name="<i>&")
    explained = explain(1000, 1000, 1000, machine=odd, threads=1)
    tags = checked_html(fragment(explained))
    assert any("<i>&" in text for text in tags.text)
    widths = [float(w) for _, value in tags.attributes for w in re.findall(r"width:([\d.]+)%", value or "")]
    assert widths and max(widths) <= 100
    assert "prefers-color-scheme:dark" in fragment(explained)


def test_measured_rates_take_the_place_of_the_data_sheet() -> None:
    from blisgemm.teach.rates import Level, Rates

    slow = Rates("here", "by hand", (("float32", 1e9),), (Level("memory", None, 1e3),))
    explained = explain(100, 100, 100, machine="haswell", threads=1, rates=slow)
    assert [bound.name for bound in explained.bounds] == ["compute", "memory"]
    assert explained.ruling is not None and explained.ruling.name == "memory"
    assert explained.traffic is not None
    assert explained.ruling.seconds == explained.traffic.bytes_of("memory") / 1e3
    assert math.isclose(explained.bounds[0].seconds, 2e6 / 1e9)


# ---- the command ----------------------------------------------------------------------------------


def test_explain_for_another_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "2000", "2000", "2000", "--machine", "skylake-x", "--threads", "1"]) == 0
    plain = capsys.readouterr().out
    assert plain == f"{plan_on('skylake-x', 2000, 2000, 2000, threads=1)}\n"
    assert main(["explain", "2000", "2000", "2000", "--machine", "skylake-x", "--threads", "1", "--deep"]) == 0
    assert capsys.readouterr().out == f"{explain(2000, 2000, 2000, machine='skylake-x', threads=1)}\n"


def test_explain_as_json_and_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "100", "200", "300", "--machine", "neoverse-n1", "--dtype", "float64"]
    explained: Explanation = explain(100, 200, 300, "float64", machine="neoverse-n1")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == explained.to_dict()
    assert main([*words, "--html", str(tmp_path / "x.html")]) == 0
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert text == page(explained)
    checked_html(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "pdp-11"], "machine: expected one of"),
        (["--html", "/nowhere/at/all.html"], "html: expected a file in an existing folder; /nowhere/at is"),
        (["--device", "h200", "--deep"], "deep: expected nothing beside --device"),
        (["--device", "h200", "--machine", "zen3"], "machine: expected nothing beside --device"),
    ],
)
def test_explain_names_what_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "10", "20", "30", *words]) == 2
    assert capsys.readouterr().err.startswith(f"blisgemm explain: error: {message}")
