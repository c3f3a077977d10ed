"""The page of `odeum inspect` in a real browser: particles move, the clock can be set, nothing is cut off."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from odeum.lab.cli import main

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")

PROBE = """<script>addEventListener('load', () => {
  const canvas = document.querySelectorAll('canvas.field'), clock = document.getElementById('clock');
  const seen = {}, look = (name) => { seen[name] = [...canvas].map((c) => c.dataset.first); };
  const key = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  const pixels = (c) => { const copy = document.createElement('canvas'); copy.width = c.width; copy.height = c.height;
    const pen = copy.getContext('2d', {willReadFrequently: true}); pen.drawImage(c, 0, 0);
    return pen.getImageData(0, 0, c.width, c.height).data; };
  const colours = (c) => { const p = pixels(c); let sum = 0; for (let i = 3; i < p.length; i += 4) sum += p[i] > 0;
    return sum; };
  const brightest = (c) => { const p = pixels(c); let most = 0;
    for (let i = 0; i < p.length; i += 4) if (p[i + 3] > 250) most = Math.max(most, Math.min(p[i], p[i + 1], p[i + 2]));
    return most; };
  look('end'); seen.pixels = colours(canvas[0]);
  seen.bright = [brightest(canvas[0])]; dispatchEvent(new Event('beforeprint')); seen.bright.push(brightest(canvas[0]));
  dispatchEvent(new Event('afterprint')); seen.bright.push(brightest(canvas[0]));
  key('Home'); look('home'); seen.start = document.getElementById('depth').value;
  key('ArrowRight'); look('one'); seen.after = document.getElementById('depth').value;
  clock.value = 1000; clock.dispatchEvent(new Event('input')); look('scrubbed');
  key('Home'); key(' '); seen.playing = document.getElementById('play').textContent;
  let tries = 0;  // a loaded machine draws its first frame late
  const waiting = setInterval(() => { look('played');
    if (seen.played[0] === seen.home[0] && ++tries < 100) return;
    clearInterval(waiting); key(' ');
    seen.paused = document.getElementById('play').textContent;
    const box = canvas[0].getBoundingClientRect(), [x, y] = canvas[0].dataset.first.split(' ').map(Number);
    canvas[0].dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + x, clientY: box.top + y}));
    seen.tip = document.getElementById('tip').textContent;
    const e = document.documentElement; seen.width = [e.clientWidth, e.scrollWidth];
    seen.paper = getComputedStyle(document.body).backgroundColor;
    document.title = JSON.stringify(seen); }, 100); });</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look")
    (root / "text.txt").write_text("\n".join(f"the old fox {i} sleeps and no cat was seen." for i in range(300)))
    data = [str(root / "text.txt"), "--kind", "language", "--data.length", "32"]
    small = ["--train.steps", "2", "--model.depth", "3", "--model.width", "16", "--model.heads", "2"]
    assert main(["train", *data, *small, "--out", str(root / "run")]) == 0
    assert main(["inspect", str(root / "run"), "--solver", "rk4", "--out", str(root / "look")]) == 0
    return root / "look" / "page.html"


def probed(page: Path, folder: Path, *options: str, text: str | None = None, width: int = 390) -> dict[str, Any]:
    """What the probe saw in a frame as wide as a phone."""
    (folder / "inner.html").write_text((text or page.read_text()).replace("</body>", PROBE + "</body>"))
    outer = folder / "outer.html"
    outer.write_text(
        f'<iframe src="inner.html" style="width:{width}px;height:900px;border:0"></iframe>'
        '<script>setInterval(() => { document.title = document.querySelector("iframe").contentDocument.title; }, 50);'
        "</script>"
    )
    assert BROWSER is not None
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom"]
    words += [f"--user-data-dir={folder / 'profile'}", "--allow-file-access-from-files", "--virtual-time-budget=15000"]
    done = subprocess.run([*words, *options, outer.as_uri()], capture_output=True, text=True, timeout=90, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title, done.stdout[-500:]
    return json.loads(unescape(title[1]))


def test_particles_play_and_scrub_on_a_phone(page: Path, tmp_path: Path) -> None:
    seen = probed(page, tmp_path)
    assert seen["pixels"] > 100 and len(seen["end"]) == 2
    assert seen["start"] == "input" and seen["after"] == "after layer 0"
    assert seen["home"][0] == seen["home"][1]  # two solvers start at the same place
    for side in range(2):
        places = [seen[name][side] for name in ("home", "one", "end")]
        assert len(set(places)) == 3 and seen["scrubbed"][side] == seen["end"][side]
        assert seen["played"][side] != seen["home"][side]
    assert "Pause" in seen["playing"] and "Play" in seen["paused"]
    assert "position 1" in seen["tip"] and "answer here" in seen["tip"]
    assert seen["width"][1] <= seen["width"][0] <= 390


def test_dark_and_printed(page: Path, tmp_path: Path) -> None:
    light = probed(page, tmp_path)["paper"]
    dark = probed(page, tmp_path, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
    assert light != dark["paper"]
    shown, printed, again = dark["bright"]  # names are light on a dark screen, and dark on paper
    assert shown == again > 200 > 150 > printed
    sheet = page.read_text().replace("@media print", "@media all").replace("@media screen", "@media speech")
    seen = probed(page, tmp_path, "--window-size=900,1000", text=sheet, width=718)  # a sheet of A4
    assert seen["width"][1] <= seen["width"][0]
    assert BROWSER is not None
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run([*words, f"--print-to-pdf={tmp_path / 'page.pdf'}", page.as_uri()], timeout=90, check=True)
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
