"""docs/family.md: every architecture stands there, under its heading, with what it costs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from odeum.lab.cli import main
from odeum.models.description import describe
from odeum.models.settings import find_preset
from odeum.registry.names import ARCHITECTURES
from odeum.registry.spelling import parse

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/family.md").read_text()
ROWS = {row[0]: row for row in re.findall(r"^\| `([\w.-]+)` \| (.+?) \| (.+?) \| (.+) \|$", PAGE, re.MULTILINE)}


def test_every_architecture_stands_on_the_page_under_its_heading() -> None:
    assert set(ROWS) == set(ARCHITECTURES)
    for group, names in ARCHITECTURES.groups().items():
        section = PAGE.partition(f"## {group[0].upper()}{group[1:]}\n")[2].partition("\n## ")[0]
        assert all(f"| `{name}` |" in section for name in names), group


def test_spellings_on_the_page_are_spellings() -> None:
    for spelling in re.findall(r"`([\w-]+:[^`]+|[\w-]+\*[^`]+)`", PAGE):
        assert parse(spelling)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_the_page_says_of_costs_is_what_describe_counts(name: str) -> None:
    """And the scheme is more than that something is integrated."""
    facts = describe(name, replace(find_preset("vit_8"), depth=8), detail=False)
    assert facts["equation"].startswith("dx/dt = ") and facts["scheme"] and all(facts["scheme"])
    if name == "continuous":
        assert "as the data asks" in ROWS[name]
    else:
        assert ROWS[name][2] == str(facts["evaluations"])
        assert not any("∫" in line for line in facts["scheme"])


@pytest.mark.parametrize(
    ("spelling", "equation", "step"),
    [
        ("parallel:interval=0.5", "dx/dt = G(N(x)) + F(N(x))", "x ← x + ½ (G(N(x)) + F(N(x)))"),
        ("strang:steps=2", "dx/dt = F(N(x)) + G(N(x))", "x ← x + ¼ F(N(x))"),
        ("hyper:steps=2", "dx/dt = G(N(x)) + F(N(x))", "z ← (1 + ½ (A − 1)) z + ½ b G(N(c · z))"),
        ("reversible:steps=2", "dx/dt = F(N(y)), dy/dt = G(N(x))", "y ← y + ½ G(N(x))"),
        ("momentum", "dx/dt = v, dv/dt = 0.211 (G(N(x)) + F(N(x)) − v)", "v ← 0.9 v + 0.1 (G(N(x)))"),
    ],
)
def test_a_step_is_described_in_its_length(spelling: str, equation: str, step: str) -> None:
    facts = describe(spelling, find_preset("vit_8"), detail=False)
    assert facts["equation"] == equation and facts["scheme"][0].startswith(step)


def test_the_list_fits_into_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        max(map(len, lines)) <= 80
        and "  looped                A core of layers that acts several times, between" in lines
    )


def test_memory_and_drift_on_the_page_are_those_that_were_measured() -> None:
    """And what reversible layers keep is under a quarter of backpropagation's and hardly grows with depth."""
    measured = json.loads((ROOT / "benchmarks/results/memory.json").read_text())
    rows, drifts = measured["rows"], measured["schemes_at_depth_48"]
    assert not measured["times_to_be_rerun"]
    for kind in rows["6"]:
        cells = [round(rows[depth][kind]["mebibytes"]) for depth in ("6", "12", "24", "48")]
        assert f"| {' | '.join(map(str, [kind, *cells]))} | {rows['48'][kind]['time_ratio']:.3g} |" in PAGE
    few, many = (rows[depth]["reversible"]["states_mebibytes"] for depth in ("12", "48"))
    assert f"without it, {few:.1f} MiB at depth 12 and {many:.1f} at 48" in PAGE
    assert many < 1.3 * few and many < rows["48"]["backprop"]["mebibytes"] / 4
    page = " ".join(PAGE.split())
    for name in ("revnet", "heun", "leapfrog", "coupling"):
        assert f"| `{name}` | {drifts[name]['drift']:.1e} | {drifts[name]['drift_trained']:.1e} |" in page
    assert drifts["revnet on a grid"]["drift"] == drifts["revnet on a grid"]["drift_trained"] == 0.0
