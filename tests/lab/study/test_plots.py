"""Plots show the numbers that stand in their csv, one look for each architecture, and names that can be read."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest
from synthetic_runs import digits, findings, write_plan, write_run

from odeum.lab.study import plots
from odeum.lab.study.findings import Findings
from odeum.lab.study.plots import INK, Series, front, spread_apart, styles, tick

NAMES = ["curves-steps", "curves-time", "quality-parameters", "quality-time", "quality-compute"]


def drawn(root: Path) -> tuple[Findings, list[plots.Figure]]:
    comparison = findings(root)
    return comparison, plots.draw(comparison, root / "plots")


def read_csv(figure: plots.Figure) -> list[list[str]]:
    with figure.svg.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> list[plots.Figure]:
    """What is drawn of five architectures."""
    return drawn(digits(tmp_path_factory.mktemp("five")))[1]


def test_each_plot_has_its_three_files(five: list[plots.Figure]) -> None:
    assert [f.name for f in five] == NAMES
    for figure in five:
        assert figure.svg.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert "transevolve:full-1" in figure.svg.read_text()


def test_the_csv_holds_mean_and_spread_over_seeds(five: list[plots.Figure]) -> None:
    head, *lines = read_csv(five[0])
    assert head == ["architecture", "optimizer steps", "valid accuracy (%)", "spread", "seeds"]
    last = next(line for line in lines if line[0] == "sequential" and float(line[1]) == 500)
    assert (
        float(last[2]) == pytest.approx(95.4) and float(last[3]) == pytest.approx(0.9165, abs=1e-4) and last[4] == "3"
    )
    head, *lines = read_csv(five[2])
    assert [line[0] for line in lines] == ["sequential", "parallel", "rk4", "macaron", "transevolve:full-1"]
    assert float(lines[3][1]) == 1_800_000 and float(lines[3][2]) == pytest.approx(97.1167, abs=1e-3)


def test_seeds_of_different_speed_are_averaged_at_equal_steps(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9, step_seconds=0.1)
    write_run(tmp_path, "sequential", 1, 0.8, step_seconds=0.2)
    _, figures = drawn(tmp_path)
    last = read_csv(figures[1])[-1]
    assert float(last[1]) == pytest.approx(75.0) and float(last[2]) == pytest.approx(85.0)


def test_seeds_with_different_steps_are_averaged_while_all_were_running(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9, steps=500)
    write_run(tmp_path, "sequential", 1, 0.9, steps=1000)
    _, figures = drawn(tmp_path)
    steps = [float(line[1]) for line in read_csv(figures[0])[1:]]
    assert min(steps) == 100.0 and max(steps) == 500.0


def test_long_runs_are_told_in_minutes(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9, step_seconds=2.0)
    _, figures = drawn(tmp_path)
    assert read_csv(figures[1])[0][1] == "minutes of training"


def test_without_the_metric_the_loss_is_drawn_and_without_records_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, "sequential", 0, 0.9)
    curve = tmp_path / "sequential" / "seed-0" / "metrics.jsonl"
    curve.write_text(curve.read_text().replace('"accuracy"', '"other"'))
    _, figures = drawn(tmp_path)
    assert read_csv(figures[0])[0][2] == "valid loss, lower is better"
    curve.write_text("")
    _, figures = drawn(tmp_path)
    assert [f.name for f in figures] == NAMES[2:]


def test_twelve_architectures_look_different_and_fit(tmp_path: Path) -> None:
    names = ["sequential", *(f"parallel:independent={i},steps={i}" for i in range(1, 12))]
    for i, name in enumerate(names):
        for seed in range(2):
            write_run(
                tmp_path, name, seed, 60.0 + i + seed, metric="perplexity", higher_is_better=False,
                parameters=10 ** (4 + i // 3), macs=10 ** (6 + i // 3),
            )  # fmt: skip
    write_plan(tmp_path, names)
    comparison, figures = drawn(tmp_path)
    drawn_as = styles(comparison)
    assert len(set(drawn_as.values())) == 12 and drawn_as["sequential"].colour == INK
    assert len(figures) == 5


def test_names_are_pushed_apart_within_the_axes() -> None:
    heights = spread_apart([0.5, 0.5, 0.5, 0.99], 0.06)
    assert all(b - a >= 0.0599 for a, b in pairwise(heights)) and heights[0] >= 0 and heights[-1] <= 1
    assert spread_apart([0.1, 0.9], 0.06) == [0.1, 0.9]


def test_ticks_are_short() -> None:
    assert [tick(x) for x in (2000, 1_500_000, 0.5, 0, 199999.99999999997)] == ["2 k", "1.5 M", "0.5", "0", "200 k"]


def test_inline_svg_takes_the_colours_and_the_font_of_the_page(five: list[plots.Figure]) -> None:
    text = plots.inline(five[0])
    assert text.startswith("<svg") and INK not in text and "var(--ink)" in text and "var(--s0)" in text
    assert "DejaVu" not in text and "<metadata" not in text and "<style" not in text and 'id="curves-steps-' in text


def test_the_front_is_what_no_other_beats() -> None:
    def at(name: str, cost: float, value: float) -> Series:
        return Series(name, [cost], [value], [None], 1)

    items = [at("dear", 3, 0.9), at("cheap", 1, 0.8), at("beaten", 2, 0.7), at("equal", 1, 0.8), at("worse", 3, 0.85)]
    assert [item.name for item in front(items, True)] == ["cheap", "equal", "dear"]
    assert [item.name for item in front(items, False)] == ["cheap", "equal", "beaten"]


def test_equal_values_are_no_front(tmp_path: Path) -> None:
    """Costs that buy nothing: the dotted stairs of a front would suggest that they do."""
    for mean, drawn in ((0.9, False), (0.95, True)):
        root = tmp_path / str(mean)
        root.mkdir()
        write_plan(root, architectures=["sequential", "rk4"])
        for name, score in (("sequential", 0.9), ("rk4", mean)):
            write_run(root, name, 0, score, parameters=1000 if name == "rk4" else 500)
        compared = findings(root)
        figures = {figure.name: figure for figure in plots.draw(compared, root / "plots")}
        assert ("stroke-dasharray" in figures["quality-parameters"].svg.read_text(encoding="utf-8")) == drawn
