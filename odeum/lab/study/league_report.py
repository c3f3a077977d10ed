"""The report of a league: places per task and size and over all of them, trends over sizes, cost, and commands.

An entry's place is one more than the number of rows whose interval lies wholly above its own; all intervals of one task
and size hold together, so a place is never better than the data shows, and what is undecided is a tie.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from odeum.lab.study import report as comparison_report
from odeum.lab.study.design import COMPARISON
from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.grid import Grid, markdown, rendered
from odeum.lab.study.judge import BETTER, WORSE
from odeum.lab.study.league import LEAGUE, Cell, League, finalists, is_begun, read_league, read_screening
from odeum.lab.study.page import render
from odeum.lab.study.prose import NONE, Scale, count, listing, ratio, verdict
from odeum.lab.study.runs import KEPT_RUNS
from odeum.storage import read_json, slug, write_bytes

Interval = tuple[float, float, float]
"""a gain and its ends, in margins; positive is better"""


@dataclass(frozen=True)
class Outcome:
    """One task and size."""

    cell: Cell
    values: Mapping[str, float]
    """best validation value of the tuning runs by entry, the best first"""
    confirmed: tuple[str, ...]
    """entries that are or will be confirmed"""
    findings: Findings | None
    """findings of the confirmed entries (None: no runs yet)"""
    gains: Mapping[str, Interval]
    """gains of the entries with an interval; the baseline has 0"""
    problem: str = ""

    def row(self, label: str) -> Row | None:
        rows = self.findings.rows if self.findings else []
        return next((row for row in rows if row.architecture == label), None)

    def place(self, label: str) -> int | None:
        """The place among the confirmed entries and the baseline; undecided ones share it."""
        if label not in self.gains:
            return None
        _, _, high = self.gains[label]
        return 1 + sum(low > high for _, low, _ in self.gains.values())


@dataclass(frozen=True)
class Overall:
    """An entry over all tasks and sizes."""

    label: str
    place: int
    better: int
    """tasks and sizes at which it is better than the baseline"""
    worse: int
    confirmed: int
    screened: float | None
    """mean place in the screening"""
    cost: float | None
    """median step time over the baseline's"""


@dataclass(frozen=True)
class LeagueReport:
    directory: Path
    league: League
    outcomes: tuple[Outcome, ...]

    @property
    def overall(self) -> list[Overall]:
        """The entries by how many tasks and sizes they are better at, less those they are worse at; equal ones tie."""
        entries = []
        for label in self.league.entries:
            rows = [row for each in self.outcomes if (row := each.row(label)) and row.answer]
            words = [row.answer.word for row in rows if row.answer]
            places = [1 + list(each.values).index(label) for each in self.outcomes if label in each.values]
            steps = [row.step_ratio for row in rows if row.step_ratio]
            entries.append(
                Overall(
                    label,
                    0,
                    sum(word in BETTER for word in words),
                    sum(word in WORSE for word in words),
                    len(words),
                    sum(places) / len(places) if places else None,
                    median(steps) if steps else None,
                )
            )
        scores = [each.better - each.worse for each in entries]
        placed = [
            replace(each, place=1 + sum(other > score for other in scores))
            for each, score in zip(entries, scores, strict=True)
        ]
        return sorted(placed, key=lambda each: (each.place, each.screened or math.inf))


def read(directory: str | Path) -> LeagueReport:
    """Write the report of each comparison and read its findings; no model is loaded."""
    root = Path(directory)
    league = read_league(root)
    return LeagueReport(root, league, tuple(_outcome(root, league, cell) for cell in league.cells))


