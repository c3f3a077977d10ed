"""GGUF files: llama.cpp splits texts and generates tokens as Odeum does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_native import LINES, untrained

import odeum
from odeum.hf.tokenizer import make_tokenizer
from odeum.interop.gguf import CONTROL, NORMAL, Vocabulary, bpe_vocabulary, byte_letters, character_vocabulary
from odeum.lab.cli import main
from odeum.tokens import Bpe, Bytes, Listed, Tokens

TEXT = "the cat sat — äöü 字 🎈!\nA dog, 12 hills\n"
LLAMA = {"activation": "swiglu", "norm_kind": "rms"}
FORMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("parallel", {"positions": "rotary", "activation": "relu"}, {"tokens": "bpe", "vocabulary": 300}),
    ("sequential", {"positions": "rotary", "activation": "gelu"}, {"tokens": "characters"}),
    ("parallel:norm=shared", {"positions": "rotary", "activation": "relu"}, {"tokens": "characters"}),
    ("sequential", {"positions": "rotary", **LLAMA}, {"tokens": "bpe", "vocabulary": 300}),
    ("sequential:independent=1", {"positions": "rotary", **LLAMA, "bias": False}, {"tokens": "characters"}),
    ("sequential", {"positions": "sinusoidal", "activation": "relu"}, {"tokens": "words"}),
    ("sequential", {"positions": "learned", "activation": "gelu"}, {"tokens": "bpe", "vocabulary": 300}),
]


def exported(place: Path, architecture: str, changes: dict[str, Any], options: dict[str, Any]) -> tuple[Any, Path]:
    (place / "lines.txt").write_text("\n".join([TEXT, *LINES * 2]) + "\n", encoding="utf-8")
    sizes = {"width": 32, "heads": 4}
    data = str(place / "lines.txt")
    untrained(place / "run", architecture, data, kind="language", length=64, changes=sizes | changes, **options)
    assert main(["export", str(place / "run"), str(place / "out"), "--to", "gguf"]) == 0
    return odeum.load(place / "run"), place / "out" / "model.gguf"


def merged(vocabulary: Vocabulary, text: str) -> list[int]:
    """Byte-level BPE as llama.cpp computes it: merges by rank; what is no token becomes its bytes."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(vocabulary.merges)}
    numbers = {token: i for i, token in enumerate(vocabulary.tokens)}
    parts = [byte_letters()[byte] for byte in text.encode()]
    while pairs := [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]:
        _, i = min(pairs)
        parts[i : i + 2] = ["".join(parts[i : i + 2])]
    return [numbers[part] for part in parts]


@pytest.mark.parametrize("tokens", [Bytes(), Listed.learn("characters", [TEXT], None)], ids=["bytes", "characters"])
def test_tokens_without_a_splitter_become_byte_level_bpe(tokens: Tokens) -> None:
    if isinstance(tokens, Listed):
        vocabulary = character_vocabulary(tokens.entries)
    else:
        made = bpe_vocabulary(make_tokenizer(tokens, "next token", 64).backend_tokenizer, tokens.size)
        assert made is not None
        vocabulary = made
    assert len(vocabulary.tokens) == len(vocabulary.types) == tokens.size
    assert merged(vocabulary, TEXT) == tokens.encode(TEXT)
    assert vocabulary.types[vocabulary.never] == CONTROL and vocabulary.never not in tokens.encode(TEXT)


def test_learned_bpe_is_written_as_it_is() -> None:
    tokens = Bpe.learn([TEXT], 300)
    vocabulary = bpe_vocabulary(make_tokenizer(tokens, "next token", 64).backend_tokenizer, tokens.size)
    assert vocabulary is not None and set(vocabulary.types) == {NORMAL}
    for word in ("the", " cat", " sat", "!"):  # the splitter's pieces are llama.cpp's
        assert merged(vocabulary, word) == tokens.encode(word)
    with_blank = Bpe.learn([TEXT], 300, prefix_space=True)
    assert bpe_vocabulary(make_tokenizer(with_blank, "next token", 64).backend_tokenizer, 300) is None
    words = Listed.learn("words", [TEXT], None)
    assert bpe_vocabulary(make_tokenizer(words, "next token", 64).backend_tokenizer, words.size) is None


def test_other_runs_are_refused(tmp_path: Path, complaint: Any) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 2) + "\n")
    for architecture, message in (("rk4", "'rk4' has no equivalent"), ("hyper", "no equivalent")):
        run = tmp_path / architecture
        untrained(run, architecture, str(tmp_path / "lines.txt"), kind="language", length=32, changes={})
        assert main(["export", str(run), str(tmp_path / "out"), "--to", "gguf"]) == 2
        said = complaint()
        assert message in said and "--to onnx or --to torch" in said


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "changes", "options"), FORMS)
def test_llama_cpp_generates_the_same(
    architecture: str, changes: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """Where llama-cpp-python is installed, which pip builds from source."""
    engine = pytest.importorskip("llama_cpp", reason="not installed: pip install llama-cpp-python (built from source)")
    pytest.importorskip("gguf", reason="not installed: pip install odeum[gguf]")
    run, path = exported(tmp_path, architecture, changes, options)
    llama = engine.Llama(str(path), n_ctx=64, n_threads=1, logits_all=True, type_k=0, type_v=0, verbose=False)
    model: Any = run.model.requires_grad_(False)
    for prompt in ("the cat sat", TEXT[:19], "a"):
        ids = run.task._prompt(prompt)
        if options["tokens"] != "words":
            assert llama.tokenize(prompt.encode(), add_bos=True) == ids
            assert llama.detokenize(ids).decode() == "\n" + prompt
        llama.reset()
        llama.eval(ids)
        ours = model(torch.tensor([ids])).logits[0].numpy()
        near = 2e-2 if changes["activation"] == "gelu" else 1e-3  # its GELU is the tanh formula in half precision
        assert np.abs(llama.scores[: len(ids)] - ours).max() < near * np.abs(ours).max()
        llama.reset()
        made = list(itertools.islice(llama.generate(ids, temp=0.0), 16))
        expected = list(ids)
        for _ in made:
            logits = model(torch.tensor([expected])).logits[0, -1]
            best = logits.topk(2).values
            expected.append(int(logits.argmax()))
            if best[0] - best[1] < near * float(logits.abs().max()):  # a tie may fall either way
                break
        assert made[: len(expected) - len(ids) - 1] == expected[len(ids) : -1]
