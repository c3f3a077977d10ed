"""Bad command lines of import, convert, surgery and export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from corpus.case import Case, words

made_in: list[Path] = []
"""the folder of `theirs`, a ViT of transformers, and of `run`, its import"""
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def make(root: Path) -> None:
    """Write a tiny ViT of transformers and import it, once."""
    import transformers as T

    from odeum.lab.cli import main

    config = T.ViTConfig(**SIZES, image_size=8, patch_size=4)
    T.ViTForImageClassification(config).save_pretrained(root / "theirs")
    assert main(["import", str(root / "theirs"), "--out", str(root / "run")]) == 0
    made_in[:] = [root]


def copied(*names: str) -> Callable[[Path], object]:
    """Copy `theirs` or `run` into the folder of a case."""
    return lambda folder: [shutil.copytree(made_in[0] / name, folder / name) for name in names]


def configured(**changes: Any) -> Callable[[Path], object]:
    """`theirs` with other values in its configuration."""

    def prepare(folder: Path) -> None:
        copied("theirs")(folder)
        path = folder / "theirs" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return prepare


def with_file(name: str, content: bytes) -> Callable[[Path], object]:
    """`theirs` with another file."""

    def prepare(folder: Path) -> None:
        copied("theirs")(folder)
        (folder / "theirs" / name).write_bytes(content)

    return prepare


def pickled(folder: Path) -> None:
    torch.save({"weight": Path("evil")}, folder / "evil.bin")


def half(folder: Path) -> None:
    copied("theirs")(folder)
    path = folder / "theirs" / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def not_finite(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    copied("theirs")(folder)
    path = folder / "theirs" / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor * float("nan") for name, tensor in tensors.items()}, path)


OUTSIDE = json.dumps({"weight_map": {"classifier.weight": "../model.safetensors"}}).encode()
theirs, run = copied("theirs"), copied("run")
CASES = [
    words("import", "missing: "),
    words("import nowhere", "'nowhere' is not a local path"),
    words("import ./weights.safetensors", "there is no './weights.safetensors'"),
    words("import empty", "holds no weights", lambda folder: (folder / "empty").mkdir()),
    words("import theirs --family gpt5", "unknown family 'gpt5'", theirs),
    words("import theirs --family bert", "weights hold no", theirs),
    words("import theirs --famly vit", "unknown option --famly; did you mean --family?", theirs),
    words("import theirs --out", "--out needs a value", theirs),
    words("import theirs --out theirs", "'theirs' already exists", theirs),
    words("import a.safetensors", "a.safetensors", lambda folder: (folder / "a.safetensors").write_bytes(b"no")),
    words("import a.bin", "without executing its content", lambda folder: (folder / "a.bin").write_bytes(b"no")),
    words("import evil.bin", "without executing its content", pickled),
    Case(("import", "theirs"), "theirs/model.safetensors", half, "half of the weights"),
    Case(("import", "theirs"), "not finite", not_finite, "weights that are no numbers"),
    Case(("import", "theirs"), "theirs/config.json", with_file("config.json", b"{"), "a configuration cut off"),
    Case(("import", "theirs"), "theirs/config.json", with_file("config.json", b"[1]"), "a list"),
    Case(
        ("import", "theirs"),
        "outside of its folder",
        with_file("model.safetensors.index.json", OUTSIDE),
        "parts that lie elsewhere",
    ),
    Case(("import", "theirs"), "'xlnet' cannot be imported", configured(model_type="xlnet"), "another family"),
    Case(("import", "theirs"), "heads", configured(num_attention_heads=3), "heads that do not divide"),
    Case(("import", "theirs"), "num_attention_heads='two'", configured(num_attention_heads="two"), "heads in words"),
    Case(("import", "theirs"), "activation 'mish'", configured(hidden_act="mish"), "another activation"),
    Case(("import", "theirs"), "layer_norm_eps='x'", configured(layer_norm_eps="x"), "a norm in words"),
    Case(("import", "theirs"), "image_size=13", configured(image_size=13), "another image size"),
    Case(("import", "theirs"), "image_size='big'", configured(image_size="big"), "an image size in words"),
    Case(
        ("import", "theirs"), "num_hidden_layers=1000000", configured(num_hidden_layers=10**6), "layers by the million"
    ),
    Case(("import", "theirs"), "weights, which are of width 8", configured(hidden_size=20_000), "another width"),
    Case(("import", "theirs"), "intermediate_size=0", configured(intermediate_size=0), "no feed-forward"),
    Case(("import", "theirs"), "one or more heads", configured(num_attention_heads=0), "no heads"),
    Case(("import", "theirs"), "one or more heads", configured(num_attention_heads=-2), "fewer heads"),
    Case(("import", "theirs", "--out", ""), "--out '' names no directory", theirs, "no name"),
    Case(("import", "theirs", "--out", "a\0b"), "names no directory", theirs, "a zero"),
    words("import theirs --out /proc/none", "cannot make the directory '/proc/none'", theirs),
    words("import theirs --out theirs/config.json/x", "is a file", theirs),
    words("convert", "missing: "),
    words("convert run", "missing: --architecture", run),
    words("convert run --architecture parallel", "missing: --out", run),
    words("convert run --architecture paralel --out new", "did you mean 'parallel'?", run),
    words("convert run --architecture parallel:steps=0 --out new", "steps", run),
    words("convert run --architecture parallel --out run", "'run' already exists", run),
    words("convert run --architecture parallel --out new --layers middle", "middle", run),
    words("convert nowhere --architecture parallel --out new", "nowhere"),
    words("convert theirs --architecture parallel --out new", "theirs", theirs),
    words("convert run --architecture parallel --out=", "names no directory", run),
    words("convert run --architecture parallel:interval=1e308 --out a/b", "logits contain NaN or infinity", run),
    words("convert run --architecture transevolve:time_width=1000000 --out a/b", "takes about", run),
    words("surgery", "missing: "),
    words("surgery nowhere", "nowhere"),
    words("surgery run", "run", run),
    words("surgery run nowhere", "nowhere", run),
    words("surgery run --row 3", "add --save DIRECTORY", run),
    words("surgery run --row x --save new", "--row is 'x' but must be", run),
    words("surgery run nowhere --save run", "'run' already exists", run),
    words("export nowhere new", "nowhere"),
    words("export nowhere new --to hf", "nowhere"),
    words("export run run", "'run' already exists", run),
    words("export run new --to tflite", "unknown target 'tflite'", run),
    words("export run new --to hf --steps 2", "use --solver and --steps with --to onnx or torch", run),
    words("export run new --solver nonsense --to torch", "nonsense", run),
    words("export run new --steps 0 --to torch", "steps", run),
    words("export run new --steps 0 --to hf", "use --solver and --steps with --to onnx or torch", run),
    words("export run /dev/null/new --to hf", "'/dev/null' is a file", run),
    words("export run new --steps x --to torch", "--steps is 'x' but must be", run),
]