def _outcome(root: Path, league: League, cell: Cell) -> Outcome:
    folder = cell.folder(root)
    if not is_begun(folder):
        return Outcome(cell, {}, (), None, {}, "not begun")
    values = read_screening(folder, league.entries)
    waiting = [entry for entry in league.entries if entry not in values]
    if waiting:
        return Outcome(cell, values, (), None, {}, f"screened: {len(values)} of {len(league.entries)} entries")
    chosen = tuple(finalists(league, values))
    # Rows of an earlier selection, before entries were added, are not of this family.
    here = [row for row in read_json(folder / COMPARISON).get("architectures", []) if row in chosen]
    if (not any(folder.glob("*/seed-*")) and not (folder / KEPT_RUNS).exists()) or len(here) < len(chosen):
        return Outcome(cell, values, chosen, None, {}, "screened, not confirmed")
    findings = comparison_report.write(folder).findings
    gains = {}
    for row in findings.rows:
        known, way = row.difference, 1 if row.higher_is_better else -1
        if row.is_baseline:
            gains[row.architecture] = (0.0, 0.0, 0.0)
        elif row.judged and row.margin and known and known.low is not None and known.high is not None:
            low, high = sorted((way * known.low / row.margin, way * known.high / row.margin))
            gains[row.architecture] = (way * known.mean / row.margin, low, high)
    lacking = [row.architecture for row in findings.rows if len(row.seeds) < league.seeds]
    return Outcome(cell, values, chosen, findings, gains, f"{len(lacking)} rows lack seeds" if lacking else "")


# tables


def overall_grid(report: LeagueReport) -> Grid:
    """The order over all tasks and sizes."""
    heads = ("Place", "Entry", "Better", "Worse", "Undecided or equal", "Not confirmed", "Screening, mean place")
    lines = [
        [
            f"{'=' if sum(o.place == each.place for o in report.overall) > 1 else ''}{each.place}",
            each.label,
            str(each.better),
            str(each.worse),
            str(each.confirmed - each.better - each.worse),
            str(len(report.outcomes) - each.confirmed),
            NONE if each.screened is None else f"{each.screened:.1f}",
            ratio(each.cost),
        ]
        for each in report.overall
    ]
    return Grid.of((*heads, "Step time"), lines, (1,))


def cell_grid(report: LeagueReport, each: Outcome) -> Grid:
    """One task and size: the confirmed rows by place, then the others in the order of the screening."""
    labels = sorted(each.gains, key=lambda label: (each.place(label) or 0, -each.gains[label][0]))
    labels += [label for label in (report.league.baseline, *each.confirmed, *each.values) if label not in labels]
    scale = Scale.of(each.findings.rows) if each.findings else None
    ties = [each.place(label) for label in each.gains]
    lines = []
    for label in dict.fromkeys(labels):
        row, place = each.row(label), each.place(label)
        order = list(each.values)
        lines.append(
            [
                NONE if place is None else f"{'=' if ties.count(place) > 1 else ''}{place}",
                label,
                scale.summary(row.score) if scale and row else NONE,
                scale.difference(row) if scale and row and not row.is_baseline else NONE,
                verdict(row) if row else "screened" if label in each.values else "",
                f"{order.index(label) + 1} ({each.values[label]:.4g})" if label in order else NONE,
                ratio(row.step_ratio) if row else NONE,
                count(row.parameters) if row else NONE,
            ]
        )
    metric = each.findings.rows[0].metric if each.findings else "value"
    heads = ("Place", "Row", f"Test {metric}", f"Difference to {report.league.baseline}", "Verdict")
    return Grid.of((*heads, "Screening, validation", "Step time", "Parameters"), lines, (1, 4))


def trend_grid(report: LeagueReport) -> Grid | None:
    """The change of the gain from the smallest to the largest size, in margins (None: no entry at two sizes)."""
    lines = []
    for task in report.league.tasks:
        sizes = [each for each in report.outcomes if each.cell.task == task]
        for label in report.league.entries:
            known = [each for each in sizes if label in each.gains]
            if len(known) < 2:
                continue
            first, last = known[0].gains[label], known[-1].gains[label]
            change, far = last[0] - first[0], math.hypot(last[2] - last[1], first[2] - first[1]) / 2
            word = "grows" if change > far else "shrinks" if change < -far else "undecided"
            span = f"{known[0].cell.size} → {known[-1].cell.size}"
            gains = (first, last, (change, change - far, change + far))
            lines.append([label, task, span, *map(_interval, gains), word])
    heads = ("Entry", "Task", "Sizes", "Gain at the first", "Gain at the last", "Change", "With size")
    return Grid.of(heads, lines, (0, 1, 2, 6)) if lines else None


