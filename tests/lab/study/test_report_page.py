"""The page and the tables that a comparison leaves: whole, self-contained, the same each time."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_runs import digits, findings, write_plan, write_run

from odeum.errors import OdeumError
from odeum.lab.study import report
from odeum.lab.study.prose import Scale, count, duration
from odeum.lab.study.tables import table


def test_an_equation_is_shown_with_its_scheme(tmp_path: Path) -> None:
    info = {"equation": "dx/dt = G(x) + F(x)", "scheme": ["k1 = G(x); x ← x + dt k1"]}
    write_run(tmp_path, "sequential", 0, 0.9, info=info)
    assert findings(tmp_path).rows[0].equation == "dx/dt = G(x) + F(x)\nk1 = G(x)\nx ← x + dt k1"


def test_csv_and_json_hold_the_same_unscaled_numbers(tmp_path: Path) -> None:
    rows = findings(digits(tmp_path)).rows
    objects = json.loads(table(rows, "json"))
    lines = list(csv.DictReader(io.StringIO(table(rows, "csv"))))
    assert len(lines) == 5 and list(lines[0]) == list(objects[0])
    assert float(lines[2]["test_mean"]) == objects[2]["test_mean"] == pytest.approx(0.961)
    assert lines[0]["difference"] == "" and objects[0]["difference"] is None


def test_markdown_and_text(tmp_path: Path) -> None:
    rows = findings(digits(tmp_path)).rows
    lines = table(rows, "md").splitlines()
    assert len(lines) == 7 and len({line.count("|") for line in lines}) == 1
    assert "+1.7 [+1.3, +2.2]" in lines[5] and "| better by more than 1 point |" in lines[5]
    for width in (80, 120, 200):
        text = table(rows, "text", width)
        assert max(map(len, text.splitlines())) <= width
        assert "better by more than 1 point" in text and "transevolve:full-1" in text
    with pytest.raises(OdeumError, match="unknown format 'markdown'"):
        table(rows, "markdown")


class Tags(html.parser.HTMLParser):
    """Every tag must be closed, every id unique, and no reference may leave the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "wbr", "br"):
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.outside += [
            v or "" for n, v in attrs if n in ("src", "href", "xlink:href") and not (v or "").startswith("#")
        ]


def test_the_page_needs_no_torch_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    """Written by a process that only reports, and again by this one, which has done other things before."""
    digits(tmp_path)
    write = f"from odeum.lab.study import report\nreport.write({str(tmp_path)!r})"
    code = f"import sys\n{write}\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    made = report.write(tmp_path)
    assert made.page.read_bytes() == text.encode()
    tags = Tags()
    tags.feed(text)
    assert tags.open == [] and len(tags.ids) == len(set(tags.ids)) and tags.outside == []
    assert "<script" not in text and "@import" not in text and not re.search(r"url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text and text.count('role="img"') == 5
    for words in (
        "macaron</strong> is worth it",
        "x ← x + softmax(A + b(t)) V",
        "odeum compare digits",
        "torch 2.13.0",
    ):
        assert words in text
    for path in (made.markdown, made.csv, *made.plots):
        assert path.stat().st_size > 0


def test_what_users_write_cannot_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert('$x$')</script>&\"`b`"
    info = {"architecture": evil, "equation": evil, "device": evil, "training": {evil: evil}, "git": evil}
    for seed in range(2):
        write_run(tmp_path, "evil", seed, 0.9 + seed / 50, info=info)
        write_run(tmp_path, "sequential", seed, 0.9)
    write_plan(tmp_path, ["sequential", evil], data=evil, command=evil)
    text = report.write(tmp_path).page.read_text(encoding="utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text
    tags = Tags()
    tags.feed(text)
    assert tags.open == []


def test_numbers_as_people_read_them(tmp_path: Path) -> None:
    assert [count(x) for x in (None, 6, 999, 5_544_100, 999_700, 864e9)] == [
        "–",
        "6",
        "999",
        "5.54 M",
        "1.00 M",
        "864 G",
    ]
    assert [duration(x) for x in (0.0168, 35.5, 600, 36000)] == ["16.8 ms", "35.5 s", "10 min", "10 h"]
    scale = Scale(100.0, 1, " %", " points")
    assert scale.number(-0.0004, signed=True) == "0.0" and scale.number(-0.012, signed=True) == "−1.2"
