"""Bad command lines of import, convert, surgery and export."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
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


def imports() -> Iterator[Case]:
    """Sources, options and files of weights that cannot be imported."""
    yield words("import", "missing: ")
    yield words("import nowhere", "'nowhere' is not a local path")
    yield words("import ./weights.safetensors", "there is no './weights.safetensors'")
    yield words("import empty", "holds no weights", lambda folder: (folder / "empty").mkdir())
    yield words("import a.safetensors", "a.safetensors", lambda folder: (folder / "a.safetensors").write_bytes(b"no"))
    yield words("import a.bin", "without executing its content", lambda folder: (folder / "a.bin").write_bytes(b"no"))
    yield words("import evil.bin", "without executing its content", pickled)
    for line, fragment in (
        ("--family gpt5", "unknown family 'gpt5'"),
        ("--family bert", "weights contain no"),
        ("--famly vit", "unknown option --famly; did you mean --family?"),
        ("--out", "--out needs a value"),
        ("--out theirs", "'theirs' already exists"),
        ("--out /proc/none", "cannot create the directory '/proc/none'"),
        ("--out theirs/config.json/x", "is a file"),
    ):
        yield words(f"import theirs {line}", fragment, copied("theirs"))
    yield Case(("import", "theirs", "--out", ""), "--out '' is not a valid directory", copied("theirs"), "no name:")
    yield Case(("import", "theirs", "--out", "a\0b"), "is not a valid directory", copied("theirs"))
    for name, content, fragment in (
        ("config.json", b"{", "theirs/config.json"),
        ("config.json", b"[1]", "theirs/config.json"),
        ("model.safetensors.index.json", OUTSIDE, "outside of its folder"),
    ):
        yield Case(("import", "theirs"), fragment, with_file(name, content), f"{name} is {content!r}:")
    yield Case(("import", "theirs"), "theirs/model.safetensors", half, "half of the weights:")
    yield Case(("import", "theirs"), "not finite", not_finite, "weights that are not finite:")


def configurations() -> Iterator[Case]:
    """Values of a configuration that cannot be imported."""
    for name, value, fragment in (
        ("model_type", "xlnet", "'xlnet' cannot be imported"),
        ("num_attention_heads", 3, "heads"),
        ("num_attention_heads", "two", "num_attention_heads='two'"),
        ("num_attention_heads", 0, "one or more heads"),
        ("num_attention_heads", -2, "one or more heads"),
        ("hidden_act", "mish", "activation 'mish'"),
        ("layer_norm_eps", "x", "layer_norm_eps='x'"),
        ("image_size", 13, "image_size=13"),
        ("image_size", "big", "image_size='big'"),
        ("num_hidden_layers", 10**6, "num_hidden_layers=1000000"),
        ("hidden_size", 20_000, "weights, which are of width 8"),
        ("intermediate_size", 0, "intermediate_size=0"),
    ):
        yield Case(("import", "theirs"), fragment, configured(**{name: value}), f"{name}={value!r}:")


def of_runs() -> Iterator[Case]:
    """Conversion, surgery and export of an imported run."""
    for line, fragment in (
        ("convert", "missing: "),
        ("convert run", "missing: --architecture"),
        ("convert run --architecture parallel", "missing: --out"),
        ("convert run --architecture paralel --out new", "did you mean 'parallel'?"),
        ("convert run --architecture parallel:steps=0 --out new", "steps"),
        ("convert run --architecture parallel --out run", "'run' already exists"),
        ("convert run --architecture parallel --out new --layers middle", "middle"),
        ("convert nowhere --architecture parallel --out new", "nowhere"),
        ("convert run --architecture parallel --out=", "is not a valid directory"),
        ("convert run --architecture parallel:interval=1e308 --out a/b", "logits contain NaN or infinity"),
        ("convert run --architecture transevolve:time_width=1000000 --out a/b", "takes about"),
        ("surgery", "missing: "),
        ("surgery nowhere", "nowhere"),
        ("surgery run", "run"),
        ("surgery run nowhere", "nowhere"),
        ("surgery run --row 3", "add --save DIRECTORY"),
        ("surgery run --row x --save new", "--row is 'x' but must be"),
        ("surgery run nowhere --save run", "'run' already exists"),
        ("export nowhere new", "nowhere"),
        ("export nowhere new --to hf", "nowhere"),
        ("export run run", "'run' already exists"),
        ("export run new --to tflite", "unknown target 'tflite'"),
        ("export run new --to hf --steps 2", "use --solver and --steps with --to onnx or torch"),
        ("export run new --solver nonsense --to torch", "nonsense"),
        ("export run new --steps 0 --to torch", "steps"),
        ("export run new --steps 0 --to hf", "use --solver and --steps with --to onnx or torch"),
        ("export run /dev/null/new --to hf", "'/dev/null' is a file"),
        ("export run new --steps x --to torch", "--steps is 'x' but must be"),
    ):
        yield words(line, fragment, copied("run"))
    yield words("convert theirs --architecture parallel --out new", "theirs", copied("theirs"))


CASES = [*imports(), *configurations(), *of_runs()]
