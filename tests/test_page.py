"""The page's data: steps that cover a product once, counts that are the simulator's, settings that can be asked for.

No browser here: ``test_page_browser`` looks at what is drawn.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import REPOSITORY

from blisgemm.cli import main
from blisgemm.errors import BlisgemmError
from blisgemm.ladder import accesses, rung_of
from blisgemm.teach.cachesim import simulate, simulate_trace
from blisgemm.teach.page import page, page_of
from blisgemm.teach.page_model import PageModel, make_model
from blisgemm.teach.page_orders import ORDERS
from blisgemm.teach.page_steps import thinned
from blisgemm.teach.region import Region
from blisgemm.teach.relink import relinked
from blisgemm.teach.server import answer, make_server
from blisgemm.teach.trace import MICROKERNEL, trace

KEYS = [order.key for order in ORDERS]
SHAPE = (13, 20, 11)  # no multiple of any tile


@pytest.fixture(scope="module")
def model() -> PageModel:
    return make_model(*SHAPE)


def unpacked(setting: dict[str, Any]) -> dict[str, Any]:
    """Undo what the page undoes: compression and differences."""
    data = json.loads(gzip.decompress(base64.b64decode(setting["data"])))
    for name in data["differences"]:
        data["columns"][name] = np.cumsum(data["columns"][name]).tolist()
    for name in ("hits", "misses", "resident"):
        data[name] = np.cumsum(np.array(data[name]), axis=2)
    return data


def steps_of_order(model: PageModel, key: str, **blocks: int) -> dict[str, Any]:
    return unpacked(model.setting(model.order(key), {**model.start, **blocks}))


@pytest.mark.parametrize("key", KEYS)
def test_steps_cover_each_term_once(model: PageModel, key: str) -> None:
    m, n, k = SHAPE
    columns = steps_of_order(model, key)["columns"]
    terms = np.zeros((m, n, k), int)
    rows = zip(*(columns[name] for name in ("kind", "i0", "i1", "j0", "j1", "p0", "p1")), strict=True)
    for kind, i0, i1, j0, j1, p0, p1 in rows:
        if kind == MICROKERNEL:
            terms[i0:i1, j0:j1, p0:p1] += 1
    assert (terms == 1).all()


@pytest.mark.parametrize("key", KEYS)
def test_counts_only_grow_and_caches_hold_no_more_than_they_can(model: PageModel, key: str) -> None:
    data = steps_of_order(model, key)
    for name in ("hits", "misses"):
        assert (np.diff(data[name], axis=2) >= 0).all()
    lines = np.array(data["counted"]["lines"])
    assert (data["resident"] >= 0).all() and (data["resident"].sum(axis=1) <= lines[:, None]).all()


@pytest.mark.parametrize(("key", "order"), [("r0", "ijp"), ("r2", "ipj"), ("jpi", "jpi")])
def test_plain_loops_miss_as_the_ladders_accesses_do(model: PageModel, key: str, order: str) -> None:
    m, n, k = SHAPE
    stream = accesses.accesses("r0", *SHAPE) if key == "r0" else accesses.accesses("r2", *SHAPE, order=order)
    sizes = {0: m * k, 1: k * n, 2: m * n}
    expected = simulate(tuple(stream.T), "teaching", sizes=sizes)
    setting = model.setting(model.order(key), model.start)
    assert setting["totals"] == expected.misses.sum(axis=1).tolist()
    assert unpacked(setting)["hits"][:, :, -1].sum() == expected.hits.sum()


def test_tiles_and_blocks_miss_as_the_ladders_accesses_do() -> None:
    blocks = {"mr": 4, "nr": 8, "mc": 8, "nc": 16, "kc": 9}
    m, n, k = shape = (16, 32, 18)  # whole tiles
    model, sizes = make_model(*shape), {0: m * k, 1: k * n, 2: m * n}
    for key in ("r3", "r4", "r5"):
        given = {name: blocks[name] for name in model.order(key).axes}
        expected = simulate(tuple(accesses.accesses(key, *shape, **given).T), "teaching", sizes=sizes)
        assert model.setting(model.order(key), blocks)["totals"] == expected.misses.sum(axis=1).tolist(), key


def test_packed_counts_are_those_of_the_trace(model: PageModel) -> None:
    blocks = {"mr": 2, "nr": 8, "mc": 6, "nc": 16, "kc": 4}
    data = steps_of_order(model, "r6", **blocks)
    steps = trace(*SHAPE, machine="teaching", mr=2, nr=8, blocking=(6, 16, 4), half=False)
    counts = simulate_trace(steps, "teaching")
    met = [counts.operands.index(name) for name in data["counted"]["operands"]]
    assert data["length"] == len(steps)
    assert (data["misses"][:, :, -1] == counts.misses[:, met]).all() and counts.misses[0, met].all()


def test_rung_3_makes_its_tiles_in_the_order_that_is_shown() -> None:
    class Elements:
        """A matrix of zeros that remembers where it was written."""

        def __init__(self, *shape: int) -> None:
            self.shape, self.written, self.dtype = shape, [], SimpleNamespace(type=float)

        def __getitem__(self, at: tuple[int, int]) -> float:
            return 0.0

        def __setitem__(self, at: tuple[int, int], value: float) -> None:
            self.written.append(at)

    m, n, k = 8, 12, 2
    c = Elements(m, n)
    rung_of("r3").module().tiles.py_func(Elements(m, k), Elements(k, n), c)
    columns = steps_of_order(make_model(m, n, k), "r3")["columns"]
    assert list(zip(columns["i0"], columns["j0"], strict=True)) == c.written[::16]


def test_rung_7_makes_its_tiles_in_the_order_of_the_librarys_loops() -> None:
    tiles: list[tuple[int, ...]] = []

    def microkernel(kernel: Any, access: str, m_cur: int, n_cur: int, kc_cur: int, alpha: float, a: Any, b: Any,
                    beta: float, c: Region, conj: int) -> None:  # fmt: skip
        tiles.append((c.row, c.row + m_cur, c.column, c.column + n_cur, kc_cur))

    model = make_model(*SHAPE)
    kernel = model.problem.kernel(4, 8)
    nothing = SimpleNamespace
    words = relinked(rung_of("r7").module(), microkernel=microkernel, pack_a=nothing, pack_b=nothing)
    words["pack_a"] = words["pack_b"] = lambda *_: None
    m, n, k = SHAPE
    a, b, c = Region.whole(m, k), Region.whole(k, n), Region.whole(m, n)
    words["blocks"](kernel, 8, 16, 4, 1.0, a, b, 0.0, c, Region.whole(9, 9), Region.whole(9, 9))
    data = steps_of_order(model, "r6", mr=4, nr=8, mc=8, nc=16, kc=4)["columns"]
    shown = [
        (*(data[name][x] for name in ("i0", "i1", "j0", "j1")), data["p1"][x] - data["p0"][x])
        for x in range(len(data["kind"]))
        if data["kind"][x] == MICROKERNEL
    ]
    assert shown == tiles


def test_a_long_trace_is_thinned_to_blocks_with_true_extents_and_says_so() -> None:
    steps = trace(100, 100, 100, machine="teaching", mr=4, nr=8, blocking=(40, 24, 50))
    starts, words = thinned(steps, most=200)
    assert len(starts) <= 200 < len(steps) and f"{len(steps):,} steps" in words
    for first, end in zip(starts, [*starts[1:], len(steps)], strict=True):
        together = steps.events[first:end]
        assert len({tuple(event[["kind", "ic", "pc", "jc"]].tolist()) for event in together}) == 1
    assert thinned(steps, most=len(steps))[1] == ""


def test_what_packed_buffers_hold_is_the_block_that_is_multiplied(model: PageModel) -> None:
    columns = steps_of_order(model, "r6", mc=8, nc=8, kc=4)["columns"]
    for x, kind in enumerate(columns["kind"]):
        if kind == MICROKERNEL:
            assert columns["a0"][x] == columns["I0"][x] and columns["a1"][x] == columns["I1"][x]
            assert columns["b0"][x] == columns["J0"][x] and columns["b1"][x] == columns["J1"][x]
            assert columns["a0"][x] <= columns["i0"][x] < columns["i1"][x] <= columns["a1"][x]


def test_levels_are_filled_as_the_models_footprints_say(model: PageModel) -> None:
    data = steps_of_order(model, "r6", mr=4, nr=8, mc=8, nc=16, kc=4)
    last = data["columns"]["kind"].index(MICROKERNEL)
    sizes = {part["what"]: data["columns"][part["column"]][last] for level in data["levels"] for part in level["parts"]}
    expected = {
        "micro-panel of A": 4 * 4 * 4,
        "micro-panel of B": 4 * 8 * 4,
        "block of B": 4 * 16 * 4,
        "panel of A": 8 * 4 * 4,
    }
    assert sizes == expected


def test_the_page_holds_every_setting_and_loads_nothing() -> None:
    model = make_model(6, 9, 5, mr=2, nr=4)
    text = page_of(model)
    assert not re.search(
        r"""(?:src|href)\s*=\s*["'](?!data:,|\#)|@import|url\((?!\#)|https?://(?!www\.w3\.org/2000/svg)""", text
    )
    data = json.loads(re.search(r'id="model">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    keys = {setting["key"] for setting in data["settings"]}
    for order in model.orders:
        count = np.prod([len(axis.values) for axis in model.axes if axis.name in order.axes], dtype=int)
        assert sum(key.split()[0] == order.key for key in keys) == count
    assert "connect-src 'none'" in text


def test_a_model_cannot_end_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"subtitle": "</script><script>alert(1)</script>"}
    monkeypatch.setattr(PageModel, "to_dict", lambda self, served: told)
    text = page_of(make_model(4, 4, 4))
    data = re.search(r'id="model">(.*?)</script>', text, re.DOTALL)[1]  # type: ignore[index]
    assert json.loads(data) == told


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"m": 0}, "m: expected an integer >= 1"),
        ({"k": 2.5}, "k: expected an integer >= 1; got 2.5"),
        ({"machine": "vax"}, "machine: expected one of"),
        ({"dtype": "int8"}, "dtype: expected one of float32"),
        ({"dtype": "nonsense"}, "dtype: expected a NumPy dtype"),
        ({"blocking": (8, 0, 8)}, "blocking: expected nc of 1 to 1073741824; got 0"),
        ({"blocking": (10**20, 8, 8)}, "blocking: expected mc of 1 to 1073741824; got 1"),
        ({"blocking": (8, 8)}, "blocking: expected three integers (mc, nc, kc); got (8, 8)"),
        ({"blocking": 8}, "blocking: expected three integers (mc, nc, kc); got 8"),
        ({"mr": 40}, "mr, nr: expected at most 16 vector registers"),
        ({"nr": 5}, "mr, nr: expected mr >= 1 and nr a positive multiple of 4"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(BlisgemmError, match=re.escape(words)):
        make_model(**{"m": 8, "n": 8, "k": 8, **choices})


@pytest.mark.parametrize(
    ("extents", "words", "message"),
    [
        ((10**5, 10**5, 10**5), {}, "blocks: expected at most "),
        ((10**10, 1, 1), {}, "blocks: expected at most "),
        ((1500, 1500, 1500), {"machine": "haswell"}, "m, n, k: expected at most "),
        (
            (128, 128, 128),
            {"blocking": (1, 1, 1)},
            "blocks: expected at most 8,388,608 steps to show of 128 x 128 x 128",
        ),
    ],
)
def test_what_would_take_minutes_is_refused_at_once(
    extents: tuple[int, int, int], words: dict[str, Any], message: str
) -> None:
    with pytest.raises(BlisgemmError, match=re.escape(message)):
        page(*extents, **words)


def test_a_setting_of_too_many_steps_is_an_answer_in_words() -> None:
    served = make_model(2000, 2000, 2000, machine="haswell", every=True)
    status, _, content = answer(served, "/setting?rung=r6&mr=1&nr=8&mc=1&nc=8&kc=1")
    assert status == 400
    assert json.loads(content)["error"].startswith(
        "blocks: expected at most 262,144 steps to show of 2000 x 2000 x 2000"
    )
    huge = make_model(10**5, 10**5, 10**5, machine="haswell", every=True)
    for path in ("/", "/setting?rung=r4", "/setting?rung=r8"):
        assert answer(huge, path)[0] == 400


@pytest.mark.parametrize("shape", [(7, 9, 5), (16, 16, 16), (1, 1, 1)])
def test_steps_are_no_fewer_than_was_counted_beforehand(shape: tuple[int, int, int]) -> None:
    found = make_model(*shape)
    for order in found.orders:
        recorded = order.record(found.problem, found.start).steps
        assert order.least_steps(found.problem, found.start) <= len(recorded)


def test_given_blocks_are_where_the_sliders_start() -> None:
    model = make_model(30, 30, 30, blocking=(10, 7, 9), mr=2, nr=4)
    assert model.start == {"mr": 2, "nr": 4, "mc": 10, "nc": 7, "kc": 9}
    assert steps_of_order(model, "r6")["blocks"] == {"mr": 2, "nr": 4, "mc": 10, "nc": 8, "kc": 9, "half": False}


def test_the_command_writes_a_page(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.html"
    assert main(["page", "4", "6", "5", "--mr", "2", "--nr", "4", "--blocking", "2,4,3", "-o", str(path)]) == 0
    assert path.read_text("utf-8").startswith("<!doctype html>") and "out.html" in capsys.readouterr().out
    assert main(["page", "4", "6", "5", "--blocking", "2,4", "-o", str(path)]) == 2
    assert "blocking: expected three integers" in capsys.readouterr().err
    capsys.readouterr()
    for place, words in ((tmp_path / "no" / "x.html", "in an existing folder"), (tmp_path, "is a folder")):
        assert main(["page", "2", "2", "2", "--mr", "1", "--nr", "4", "-o", str(place)]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/setting?rung=r6&mc=0", 400, "mc: expected 1 to 26; got '0'"),
        ("/setting?rung=r6&mc=1e3", 400, "mc: expected 1 to 26; got '1e3'"),
        ("/setting?rung=r6&kc=99999999999999999999", 400, "kc: expected 1 to 11"),
        ("/setting?rung=r6&mc=000000000012345678901234567890", 400, "mc: expected 1 to 26"),
        ("/setting?rung=r6&mc=%C2%B2", 400, "mc: expected 1 to 26; got '²'"),
        ("http://[/", 400, "path: expected / or /setting; got 'http://[/'"),
        ("/setting?rung=r6&mc=8&mc=9", 400, "mc: expected one value; got 2"),
        ("/setting?rung=r6&q=8", 400, "query: expected rung, mr, nr, mc, nc, kc; got 'q'"),
        ("/setting?rung=r4&mc=8", 400, "mc: expected none, as r4 has no such block"),
        ("/setting?rung=r6&mr=16&nr=16", 400, "mr, nr: expected at most 16 vector registers"),
        ("/setting?rung=r9", 400, "rung: expected one of"),
        ("/setting", 400, "rung: expected a value"),
        ("/?m=3", 400, "query: expected none; got 'm'"),
        ("/../etc/passwd", 404, "path: expected / or /setting"),
    ],
)
def test_the_server_says_what_is_wrong_with_a_query(model: PageModel, path: str, status: int, words: str) -> None:
    got, kind, content = answer(model, path)
    assert (got, kind) == (status, "application/json") and words in json.loads(content)["error"]


def test_the_server_listens_here_only_and_answers_as_the_model(model: PageModel) -> None:
    def ask(path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read()

    with make_server(model, 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        runner = threading.Thread(target=server.serve_forever)
        runner.start()
        try:
            status, text = ask("/")
            assert status == 200 and b"connect-src 'self'" in text
            status, text = ask("/setting?rung=r6&mc=7&mr=3")
            assert status == 200
            assert json.loads(text) == model.setting(model.order("r6"), {**model.start, "mc": 7, "mr": 3})
            for host in ("elsewhere.example", "[", ""):
                assert ask("/", Host=host)[0] == 403
        finally:
            server.shutdown()
            runner.join()


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a child are another matter on Windows")
def test_ctrl_c_stops_the_server_cleanly() -> None:
    words = [sys.executable, "-m", "blisgemm", "serve", "8", "8", "8", "--port", "0"]
    with subprocess.Popen(words, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("http://127.0.0.1:")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out.strip(), err) == (0, "stopped", "")
