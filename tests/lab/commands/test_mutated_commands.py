"""Command lines with typing errors: 400 mutations of good ones, each an answer or one sentence, never a traceback."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from odeum.lab.cli import main

GOOD = [
    "train digits --print_config",
    "train digits --architecture rk4:steps=2 --seed 1 --print_config",
    "train digits --train.learning_rate 0.01 --train.epochs 2 --print_config",
    "train digits --model vit_8 --model.depth 3 --out run --print_config",
    "train rows.csv --data.text_column text --data.label_column label --print_config",
    "compare digits --architectures sequential,parallel --seeds 2 --print_config",
    "compare digits --match time --budget 10m --margin 0.5 --print_config",
    "compare rows.csv --jobs 1 --baseline rk4 --architectures rk4,macaron --print_config",
    "describe parallel:independent=6 --model deit_tiny --classes 100",
    "describe transevolve:full-1 --format json",
    "list --format md",
    "evaluate run --solver rk4 --steps 2",
    "predict run --text hello --top 3 --format json",
    "report runs/compare-digits --format csv",
    "export run out --to onnx",
    "convert run out --architecture parallel",
    "table zhong2022/table1 --format md",
]
JUNK = (
    "--",
    "-",
    "=",
    "",
    "''",
    "--=",
    "nan",
    "-1",
    "1e999",
    "../..",
    "\x00",
    "é",
    "*",
    "--help=1",
    "~",
    "%s",
    "{}",
    "--train.",
)


def mutated(draw: random.Random) -> list[str]:
    """A good line with one to three errors: a letter, a word, an order."""
    words = draw.choice(GOOD).split()
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(words))
        word = words[place]
        letter = draw.randrange(len(word)) if word else 0
        match draw.randrange(9):
            case 0:
                words[place] = word[:letter] + word[letter + 1 :]
            case 1:
                words[place] = word[:letter] + draw.choice("abcxyz-_=.,:0") + word[letter:]
            case 2:
                words[place] = word[:letter] + word[letter:][1:2] + word[letter:][:1] + word[letter:][2:]
            case 3:
                words[place] = draw.choice([word.upper(), word.title(), word.replace("_", "-"), word + "s"])
            case 4 if len(words) > 1:
                del words[place]
            case 5:
                words.insert(place, word)
            case 6:
                words.insert(place, draw.choice(JUNK))
            case 7:
                words[place] = draw.choice(JUNK)
            case _:
                draw.shuffle(words)
    # what is valid after all must not train
    return (
        words if "--print_config" in words or words[:1] not in (["train"], ["compare"]) else [*words, "--print_config"]
    )


def lines(count: int) -> list[list[str]]:
    draw = random.Random(2024)
    return [mutated(draw) for _ in range(count)]


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=pytest.mark.slow if number % 8 else ()) for number in range(400)],
)
def test_an_answer_or_one_sentence(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    words = lines(400)[number]
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"film number {i},{'pn'[i % 2]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    try:
        code = main(words)
    except SystemExit as stop:  # of --help
        code = stop.code or 0
    err = capsys.readouterr().err
    assert code in (0, 2) and "Traceback" not in err, (words, err)
    if code == 2:
        said = [line for line in err.splitlines() if line.startswith("odeum: ")]
        assert said and len(said[-1]) > len("odeum: ") + 10, (words, err)
