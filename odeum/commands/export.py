"""`odeum export RUN DIR --to onnx|torch|hf`: a trained model for those who do not have Odeum."""

from __future__ import annotations

import shutil
from pathlib import Path

from odeum.commands.options import Parser
from odeum.errors import OdeumError, choose
from odeum.storage import read_json, write_json

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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OdeumError(f"'{out}' is there already; name a new or an empty directory")
    if to == "hf":
        return _to_transformers(Path(given["run"]), out, bool(given.get("solver") or given.get("steps")))

    from odeum.interop.graphs import write_graph
    from odeum.tasks.run import load

    found = load(given["run"]).solve_by(given.get("solver"), given.get("steps"))
    empty = out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        written = write_graph(found.model, out, to)  # ty: ignore[invalid-argument-type]
    except BaseException:
        if not empty:
            shutil.rmtree(out, ignore_errors=True)
        raise
    for name in ("config.json", "task.json", *read_json(found.directory / "task.json").get("files", {})):
        shutil.copyfile(found.directory / name, out / name)
    about = {"inputs": written.inputs, "outputs": ["logits"], "difference": written.difference}
    about |= {name: given[name] for name in ("solver", "steps") if given.get(name) is not None}
    write_json(out / "export.json", {"format": to, "file": written.path.name, **about})
    shapes = ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in written.inputs.items())
    print(f"{written.path}: {shapes} → logits; differs from the model by at most {written.difference:.1e} of a logit")
    return 0


def _to_transformers(directory: Path, out: Path, changed: bool) -> int:
    if changed:
        raise OdeumError("--solver and --steps are not kept by --to hf, which writes the run as it was trained")
    from odeum import hf

    hf.save(directory, out)
    print(f"{out}: `import odeum.hf`, then from_pretrained('{out}') of an Auto class")
    return 0
