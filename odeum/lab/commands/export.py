"""`odeum export RUN DIR --to onnx|torch|hf`: a trained model for those who do not have Odeum."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.storage import new_directory, read_json, write_json

TARGETS = ("onnx", "torch", "hf")


def run(argv: list[str]) -> int:
    parser = Parser(
        "export",
        "Write a trained model as an ONNX graph (onnx), a program of torch.export (torch) or a directory of "
        "transformers (hf). Graphs take any batch and any length; they are run once more, at other sizes than they "
        "were traced with, and compared with the model before they are kept.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("directory", type=str, help="where to write: a new or empty directory")
    parser.add_argument("--to", type=str, default="onnx", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--solver", type=str, default=None, help="another method than it was trained with")
    parser.add_argument("--steps", type=int, default=None, help="another number of steps a layer")
    given = parser.read(argv)
    to, out = choose(given.get("to", "onnx"), TARGETS, "target"), Path(given["directory"]).expanduser()
    changes = {name: given[name] for name in ("solver", "steps") if given.get(name) is not None}
    if to == "hf" and changes:
        raise OdeumError("--solver and --steps are not kept by --to hf, which writes the run as it was trained")
    with new_directory(given["directory"]) as part:
        if to == "hf":
            from safetensors import SafetensorError

            from odeum import hf
            from odeum.hf.comparing import quietly

            try:
                with quietly():
                    hf.save(given["run"], part)
            except SafetensorError as error:  # of a disk that is full
                raise OdeumError(f"cannot write '{out}': {error}") from None
            sentence = f"{out}: `import odeum.hf`, then from_pretrained('{out}') of an Auto class"
        else:
            sentence = _graph(given["run"], part, out, to, changes)
    print(sentence)
    return 0


def _graph(run: str, part: Path, out: Path, to: str, changes: dict[str, Any]) -> str:
    """Write a graph and what goes with it; a sentence about it, by the name that it will have."""
    from odeum.interop.graphs import write_graph
    from odeum.lab.tasks.run import load

    found = load(run).solve_by(**changes)
    written = write_graph(found.model, part, to)  # ty: ignore[invalid-argument-type]
    for name in ("config.json", "task.json", *read_json(found.directory / "task.json").get("files", {})):
        shutil.copyfile(found.directory / name, part / name)
    about = {"inputs": written.inputs, "outputs": ["logits"], "difference": written.difference, **changes}
    write_json(part / "export.json", {"format": to, "file": written.path.name, **about})
    shapes = ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in written.inputs.items())
    near = f"differs from the model by at most {written.difference:.1e} of a logit"
    return f"{out / written.path.name}: {shapes} → logits; {near}"