def _interval(gain: Interval) -> str:
    middle, low, high = (f"{x:+.2f}".replace("-", "−") for x in gain)
    return f"{middle} [{low}, {high}]"


def commands(report: LeagueReport, each: Outcome) -> list[tuple[str, str]]:
    """For each confirmed row, a command that trains its runs again, without tuning and measuring."""
    out = []
    for row in each.findings.rows if each.findings else ():
        assert each.findings is not None
        training = each.findings.results.fact(row.architecture, "training") or {}
        words = list(each.cell.words)
        for name in ("epochs", "budget", "macs", "steps", "learning_rate", "warmup"):
            words = _without(words, f"--train.{name}")
        for name in ("steps", "learning_rate", "warmup"):
            words += [f"--train.{name}", str(training.get(name))]
        words += ["--architectures", row.architecture, "--match", "steps", "--seeds", str(report.league.seeds)]
        folder = slug(f"league-{each.cell.task}-{each.cell.size}-{row.architecture}")
        out.append((row.architecture, f"odeum compare {shlex.join(words)} --out runs/{folder}"))
    return out


def _without(words: Sequence[str], option: str) -> list[str]:
    """The words without an option and its value."""
    out, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == option:
            skip = True
        elif not word.startswith(f"{option}="):
            out.append(word)
    return out


def records(report: LeagueReport) -> list[dict[str, Any]]:
    """Plain values: one per task, size and row."""
    out = []
    for each in report.outcomes:
        order = list(each.values)
        for label in dict.fromkeys((report.league.baseline, *each.confirmed, *order)):
            row, gain = each.row(label), each.gains.get(label)
            flat = row.as_dict() if row else {}
            keys = ("metric", "test_mean", "test_spread", "seeds", "difference", "difference_low", "difference_high")
            out.append(
                {
                    "task": each.cell.task,
                    "size": each.cell.size,
                    "row": label,
                    "place": each.place(label),
                    **{key: flat.get(key) for key in (*keys, "margin", "verdict", "step_ratio", "parameters", "steps")},
                    **dict(zip(("gain_in_margins", "gain_low", "gain_high"), gain or (None,) * 3, strict=True)),
                    "screening_place": order.index(label) + 1 if label in order else None,
                    "screening_value": each.values[label] if math.isfinite(each.values.get(label, math.nan)) else None,
                }
            )
    return out


def league_table(report: LeagueReport, form: str = "text") -> str:
    parts = [("Over all tasks and sizes", overall_grid(report))]
    parts += [(each.cell.name + (f" ({each.problem})" if each.problem else ""), cell_grid(report, each))
              for each in report.outcomes]  # fmt: skip
    if trend := trend_grid(report):
        parts.append(("Gain over size, in margins", trend))
    mark = "## " if form == "md" else ""
    grids = [part for title, grid in parts for part in (f"{mark}{title}\n", grid)]
    return rendered(form, grids, records(report))


# words


