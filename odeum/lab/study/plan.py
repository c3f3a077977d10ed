"""comparison.json: what a comparison asks, written before the first run, so that no result can change the question."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.study.intervals import all_pairs, to_baseline
from odeum.lab.study.metric import METRICS, Margin, Metric, read_margin
from odeum.lab.study.pace import Pace, read_paces
from odeum.lab.study.seeds import NO_BASELINE, Criterion, Seeds
from odeum.storage import alone_in, make_directory, read_json, write_json

MATCHES = ("steps", "time", "macs", "params")
JUDGES = ("metric", "loss")


@dataclass(frozen=True)
class Plan:
    """The question, and what is held equal."""

    architectures: tuple[str, ...]
    """of this call, the rows of its table"""
    baseline: str | None
    """what the others are compared with (none: all with each other)"""
    data: str
    match: str
    budget: str | None
    seeds: Seeds
    judge: str
    metric: Metric
    """the one that decides"""
    margin: Margin
    looked: tuple[int, ...] = ()
    """numbers of seeds after which results had been seen and more were added, where that was no plan"""
    command: str = ""
    threads: int | None = None
    """of each run, fixed once: how many run at a time, and where, then changes no bit (none: torchrun's processes)"""
    vary: str = "seed"
    """what differs from seed to seed: seed (weights and batches), or split (also which examples are held out)"""
    overlap: float = 0.0
    """of varied splits: test over training examples"""
    pace: dict[str, Pace] = field(default_factory=dict)
    """what a step of each architecture costs, measured once: by it a budget becomes a number of steps"""
    earlier: tuple[str, ...] = ()
    """architectures of earlier comparisons with the same directory: shown on request only"""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The declared family."""
        return (
            all_pairs(self.architectures) if self.baseline is None else to_baseline(self.architectures, self.baseline)
        )

    @property
    def criterion(self) -> Criterion:
        return Criterion(self.metric.higher_is_better, self.margin, self.seeds, self.overlap)

    def write(self, directory: Path) -> None:
        make_directory(directory)
        content = {
            "architectures": list(self.architectures),
            "baseline": NO_BASELINE if self.baseline is None else self.baseline,
            "data": self.data,
            "match": self.match,
            "budget": self.budget,
            "seeds": str(self.seeds) if self.seeds.auto else self.seeds.limit,
            "judge": self.judge,
            "margin": {"value": self.margin.value, "relative": self.margin.relative},
            "looked": list(self.looked),
            "command": self.command,
            "threads": self.threads,
            "vary": self.vary,
            "overlap": self.overlap,
            "pace": {name: pace.record() for name, pace in self.pace.items()},
            **({"earlier": list(self.earlier)} if self.earlier else {}),
        }
        write_json(directory / "comparison.json", content)


def check_plan(match: str, architectures: Sequence[object], budget: str | None) -> None:
    """Refuse a plan that cannot be, whatever its data."""
    choose(match, MATCHES, "match")
    if not architectures:
        raise OdeumError("a comparison needs at least one architecture, such as sequential,parallel")
    if match == "time" and budget is None:
        raise OdeumError("to match time, say how much: --budget 10m")


def make_plan(
    directory: Path,
    names: Sequence[str],
    *,
    baseline: str | None,
    data: str,
    match: str,
    budget: str | None,
    seeds: Seeds,
    metric: Metric,
    judge: str | None = None,
    margin: str | None = None,
    command: str = "",
    threads: int | None = None,
    vary: str = "seed",
    overlap: float = 0.0,
) -> Plan:
    """The plan of this call, in agreement with the plan that the directory holds; a change of question is refused.

    Arguments: the directory of the comparison; the architectures, as spelled; what they are compared with (none: all
    with each other); the data's name; what is held equal; the time of each run; how many seeds; the task's own metric;
    what decides, `metric` or `loss` (none: as planned, else the metric); what matters (none: as planned, else the
    metric's own margin); what differs from seed to seed, and by how much splits overlap.
    """
    path = directory / "comparison.json"
    before: dict[str, Any] = read_json(path) if path.exists() else {}
    where = f"'{directory}' holds a comparison"
    if before.get("match") not in (None, match):
        raise OdeumError(f"{where} of equal {before['match']}, not {match}; give another --out")
    if before and (was := before.get("vary", "seed")) != vary:
        raise OdeumError(f"{where} whose seeds vary the {was}, not the {vary}; give another --out")
    planned_judge = str(before.get("judge") or JUDGES[0])
    if judge is not None and choose(judge, JUDGES, "judge") != planned_judge and before:
        raise OdeumError(f"{where} that is judged by its {planned_judge}, not by its {judge}; give another --out")
    judge = planned_judge if judge is None else judge
    judged = METRICS["loss"] if judge == "loss" else metric
    wanted = judged.margin if margin is None else judged.parse_margin(margin)
    settled = read_margin(before.get("margin"), judged) if before else wanted
    if margin is not None and settled != wanted:
        asked, was = judged.spell_margin(wanted), judged.spell_margin(settled)
        raise OdeumError(f"{where} with a margin of {was}, not {asked}: it is said before the run; give another --out")
    listed = [*(before.get("architectures") or ()), *(before.get("earlier") or ())]
    return Plan(
        architectures=tuple(names),
        baseline=baseline,
        data=data,
        match=match,
        budget=budget,
        seeds=_seeds(before, seeds, baseline, where),
        judge=judge,
        metric=judged,
        margin=settled,
        looked=_looked(before, seeds),
        command=command,
        threads=before.get("threads", threads),
        vary=vary,
        overlap=overlap,
        pace=read_paces(before.get("pace")),
        earlier=tuple(str(name) for name in listed if name not in names),
    )


def forget(directory: Path) -> None:
    """Remove the runs of an earlier comparison, so that one table never shows two recipes; nothing else is touched."""
    for path in [*directory.glob("*/seed-*/run.json"), *directory.glob(".pace/*/run.json")]:
        with alone_in(path.parent):
            shutil.rmtree(path.parent)
    (directory / "comparison.json").unlink(missing_ok=True)


def _seeds(before: dict[str, Any], seeds: Seeds, baseline: str | None, where: str) -> Seeds:
    """More seeds may be added to a fixed number of them; looks are planned once, for one family."""
    if "seeds" not in before:
        return seeds
    planned = Seeds.parse(before["seeds"])
    if not planned.auto and not seeds.auto:
        return Seeds(max(planned.limit, seeds.limit))
    if planned != seeds:
        raise OdeumError(
            f"{where} with --seeds {planned}, not {seeds}: how often one looks is part of what the verdicts promise; "
            "give another --out"
        )
    family = before.get("baseline")
    if family not in (None, NO_BASELINE if baseline is None else baseline):
        raise OdeumError(f"{where} with the baseline {family}, whose looks are planned; give another --out")
    return planned


def _looked(before: dict[str, Any], seeds: Seeds) -> tuple[int, ...]:
    """A number of seeds that allowed a verdict, and was raised after all."""
    known = [n for n in before.get("looked") or () if isinstance(n, int)]
    planned = before.get("seeds")
    if not seeds.auto and isinstance(planned, int) and 1 < planned < seeds.limit:
        known.append(planned)
    return tuple(dict.fromkeys(known))
