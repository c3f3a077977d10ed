"""Folders of runs that are not what was written: torn, empty, swapped, hostile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corpus.case import Case
from odeum.storage import read_json, write_json

made_in: list[Path] = []
"""the folder of the finished runs `images` and `texts`"""

Spoil = Callable[[Path], object]

HOW: dict[str, Spoil] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "cut by one": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "a number": lambda path: path.write_text("5"),
    "null": lambda path: path.write_text("null"),
    "a list": lambda path: path.write_text("[]"),
    "an empty object": lambda path: path.write_text("{}"),
    "deep": lambda path: path.write_text("[" * 200_000),
    "deep object": lambda path: path.write_text('{"a":' * 100_000),
    "a large number": lambda path: path.write_text('{"a": ' + "9" * 5000 + "}"),
    "latin": lambda path: path.write_bytes(b'{"a": "\xe9"}'),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a loop": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}

TINY = ("--model.width=8", "--model.heads=2", "--model.depth=1", "--train.steps=1")
"""settings of the finished runs"""
FLIPS = (0.02, 0.25, 0.5, 0.75, 0.98)
"""where in a file a bit is flipped"""


def spoiled(run: str, name: str, spoil: Spoil) -> Callable[[Path], object]:
    """A copy of the finished run, one file of which is not what it was."""

    def prepare(folder: Path) -> None:
        shutil.copytree(made_in[0] / run, folder / "run")
        spoil(folder / "run" / name)

    return prepare


def flip(share: float) -> Spoil:
    def spoil(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(share * len(content))] ^= 8
        path.write_bytes(content)

    return spoil


def change(**values: Any) -> Spoil:
    """A file that was sealed again, as an evil hand would; `a__b` is b within a."""

    def spoil(path: Path) -> None:
        content = read_json(path)
        for name, value in values.items():
            inner, *outer = reversed(name.split("__"))
            place: Any = content
            for part in reversed(outer):
                place = place[part]
            place[inner] = value
        write_json(path, content)

    return spoil


def unsealed(text: str) -> Spoil:
    return lambda path: path.write_text(text)


READ = {
    "images": ("config.json", "task.json", "model.safetensors"),
    "texts": ("tokenizer.json",),
}


def damaged() -> Iterator[Case]:
    """Each file that an answer is read from, damaged in each way."""
    for run, names in READ.items():
        for name in names:
            for how, spoil in HOW.items():
                ask = ("predict", "run", "--text", "x") if run == "texts" else ("evaluate", "run")
                gone = name == "model.safetensors" and how in ("missing", "a loop")
                fragment = "the run 'run' is finished, but its weights" if gone else name
                yield Case(ask, fragment, spoiled(run, name, spoil), f"{name}, {how}:")
            for share in FLIPS:
                ask = ("predict", "run", "--text", "x") if run == "texts" else ("evaluate", "run")
                yield Case(ask, name, spoiled(run, name, flip(share)), f"{name}, flipped at {share}:")


def continued() -> Iterator[Case]:
    """What `train` looks at in the folder that it is to continue."""
    words = ("train", "digits", "--out", "run", *TINY)
    for how in ("empty", "torn", "noise", "null", "deep", "a directory", "a pipe", "a loop"):
        for name in ("run.json", "result.json"):
            if (name, how) != ("result.json", "a loop"):  # which is no result, so the run goes on
                yield Case(words, name, spoiled("images", name, HOW[how]), f"{name}, {how}:")
    other = "holds a run with other settings"
    yield Case(words, other, spoiled("images", "run.json", change(architecture="rk4")))
    yield Case(words, "result.json", spoiled("images", "result.json", change(test=3)), "a number for a part:")


HOSTILE: list[tuple[str, Spoil, str]] = [
    ("config.json", change(model__width=20_000), "do not fit the model"),
    ("config.json", change(model__width=2**40), "width"),
    ("config.json", change(model__width=-8), "width"),
    ("config.json", change(model__width="8"), "width"),
    ("config.json", change(model__width=8.5), "width"),
    ("config.json", change(model__width=None), "width"),
    ("config.json", change(model__heads=3), "heads"),
    ("config.json", change(model__heads=0), "heads"),
    ("config.json", change(model__depth=10**6), "depth"),
    ("config.json", change(model__depth=0), "depth"),
    ("config.json", change(model__classes=10**9), "do not fit the model"),
    ("config.json", change(model__classes=3), "do not fit the model"),
    ("config.json", change(model__image_size=10**6), "image_size"),
    ("config.json", change(model__patch_size=3), "patch_size"),
    ("config.json", change(model__activation="tanh"), "activation"),
    ("config.json", change(model__dropout=2.0), "dropout"),
    ("config.json", change(model__dropout=float("nan")), "dropout"),
    ("config.json", change(model__nonsense=1), "is not the configuration of an Odeum run"),
    ("config.json", change(model=[]), "config.json"),
    ("config.json", change(model=None), "config.json"),
    ("config.json", change(architecture="nonsense", record=None), "unknown architecture 'nonsense'"),
    ("config.json", change(architecture=5, record=None), "an architecture is a spelling"),
    ("config.json", change(record=5), "config.json"),
    ("config.json", change(record={"name": "rk4", "options": {"steps": 10**9}}), "steps"),
    ("config.json", change(record={"name": "rk4", "options": {"nonsense": 1}}), "nonsense"),
    ("config.json", change(record={"name": "nonsense", "options": {}}), "nonsense"),
    ("config.json", change(record={"name": "rk4"}), "config.json"),
    ("task.json", change(classes=["a"]), "classes"),
    ("task.json", change(classes=5), "task.json"),
    ("task.json", change(classes=None), "task.json"),
    ("task.json", change(mean="x"), "task.json"),
    ("task.json", change(mean=[]), "task.json"),
    ("task.json", change(std=[float("nan")]), "task.json"),
    ("task.json", change(options=5), "task.json"),
    ("task.json", change(options={"size": -4}), "size"),
    ("task.json", change(kind="nonsense", settings="Nonsense"), "not registered"),
    ("task.json", change(name="passwd", data=["/etc/passwd"]), "passwd"),
    ("task.json", change(data=5), "task.json"),
    ("config.json", unsealed('{"a": 1}'), "config.json"),
]


def hostile() -> Iterator[Case]:
    for number, (name, spoil, fragment) in enumerate(HOSTILE):
        yield Case(("evaluate", "run"), fragment, spoiled("images", name, spoil), f"{name}, {number}:")


def swapped() -> Iterator[Case]:
    """A file of another run."""
    for name in ("config.json", "task.json", "model.safetensors"):

        def spoil(path: Path, name: str = name) -> None:
            shutil.copy(made_in[0] / "texts" / name, path)

        yield Case(("predict", "run", "x.png"), "", spoiled("images", name, spoil), f"{name} of another run:")


def questions() -> Iterator[Case]:
    """What a sound run is asked."""

    def here(folder: Path) -> None:
        shutil.copytree(made_in[0] / "images", folder / "images")
        shutil.copytree(made_in[0] / "texts", folder / "texts")
        (folder / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        (folder / "rows.csv").write_text("alpha,beta\n1,2\n")
        (folder / "latin.txt").write_bytes(b"caf\xe9\n")
        (folder / "lines.txt").write_bytes(b"the\ncaf\xe9\n")
        (folder / "begun").mkdir()
        (folder / "begun" / "run.json").write_text('{"command": "odeum train x"}')
        (folder / "empty.txt").write_text("")
        (folder / "hollow").mkdir()

    for line, fragment in (
        ("predict images", "this run reads images"),
        ("predict images --text x", "this run reads images"),
        ("predict images nowhere.png", "nowhere.png"),
        ("predict images torn.png", "torn.png"),
        ("predict images latin.txt", "latin.txt"),
        ("predict images hollow", "hollow"),
        ("predict images torn.png --beam 3", "--beam has no effect on a"),
        ("predict images torn.png --steps 0", "steps"),
        ("predict images torn.png --out a\0.csv", "is not a file name; give a path"),
        ("predict images torn.png --steps -1", "steps"),
        ("predict images torn.png --steps 1000000000", "steps 1000000000 would make"),
        ("predict images torn.png --solver nonsense", "nonsense"),
        ("predict images torn.png --top 0", "torn.png"),
        ("predict images torn.png --top x", "--top is 'x' but must be an integer"),
        ("evaluate images --split train", "train"),
        ("evaluate images --split nonsense", "nonsense"),
        ("evaluate images --steps 0", "steps"),
        ("evaluate images --solver nonsense", "nonsense"),
        ("predict texts nowhere.txt", "nowhere.txt"),
        ("predict texts rows.csv", "rows.csv"),
        ("predict texts rows.csv --column gamma", "gamma"),
        ("predict texts --column gamma --text x", "--column is for tables"),
        ("predict texts latin.txt", "latin.txt"),
        ("predict texts torn.png", "torn.png"),
        ("predict texts hollow", "hollow"),
        ("predict texts --text x rows.csv", "give either --text or files"),
        ("predict texts --text", "--text needs a value"),
        ("predict texts --text x --temperature 1", "--temperature has no effect on a"),
        ("predict texts --text x --top -1", "top must be at least one class, not -1"),
        ("predict texts --text a --top 0", "top must be at least one class, not 0"),
        ("predict texts lines.txt", "line 2 of 'lines.txt' is not UTF-8: byte 0xe9 at offset 3"),
        ("predict texts --solver rk4 --steps 0 --text a", "must be a positive integer, got 0"),
        ("predict . --text a", "there are runs inside, such as"),
        ("predict begun --text a", "the run 'begun' is not finished; `odeum train x --out begun` continues it"),
        ("predict hollow --text a", "is not a run of Odeum: it has no model.safetensors"),
        ("train digits --out texts", "holds a run on other data"),
        ("train digits --resume_from images", "is not a checkpoint"),
        ("train digits --from images --model.width 16 --out new", "a model that starts from"),
        ("surgery images --layers 7-9", "--layers 7-9 is out of range"),
        ("surgery images --out torn.png", "'torn.png' is a file"),
        ("compare digits --out images --architectures sequential --train.steps x", "--train.steps is 'x'"),
        ("report images", "'images' is a single run, not a comparison; `odeum evaluate images` shows its results"),
    ):
        yield Case(tuple(line.split()), fragment, here, "asked:")


CASES = [*damaged(), *continued(), *hostile(), *swapped(), *questions()]
