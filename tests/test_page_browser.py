"""The page in a real browser: it plays, steps and seeks, says what Python's model says, and can be used by everybody.

Needs Chromium and its driver (Debian: chromium, chromium-driver) and the Python package selenium (the dependency group
``browser``); skipped, with the reason, where one is missing. Nothing is downloaded, and the pages load nothing.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blisgemm.teach.page import page_of
from blisgemm.teach.page_model import PageModel, make_model
from blisgemm.teach.server import make_server

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install --group browser")
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no Chromium with its driver: apt-get install chromium chromium-driver"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


# Returns what stands out too little: text under 4.5 to 1, borders of buttons and what is in use now under 3 to 1.
CONTRAST = """
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * linear(c[0] / 255) + 0.7152 * linear(c[1] / 255) + 0.0722 * linear(c[2] / 255);
  const ratio = (a, b) => {
    const [dark, bright] = [light(a), light(b)].sort((x, y) => x - y);
    return (bright + 0.05) / (dark + 0.05);
  };
  const behind = (x) => {
    for (; x; x = x.parentElement) {
      const colour = rgba(getComputedStyle(x).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  const check = (x, colour, ground, least) => {
    const found = ratio(rgba(colour), behind(ground));
    if (found < least) poor.push([x.outerHTML.slice(0, 120), found]);
  };
  let texts = 0;
  for (const x of document.querySelectorAll("body *:not(script):not(style)")) {
    if (x.closest(":disabled") || !x.getClientRects().length) continue;
    const style = getComputedStyle(x);
    if ([...x.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) {
      texts += 1;
      if (x.localName === "text") check(x, style.fill, x.closest("section"), 4.5);
      else if (x.localName !== "title") check(x, style.color, x, 4.5);
    }
    if (x.localName === "button") check(x, style.borderTopColor, x.parentElement, 3);
  }
  for (const x of document.querySelectorAll("#matrices .now")) {
    check(x, getComputedStyle(x).stroke, x.closest("section"), 3);
  }
  return texts > 50 ? poor : [["no text was found", texts]];
"""


class Browser:
    """A Chromium that shows one page at a time."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER or ""
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, element: str) -> str:
        return str(self.js("return document.getElementById(arguments[0]).textContent", element))

    def number(self, element: str) -> int:
        return int(self.text(element).replace(",", ""))

    def wait(self, is_so: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + 10
        while not is_so():
            assert time.monotonic() < end, f"waited in vain until {what}; {self.text('failure')}"
            time.sleep(0.02)

    def show(self, url: str, size: tuple[int, int] = DESKTOP, dark: bool = False, still: bool = False) -> None:
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(url)
        self.wait(lambda: self.js("return document.body.dataset.ready") == "yes", "the page is ready")

    def press(self, *keys: str) -> None:
        chain = webdriver.ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def choose(self, rung: str, **blocks: int) -> str:
        """Press a button and move sliders, as a hand does; return the key of the setting that is then shown."""
        self.js("document.querySelector(`[data-rung='${arguments[0]}']`).click()", rung)
        for name, value in blocks.items():
            self.js(
                """
                const [name, value] = arguments, slider = document.getElementById(`slider-${name}`);
                slider.value = model.axes.find((axis) => axis.name === name).values.indexOf(value);
                slider.dispatchEvent(new Event("input"));
                """,
                name,
                value,
            )
        axes = self.js("return model.rungs.find((rung) => rung.key === arguments[0]).axes", rung)
        key = " ".join([rung, *(str(self.js("return state.blocks[arguments[0]]", axis)) for axis in axes)])
        self.wait(lambda: self.js("return document.body.dataset.setting") == key, f"{key} is shown")
        return key


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.driver.quit()


@pytest.fixture(scope="module")
def model() -> PageModel:
    return make_model(13, 20, 11)


@pytest.fixture(scope="module")
def url(model: PageModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page_of(model), encoding="utf-8")
    return path.as_uri()


def steps_of(setting: dict[str, Any]) -> dict[str, Any]:
    return json.loads(gzip.decompress(base64.b64decode(setting["data"])))


def assert_shows(browser: Browser, model: PageModel, rung: str, step: int) -> None:
    """Compare what the page says at a step with the model."""
    blocks = browser.js("return state.blocks")
    setting = model.setting(model.order(rung), blocks)
    data = steps_of(setting)
    browser.js("seek(arguments[0])", step)
    assert browser.text("position") == f"{step + 1:,} / {data['length']:,}"
    for name in ("hits", "misses"):
        after = np.cumsum(np.array(data[name]), axis=2)[:, :, step]
        for level, operands in enumerate(after.tolist()):
            for operand, count in enumerate([*operands, sum(operands)]):
                assert browser.number(f"{name}-{level}-{operand}") == count, (name, level, operand, step)
    for level, total in enumerate(setting["totals"]):
        assert browser.number(f"total-{rung}-{level + 1}") == total
    for axis in model.order(rung).axes:
        assert browser.text(f"value-{axis}") == str(data["blocks"][axis])
    for level, lines in enumerate(np.cumsum(np.array(data["resident"]), axis=2)[:, :, step].sum(axis=1).tolist()):
        assert browser.text(f"used-{level}").startswith(f"{lines:,} of {data['counted']['lines'][level]:,} lines")


def test_it_loads_without_complaint_and_without_the_network(browser: Browser, url: str) -> None:
    browser.show(url)
    assert [entry["message"] for entry in browser.driver.get_log("browser")] == []
    log = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = [x["params"]["request"]["url"] for x in log if x["method"] == "Network.requestWillBeSent"]
    assert asked and all(address == url or address.startswith("data:") for address in asked)
    assert browser.text("failure") == ""


def test_sliders_and_buttons_show_what_the_model_says(browser: Browser, url: str, model: PageModel) -> None:
    browser.show(url)
    for rung, blocks, step in (
        ("r6", {}, 0),
        ("r6", {"mr": 2, "kc": 11}, 12),
        ("r6", {"mc": 4, "nr": 4, "nc": 8}, 40),
        ("half", {"mr": 6}, 7),
        ("r5", {"kc": 3}, 9),
        ("r4", {"mr": 2}, 20),
        ("r3", {}, 5),
        ("r0", {}, 100),
        ("r2", {}, 77),
        ("jpi", {}, 50),
        ("r8", {}, 3),
    ):
        browser.choose(rung, **blocks)
        assert_shows(browser, model, rung, step)
    assert [entry["message"] for entry in browser.driver.get_log("browser")] == []


def test_each_step_says_which_parts_it_multiplies(browser: Browser, url: str, model: PageModel) -> None:
    browser.show(url)
    browser.choose("r6")
    data = steps_of(model.setting(model.order("r6"), browser.js("return state.blocks")))
    columns = {x: np.cumsum(y) if x in data["differences"] else y for x, y in data["columns"].items()}
    for step in (0, 1, 5, data["length"] - 1):
        browser.js("seek(arguments[0])", step)
        starts, ends = ({x: columns[x + end][step] for x in "ijp"} for end in "01")
        i, j, p = (f"{starts[x]}:{ends[x]}" if ends[x] - starts[x] != 1 else f"{starts[x]}" for x in "ijp")
        words = (f"Pack A[{i}, {p}] into Ã", f"Pack B[{p}, {j}] into B̃", f"C[{i}, {j}] += A[{i}, {p}] · B[{p}, {j}]")
        assert browser.text("step-text").endswith(words[columns["kind"][step]])
        left, right = (
            float(
                browser.js(
                    "return document.querySelector(arguments[0]).getAttribute(arguments[1])", "#matrices .c .now", x
                )
            )
            for x in ("x", "width")
        )
        scale = browser.js("return matrices.scale")
        if columns["kind"][step] == 2:
            assert right == pytest.approx((columns["j1"][step] - columns["j0"][step]) * scale)
            assert left - browser.js("return matrices.at.c[0]") == pytest.approx(columns["j0"][step] * scale)
        else:
            assert right == 0


def test_it_plays_to_the_end_and_stops(browser: Browser, url: str) -> None:
    browser.show(url)
    browser.js("setSpeed(10)")
    pressed = browser.js("const play = find('play'); play.click(); return play.getAttribute('aria-label')")
    assert pressed == "Pause"
    browser.wait(lambda: browser.js("return state.step > 0"), "it has begun")
    browser.wait(lambda: browser.js("return !state.playing"), "it has ended")
    assert browser.js("return state.step === lastStep()")
    assert browser.js("return document.getElementById('play').getAttribute('aria-label')") == "Play"


def test_keys_play_step_and_seek(browser: Browser, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(url)
    step = lambda: browser.js("return state.step")  # noqa: E731
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert step() == 3
    browser.press(Keys.ARROW_LEFT)
    assert step() == 2
    browser.press(Keys.END)
    assert step() == browser.js("return lastStep()")
    browser.press(Keys.PAGE_UP)
    assert step() in browser.js("return steps().marks")
    browser.press(Keys.HOME)
    assert step() == 0
    browser.press(" ")
    assert browser.js("return state.playing")
    browser.press(" ")
    assert not browser.js("return state.playing")
    browser.press("?")
    assert browser.js("return document.getElementById('help').open")
    browser.press(Keys.ESCAPE)
    assert not browser.js("return document.getElementById('help').open")
    browser.press("+")
    assert browser.js("return state.speed") == 4


def test_arrows_belong_to_a_slider_that_has_the_focus(browser: Browser, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(url)
    browser.js("seek(4); document.getElementById('slider-kc').focus()")
    before = browser.text("value-kc")
    browser.press(Keys.HOME)
    browser.wait(lambda: browser.text("value-kc") != before, "kc has changed")
    browser.js("document.getElementById('seek').focus(); seek(4)")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.js("return state.step") == 5


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (320, 640)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_screen(browser: Browser, url: str, size: tuple[int, int], dark: bool) -> None:
    browser.show(url, size, dark)
    for rung in ("r6", "r0"):
        browser.choose(rung)
        assert browser.js("return document.documentElement.scrollWidth") <= size[0]
        outside = browser.js(
            """
            return [...document.querySelectorAll("button, input, p, h1, h2, output")]
              .filter((x) => x.getBoundingClientRect().right > innerWidth + 1 && !x.closest(".wide"))
              .map((x) => x.outerHTML);
            """
        )
        assert outside == []


def test_every_control_has_a_name(browser: Browser, url: str) -> None:
    browser.show(url)
    nameless = browser.js(
        """
        const texts = (elements) => [...elements].map((x) => x?.textContent).join(" ");
        const named = (x) => x.getAttribute("aria-label")
          || texts((x.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)))
          || texts(x.labels || []) || x.caption?.textContent || (x.localName === "button" && x.textContent)
          || x.closest("[role=region]")?.getAttribute("aria-labelledby") || "";
        return [...document.querySelectorAll("button, input, [role=img], [role=region], table")]
          .filter((x) => !named(x).trim()).map((x) => x.outerHTML.slice(0, 200));
        """
    )
    assert nameless == []
    assert browser.js("return document.documentElement.lang") == "en"
    assert browser.js("return document.querySelectorAll('h1').length") == 1
    ids = browser.js("return [...document.querySelectorAll('[id]')].map((x) => x.id)")
    assert len(ids) == len(set(ids))


def test_the_step_is_told_to_those_who_listen(browser: Browser, url: str) -> None:
    browser.show(url)
    assert browser.js("return document.getElementById('live').getAttribute('aria-live')") == "polite"
    browser.js("document.getElementById('forward').click()")
    assert browser.text("live").startswith("Step 2 of ") and browser.text("step-text") in browser.text("live")
    assert browser.js("return document.getElementById('seek').getAttribute('aria-valuetext')").startswith("step 2 of ")


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_controls_stand_out(browser: Browser, url: str, dark: bool) -> None:
    """WCAG 2: text has a contrast of at least 4.5, what outlines a control or a shape at least 3."""
    browser.show(url, dark=dark)
    browser.js("seek(6)")
    poor = browser.js(CONTRAST)
    assert poor == []


def test_the_focus_can_be_seen_and_reaches_every_control(browser: Browser, url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(url)
    seen = set()
    for _ in range(40):
        browser.press(Keys.TAB)
        told = browser.js(
            """
            const x = document.activeElement;
            return [x.id || x.dataset.rung || x.className, getComputedStyle(x).outlineStyle];
            """
        )
        if told[0] and told[0] != "wide":
            assert told[1] == "solid", told
        seen.add(told[0])
    assert {"r0", "r6", "r8", "slider-mc", "seek", "play", "forward", "speed", "help-open"} <= seen


def test_still_pages_do_not_glide(browser: Browser, url: str) -> None:
    for still in (True, False):
        browser.show(url, still=still)
        glides = browser.js("return getComputedStyle(document.querySelector('.bar div')).transitionDuration") != "0s"
        assert glides is not still
        assert not browser.js("return state.playing"), "nothing moves unasked"


def test_a_thinned_page_says_what_a_step_stands_for(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blisgemm.teach import page_model, page_steps

    real = page_steps.steps_of
    monkeypatch.setattr(page_model, "steps_of", lambda *arguments: real(*arguments, most=20))
    path = tmp_path / "thin.html"
    path.write_text(page_of(make_model(24, 24, 24, mr=2, nr=4, blocking=(12, 12, 12))), encoding="utf-8")
    browser.show(path.as_uri())
    browser.choose("r6")
    assert "too many to play one by one" in browser.text("notes")
    browser.js("seek(2)")
    assert "calls of the microkernel: C[0:12, 0:12]" in browser.text("step-text")


def test_a_served_page_asks_for_any_blocks(browser: Browser) -> None:
    model = make_model(13, 20, 11, every=True)
    with make_server(model, 0) as server:
        runner = threading.Thread(target=server.serve_forever)
        runner.start()
        try:
            browser.show(f"http://127.0.0.1:{server.server_port}/")
            browser.choose("r6", kc=7, mr=3)
            assert_shows(browser, model, "r6", 8)
            browser.choose("r2")
            assert_shows(browser, model, "r2", 30)
            browser.choose("r6", nr=max(model.axis("nr").values))
        finally:
            server.shutdown()
            runner.join()
