"""`odeum export RUN DIR --to TARGET`: a trained model for other libraries and engines."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from odeum.errors import OdeumError, choose
from odeum.lab.commands.options import Parser
from odeum.storage import expanded, new_directory, read_json, write_json

TARGETS = ("onnx", "torch", "transformers", "ctranslate2", "gguf", "hf")
GRAPHS = ("onnx", "torch")


def run(argv: list[str]) -> int:
    parser = Parser(
        "export",
        "Write a trained model as an ONNX graph (onnx), a torch.export program (torch), a native class of transformers "
        "that loads without Odeum (transformers), a CTranslate2 model (ctranslate2), a llama.cpp file (gguf), or an "
        "Odeum class for transformers (hf). Graphs accept any batch size and length. Graphs and native classes are run "
        "and compared with the model before they are written.",
    )
    parser.add_argument("run", type=str, help="run directory")
    parser.add_argument("directory", type=str, help="output directory, new or empty")
    parser.option("to", f"target format: {', '.join(TARGETS)}", default="onnx")
    parser.option("solver", "integration method, instead of that of training")
    parser.option("steps", "steps per layer, instead of those of training", int)
    given = parser.read(argv)
    to, out = choose(given.get("to", "onnx"), TARGETS, "target"), expanded(given["directory"])
    changes = {name: given[name] for name in ("solver", "steps") if given.get(name) is not None}
    if to not in GRAPHS and changes:
        raise OdeumError(f"--to {to} exports the run as trained; use --solver and --steps with --to onnx or torch")
    with new_directory(given["directory"]) as part:
        write = _graph if to in GRAPHS else _classes
        sentence = write(given["run"], part, out, to, changes)
    print(sentence)
    return 0


def _classes(run: str, part: Path, out: Path, to: str, changes: dict[str, Any]) -> str:
    """Write the run for transformers, CTranslate2 or llama.cpp; returns a message about it."""
    from safetensors import SafetensorError

    from odeum.hf.comparing import silence_transformers
    from odeum.lab.hf_run import save, save_ctranslate2, save_gguf, save_native

    try:
        with silence_transformers():
            if to == "hf":
                save(run, part)
                return f"{out}: `import odeum.hf`, then from_pretrained('{out}') of an Auto class"
            if to == "ctranslate2":
                save_ctranslate2(run, part)
                return f"{out}: for ctranslate2.Generator or ctranslate2.Translator; tokenizer in {out / 'tokenizer'}"
            if to == "gguf":
                name, notes = save_gguf(run, part)
                write_json(part / "export.json", {"format": to, "class": name, "notes": list(notes)})
                return "; ".join((f"{out / 'model.gguf'}: for llama.cpp, as {name} of transformers", *notes))
            name, difference, notes = save_native(run, part)
    except SafetensorError as error:  # raised when the disk is full
        raise OdeumError(f"cannot write '{out}': {error}") from None
    write_json(part / "export.json", {"format": to, "class": name, "difference": difference, "notes": list(notes)})
    remarks = "".join(f"; {note}" for note in notes)
    return f"{out}: {name} of transformers; logits differ from the model's by at most {difference:.1e}{remarks}"


def _graph(run: str, part: Path, out: Path, to: str, changes: dict[str, Any]) -> str:
    """Write a graph with its settings and tokenizer; returns a message about it."""
    from odeum.interop.graphs import write_graph
    from odeum.lab.tasks.run import load

    model = load(run).solve_by(**changes)
    written = write_graph(model.model, part, to)  # ty: ignore[invalid-argument-type]
    for name in ("config.json", "task.json", *read_json(model.directory / "task.json").get("files", {})):
        shutil.copyfile(model.directory / name, part / name)
    about = {"inputs": written.inputs, "outputs": ["logits"], "difference": written.difference, **changes}
    write_json(part / "export.json", {"format": to, "file": written.path.name, **about})
    shapes = ", ".join(f"{name} [{', '.join(map(str, shape))}]" for name, shape in written.inputs.items())
    near = f"differ from the model's by at most {written.difference:.1e}"
    return f"{out / written.path.name}: {shapes} → logits, which {near}"