def answer(report: LeagueReport) -> list[str]:
    """Five sentences: the question, the leaders, the wins per task, the undecided gains, the next step."""
    league, order = report.league, report.overall
    done = [each for each in report.outcomes if each.gains]
    asked = (
        f"{len(league.entries)} architectures beside `{league.baseline}` on {len(league.tasks)} task"
        f"{'' if len(league.tasks) == 1 else 's'} ({', '.join(league.tasks)}), {len(league.cells)} comparisons with "
        f"equal tuning and equal measured time, {len(done)} of them confirmed."
    )
    if not done:
        return [asked, "Nothing is confirmed yet, so there is no order."]
    leaders = [each for each in order if each.place == 1]
    if leaders[0].better <= leaders[0].worse:
        lead = f"No entry is better than `{league.baseline}` more often than worse."
    else:
        names = listing([each.label for each in leaders])
        lead = (
            f"Over all of them {names} {'leads' if len(leaders) == 1 else 'lead'}: better than `{league.baseline}` in "
            f"{leaders[0].better} of {len(done)}, worse in {leaders[0].worse}."
        )
    where = []
    for task in league.tasks:
        wins = {
            row.architecture
            for each in done
            if each.cell.task == task and each.findings
            for row in each.findings.rows
            if row.answer and row.answer.word in BETTER
        }
        where.append(f"{task}: {listing(sorted(wins)) if wins else 'none'}")
    better = f"Better than the baseline at one size at least are, on {'; on '.join(where)}."
    answers = [row.answer for each in done if each.findings for row in each.findings.rows if row.answer]
    undecided = [each.more for each in answers if each.word == "undecided"]
    judged = sum(len(each.gains) - 1 for each in done)
    never = [each.label for each in order if not each.confirmed]
    left = f", and {listing(never)} {'was' if len(never) == 1 else 'were'} never among the best {league.finalists}"
    open_ones = f"Of {judged} confirmed gains {len(undecided)} are undecided{left if never else ''}."
    known = [more for more in undecided if more]
    seeds = f"about {round(median(known))} more seeds for each undecided gain" if known else "larger sizes"
    return [asked, lead, better, open_ones, f"More compute would decide next: {seeds}, then sizes beyond these."]


def notes(report: LeagueReport) -> list[str]:
    """Notes on how to read the tables."""
    league = report.league
    return [
        f"Screening: each entry gets {league.tune} learning rates around the recipe's, more where the best lies at an "
        "end; the best validation value of these runs orders the entries. It has no interval and is not a verdict.",
        f"Confirmation: the best {league.finalists} and the baseline train with {league.seeds} fresh seeds at the rate "
        "that the screening chose, for equal measured time, and are judged on the test part. The intervals of one task "
        "and size hold together at 95 %.",
        "A place is one more than the number of rows whose interval lies wholly above; rows marked = are tied. Over "
        "all tasks and sizes, entries are ordered by how often they are better than the baseline less how often worse.",
        "The change over size is of independent runs; its interval joins the two simultaneous ones and is wide.",
        "An entry that was not confirmed may be better than its place in the screening says.",
    ]


def write(directory: str | Path) -> tuple[LeagueReport, Path]:
    """Write report.html, league.md and league.csv of a league, and the report of each comparison."""
    report = read(directory)
    root, sentences = report.directory, answer(report)
    remarks = "".join(f"- {markdown(text)}\n" for text in notes(report))
    top = "\n".join(markdown(sentence) for sentence in sentences)
    write_bytes(root / "league.md", f"{top}\n\n{league_table(report, 'md')}\n{remarks}".encode())
    write_bytes(root / "league.csv", league_table(report, "csv").encode())
    page = render(
        "league.html",
        title=f"Which layer is worth it? League {report.league.name}",
        headline=sentences[1],
        answer=[sentences[0], *sentences[2:]],
        overall=overall_grid(report),
        trend=trend_grid(report),
        cells=[
            {
                "name": each.cell.name,
                "problem": each.problem,
                "grid": cell_grid(report, each),
                "link": f"{each.cell.folder(Path()).as_posix()}/report.html" if each.findings else "",
                "commands": commands(report, each),
            }
            for each in report.outcomes
        ],
        notes=notes(report),
        plan=LEAGUE,
    )
    write_bytes(root / "report.html", page.encode(errors="replace"))
    return report, root / "report.html"
