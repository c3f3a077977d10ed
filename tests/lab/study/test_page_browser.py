"""The page in a real browser: nothing is cut off, nothing complains, and its numbers are those of the table."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from synthetic_runs import write_plan, write_run

from odeum.lab.study import report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")

PROBE = """<script>addEventListener('load', () => {
  const e = document.documentElement;
  document.body.dataset.width = e.clientWidth; document.body.dataset.needed = e.scrollWidth;
  const forms = [...document.querySelectorAll('.results td')].filter(c => c.scrollWidth > c.clientWidth + 1);
  const cards = [...document.querySelectorAll('.wide:has(> .results)')].filter(c => c.scrollWidth > c.clientWidth + 1);
  document.body.dataset.cut = forms.length + cards.length; });</script>"""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    names = {"sequential": 0.95, "parallel": 0.953, "parallel:independent=6,method=heun": 0.91, "macaron": 0.97}
    write_plan(root, list(names), seeds="auto:3")  # the longest words: worse by more than 1 point (3 seeds)
    for i, (name, score) in enumerate(names.items()):
        for seed in range(3):
            noise = 0.002 * ((seed * 7 + i * 3) % 5 - 2)
            write_run(root, name, seed, score + noise, step_seconds=0.02 * (1 + i / 3), parameters=10**6 * (i + 1))
    report.write(root)
    return root


def opened(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    words += [f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=2000", *options, page.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=90, check=True)


def test_a_phone_a_desk_and_a_sheet_of_paper_show_all_of_it(comparison: Path, tmp_path: Path) -> None:
    page = (comparison / "report.html").read_text()
    printed = page.replace("@media print", "@media all").replace("@media screen", "@media speech")
    texts = {390: page, 1200: page, 718: printed}  # a phone, a desk, a sheet of A4
    for width, text in texts.items():
        (tmp_path / f"{width}.html").write_text(text.replace("</body>", PROBE + "</body>"))
    # A frame has the width that it is given; a headless window may have a least one.
    frames = "".join(f'<iframe src="{w}.html" style="width:{w}px;height:900px;border:0"></iframe>' for w in texts)
    outer = tmp_path / "outer.html"
    outer.write_text(
        f"{frames}<script>addEventListener('load', () => setTimeout(() => {{ document.title = "
        "[...document.querySelectorAll('iframe')].map(f => { const d = f.contentDocument.body.dataset;"
        "return [d.width, d.needed, d.cut].join(' '); }).join('; '); }, 200));</script>"
    )
    done = opened(outer, "--dump-dom", "--allow-file-access-from-files", "--window-size=1300,1000")
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stdout[-500:]
    for width, found in zip(texts, title[1].split("; "), strict=True):
        clients, needed, cut = map(int, found.split())
        assert width - 20 <= clients <= width and needed <= clients and cut == 0  # a bar may take a little
    assert "CONSOLE" not in done.stderr, done.stderr


def test_the_numbers_are_those_of_the_csv(comparison: Path) -> None:
    dom = opened(comparison / "report.html", "--dump-dom").stdout
    body = re.search(r'<table class="results">.*?</table>', dom, re.DOTALL)
    assert body
    assert body[0].split("<tbody>")[0].count("<th") == 8 + 1, "at most eight columns"
    picture = dom[dom.index('class="card picture"') : dom.index('<table class="results">')]
    drawings = re.findall(r'<div class="line">(.*?)</div>', picture, re.DOTALL)
    lines = re.findall(r"<tr>(.*?)</tr>", body[0].split("<tbody>")[1], re.DOTALL)
    rows = list(csv.DictReader((comparison / "table.csv").open()))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        cells = [unescape(re.sub(r"<[^>]+>", " ", cell)) for cell in re.findall(r"<td.*?</td>", line, re.DOTALL)]
        numbers = [[float(x.replace("−", "-")) for x in re.findall(r"[+−]?\d+\.?\d*", cell)] for cell in cells]
        assert row["architecture"].replace(" ", "") in cells[0].replace(" ", "")
        mean, spread = (100 * float(row[key]) for key in ("test_mean", "test_spread"))
        assert numbers[1] == pytest.approx([mean, spread], abs=0.051)
        if row["difference"]:
            wanted = [100 * float(row[key]) for key in ("difference", "difference_low", "difference_high")]
            assert numbers[2] == pytest.approx(wanted, abs=0.051)
            assert row["verdict"].split()[0] in cells[3]
            assert numbers[6] == pytest.approx([float(row["pairing"])], abs=0.0051)
            drawn = drawings.pop(0)
            assert row["verdict"].split()[0] in drawn
            (place,) = re.findall(r'<circle cx="([\d.]+)%" cy="50%"', drawn)
            assert (float(place) > 50) == (float(row["difference"]) > 0)
