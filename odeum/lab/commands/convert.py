"""`odeum convert RUN --architecture A --out RUN2`: the weights of a run under another architecture."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

from odeum.errors import OdeumError
from odeum.lab.commands.options import Parser
from odeum.lab.commands.request import command_line
from odeum.registry.spelling import parse, spell
from odeum.storage import new_directory


def run(argv: list[str]) -> int:
    parser = Parser(
        "convert",
        "Load the weights of a trained or imported run into another architecture, by role. Reports which weights were "
        "copied, derived or are new, and the change of states and logits. `odeum train DATA --from RUN2` fine-tunes "
        "the result.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.option("architecture", "architecture, such as parallel or rk4:steps=2")
    parser.option("out", "directory of the new run")
    parser.option("layers", "how to merge layers: mean, first or last", default="mean")
    given = parser.read(argv)
    for name in ("architecture", "out"):
        if given.get(name) is None:
            raise OdeumError(f"missing: --{name}; see `odeum convert --help`")
    architecture = parse(given["architecture"])

    from odeum.lab.tasks.run import load
    from odeum.lab.train.conversion import convert, deviation
    from odeum.lab.train.origin import write_run
    from odeum.models.base import OdeumModel

    out = Path(given["out"])
    with new_directory(given["out"]) as part:
        source = load(given["run"])
        assert isinstance(source.model, OdeumModel)
        result = convert(source.model, architecture, given.get("layers", "mean"))
        distance = deviation(source.model, result.model)
        if not math.isfinite(distance.logits):
            raise OdeumError(f"the logits contain NaN or infinity under {spell(architecture)}; nothing was written")
        origin = {"converted": given["run"], "kept": len(result.copied), "made": result.derived, "new": result.new}
        write_run(part, result.model, source.task, origin, command_line())
    print(f"{spell(source.model.architecture)} → {spell(architecture)}")
    for title, names in (("copied", result.copied), ("derived", result.derived), ("new", result.new)):
        if names:
            print(f"{title}: {len(names)} weights ({_roles(names)})")
    if distance.layers:
        print(f"relative change of states, by layer: {' '.join(f'{x:.3g}' for x in distance.layers)}")
    print(f"relative change of logits: {distance.logits:.3g}")
    print(f"run: {out}")
    return 0


def _roles(names: list[str]) -> str:
    """Counts the weights by role: `attention.qkv ×12, …`."""
    counts = Counter(re.sub(r"^stack\.layers\.\d+\.|\.(weight|bias)$", "", name) for name in names)
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())
