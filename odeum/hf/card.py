"""The card of a model: what it is, how it was made, and what each seed came to; from the files of runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odeum import __version__
from odeum.errors import OdeumError
from odeum.hf.configuration import class_of
from odeum.storage import read_json

SIBLINGS = ("architecture", "fingerprint", "model", "training")
"""facts that runs of other seeds share with this one"""


def model_card(run: str | Path) -> str:
    """Markdown for README.md: equation, command, a table by seed of the runs beside this one, and how to load it."""
    directory = Path(run)
    about = read_json(directory / "run.json")
    wrapper = class_of(str(about["model"]["kind"]))
    head = ["---", "library_name: transformers", "tags:", "- odeum"]
    head += [f"pipeline_tag: {wrapper.pipeline}"] if wrapper.pipeline else []
    scheme = about.get("scheme") or []
    steps = [line for row in scheme for line in str(row).split("; ")]
    lines = [
        *head,
        "---",
        "",
        f"# {about.get('architecture')} on {about.get('task')}",
        "",
        "A transformer layer is one step of a numerical integrator. This model moves its tokens by",
        "",
        f"    {about.get('equation')}",
        "",
        "and each layer steps",
        "",
        *(f"    {step}" for step in steps),
        "",
        f"Parameters: {about.get('parameters'):,}. Multiply–adds of one example: {about.get('macs') or 0:,}.",
        "",
        *_origin(about),
        "## By seed",
        "",
        *_by_seed(directory, about),
        "",
        "## Use",
        "",
        "```python",
        "import odeum.hf  # registers the Auto classes; pip install odeum[hf]",
        f"from transformers import {wrapper.auto_model}",
        "",
        f"model = {wrapper.auto_model}.from_pretrained(DIRECTORY)",
        "```",
        "",
    ]
    return "\n".join(lines)


def _origin(about: dict[str, Any]) -> list[str]:
    made = {**(about.get("versions") or {}), "odeum": __version__}
    out = [f"Made with {', '.join(f'{name} {version}' for name, version in made.items())}."]
    return [*out, "", *(["    " + str(about["command"]), ""] if about.get("command") else [])]


def _by_seed(directory: Path, about: dict[str, Any]) -> list[str]:
    """A row for each finished run of the same settings in the folder around this one."""
    rows: dict[int, dict[str, Any]] = {}
    for path in sorted({directory, *directory.resolve().parent.iterdir()}):
        try:
            other, result = read_json(path / "run.json"), read_json(path / "result.json")
        except (OdeumError, OSError):
            continue  # another folder, or a run that is not finished
        if all(other.get(key) == about.get(key) for key in SIBLINGS) and isinstance(result.get("test"), dict):
            rows[int(other.get("seed") or 0)] = result["test"]
    if not rows:
        return ["No finished run is known."]
    names = list(next(iter(rows.values())))
    table = [f"| seed | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for seed, values in sorted(rows.items()):
        cells = [f"{values[name]:.4g}" if isinstance(values.get(name), int | float) else "–" for name in names]
        table.append(f"| {seed} | {' | '.join(cells)} |")
    return [f"Test part of {about.get('task')}; one row a run.", "", *table]
