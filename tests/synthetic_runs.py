"""Run directories made up for the tests of the report and the plots: no training, every number chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odeum.lab.study.findings import Findings, judged
from odeum.lab.study.page import comparison_page
from odeum.lab.study.runs import read


def findings(root: Path) -> Findings:
    """The runs below a directory, judged."""
    return judged(read(root))


def write_run(
    root: Path,
    architecture: str,
    seed: int,
    score: float,
    *,
    metric: str = "accuracy",
    higher_is_better: bool = True,
    step_seconds: float = 0.02,
    parameters: int = 1_200_000,
    macs: int = 9_000_000,
    steps: int = 500,
    finished: bool = True,
    info: Mapping[str, Any] | None = None,
    start: float | None = None,
) -> Path:
    """One run whose metric moves from `start` to `score` in ten evaluations."""
    folder = root / architecture.replace(":", "-").replace("=", "-").replace(",", "-") / f"seed-{seed}"
    folder.mkdir(parents=True)
    run = {
        "task": "digits",
        "data": "digits",
        "metric": metric,
        "higher_is_better": higher_is_better,
        "architecture": architecture,
        "seed": seed,
        "model": {"width": 64, "heads": 4, "depth": 6, "image_size": 8, "patch_size": 2, "classes": 10},
        "training": {"epochs": 10.0, "batch_size": 64, "learning_rate": 0.001, "schedule": "cosine", "budget": None},
        "parameters": parameters,
        "macs": macs,
        "evaluations": 6,
        "equation": "x ← x + G(LN(x));  x ← x + F(LN(x))",
        "versions": {"odeum": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "git": "abc1234",
        "command": f"odeum train digits --architecture {architecture} --seed {seed}",
        "date": "2026-11-15T10:00:00",
        "fingerprint": "d1g175",
        "device": "cpu, 2 threads",
    } | dict(info or {})
    (folder / "run.json").write_text(json.dumps(run))
    first = start if start is not None else (0.1 if higher_is_better else score * 20)
    lines: list[dict[str, Any]] = []
    for i in range(1, 11):
        step, part = steps * i // 10, (i - 1) / 9
        value = score + (first - score) * (1 - part) ** 3
        base = {"step": step, "epoch": float(i), "seconds": step * step_seconds}
        lines.append(base | {"split": "train", "loss": 2.3 * (1 - part) + 0.05, "lr": 0.001})
        lines.append(
            base | {"split": "valid", "loss": 2.3 * (1 - part) + 0.1, metric: value, "macs": 3 * macs * 64 * step}
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        result = {
            "valid": {"loss": 0.1, metric: score + 0.001},
            "test": {"loss": 0.1, metric: score},
            "steps": steps,
            "seconds": steps * step_seconds,
            "step_seconds": step_seconds,
            "peak_memory": 210_000_000 + parameters * 16,
            "macs": 3 * macs * 64 * steps,
        }
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def write_plan(root: Path, architectures: Sequence[str], **changes: Any) -> None:
    plan = {
        "architectures": list(architectures),
        "baseline": architectures[0],
        "data": "digits",
        "match": "steps",
        "command": f"odeum compare digits --architectures {','.join(architectures)} --seeds 3",
    }
    (root / "comparison.json").write_text(json.dumps(plan | changes))


def page_of(root: Path) -> str:
    """report.html without the plots, which take longer to draw than all the rest, where they are not asked about."""
    return comparison_page(findings(root), [])


def digits(root: Path) -> Path:
    """Five architectures, three seeds: one better, one worse, one cheap, one unfinished in a seed."""
    shared = (0.0, 0.012, -0.006)
    for seed, luck in enumerate(shared):
        write_run(root, "sequential", seed, 0.952 + luck)
        write_run(root, "parallel", seed, 0.951 + luck + (0.002, -0.003, 0.001)[seed], step_seconds=0.0168)
        write_run(root, "rk4", seed, 0.958 + luck + (0.004, -0.002, 0.001)[seed], step_seconds=0.071, macs=36_000_000)
        write_run(
            root, "macaron", seed, 0.969 + luck + (0.0, 0.001, -0.0005)[seed], step_seconds=0.0245,
            macs=13_000_000, parameters=1_800_000,
        )  # fmt: skip
        write_run(
            root, "transevolve:full-1", seed, 0.918 + luck + (0.001, 0.0, -0.001)[seed], step_seconds=0.0151,
            macs=7_500_000, parameters=900_000, finished=seed != 2, info={"equation": "x ← x + softmax(A + b(t)) V"},
        )  # fmt: skip
    write_plan(root, ["sequential", "parallel", "rk4", "macaron", "transevolve:full-1"])
    return root
