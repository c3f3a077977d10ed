"""Tokenizers of pretrained models, from the files beside their weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from odeum.errors import OdeumError, choose
from odeum.lab.data.files import read_text
from odeum.storage import read_json
from odeum.tokenizer_files import check_ids, library_errors, read_tokenizer
from odeum.tokens import Bpe, Listed, Tokens

TOKEN_FORMS = ("wordpiece", "symbols", "numbers")
SPECIAL_SPELLINGS = {
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "first": ("[CLS]", "<s>"),
    "last": ("[SEP]", "</s>"),
}
"""names of special tokens in other libraries"""


class FoundTokens(NamedTuple):
    """A tokenizer, the ids of its special tokens, and notes for the user."""

    tokens: Tokens
    special: dict[str, int]
    notes: list[str]


def read_pretrained_tokens(folder: Path | None, vocabulary: int, form: str | None = None) -> FoundTokens:
    """Read a tokenizer with exactly `vocabulary` tokens; `form` is that of a vocab.txt (default: recognised)."""
    if form is not None:
        choose(form, TOKEN_FORMS, "form of tokens")
    notes: list[str] = []
    tokens = None if folder is None or form == "numbers" else _read(folder, form)
    if tokens is None:
        notes.append("there is no tokenizer beside the weights: write token ids as text, for example '17 4 9'")
        tokens = Listed("symbols", [str(number) for number in range(vocabulary)])
    if tokens.size > vocabulary:
        raise OdeumError(f"the tokenizer has {tokens.size} tokens, but the model only {vocabulary}; check the files")
    tokens = _filled(tokens, vocabulary)
    index = {tokens.token(number): number for number in range(vocabulary)}
    special = {ours: index[name] for ours, names in SPECIAL_SPELLINGS.items() for name in names if name in index}
    return FoundTokens(tokens, special, notes)


class TextEnds(NamedTuple):
    """Tokens that begin and end the texts of a language model."""

    start: int | None
    """the token before the first one; None if no file names one"""
    prefixed: bool
    """whether every prompt begins with `start`"""
    ends: list[int]
    """tokens that end a text"""


def text_ends(folder: Path | None, config: dict[str, Any], tokens: Tokens) -> TextEnds:
    """Start and end tokens as transformers chooses them: generation_config.json before config.json."""
    generation = _beside(folder, "generation_config.json")

    def named(key: str) -> list[int]:
        value = generation.get(key, config.get(key))
        numbers = value if isinstance(value, list) else [value]
        return [int(n) for n in numbers if isinstance(n, int) and 0 <= n < tokens.size]

    ends = named("eos_token_id")
    before = _before_a_text(tokens)
    prefixed = bool(_beside(folder, "tokenizer_config.json").get("add_bos_token", before is not None))
    start = next(iter([*([] if before is None else [before]), *named("bos_token_id"), *ends]), None)
    return TextEnds(start, prefixed and isinstance(tokens, Bpe), ends)


def _beside(folder: Path | None, name: str) -> dict[str, Any]:
    return read_json(folder / name) if folder is not None and (folder / name).exists() else {}


def _before_a_text(tokens: Tokens) -> int | None:
    """The token that the tokenizer puts before a text."""
    if not isinstance(tokens, Bpe):
        return None
    whole, bare = (tokens.tokenizer.encode("a", add_special_tokens=add).ids for add in (True, False))
    return whole[0] if len(whole) > len(bare) and whole[0] != bare[0] else None


def _read(folder: Path, form: str | None) -> Tokens | None:
    if (folder / "tokenizer.json").exists():
        return Bpe(*read_tokenizer(read_text(folder / "tokenizer.json"), folder / "tokenizer.json"))
    if (folder / "vocab.txt").exists():
        entries = read_text(folder / "vocab.txt").splitlines()
        pieces = any(entry.startswith("##") for entry in entries)
        return (
            _word_pieces(folder, entries)
            if (form or ("wordpiece" if pieces else "symbols")) == "wordpiece"
            else (Listed("symbols", entries))
        )
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        return _byte_level(folder)
    return None


def _word_pieces(folder: Path, entries: list[str]) -> Tokens:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    lower = bool(_beside(folder, "tokenizer_config.json").get("do_lower_case", True))
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return Bpe(made)


def _byte_level(folder: Path) -> Tokens:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = folder / "vocab.json"
    try:
        vocabulary = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise OdeumError(f"'{path}' is not a vocabulary: {error}") from None
    size = check_ids(vocabulary, path)
    lines = [
        line.split(" ") for line in read_text(folder / "merges.txt").splitlines() if not line.startswith("#version")
    ]
    merges = [(a, b) for a, b in (line for line in lines if len(line) == 2)]
    with library_errors(f"'{path}' and merges.txt are not a valid tokenizer"):
        made = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return Bpe(made, size)


def _filled(tokens: Tokens, vocabulary: int) -> Tokens:
    """The tokenizer with names for the unused ids of a padded embedding table."""
    unused = [f"<unused {number}>" for number in range(tokens.size, vocabulary)]
    if not unused:
        return tokens
    if isinstance(tokens, Listed):
        return Listed(tokens.kind, [*tokens.entries, *unused])
    assert isinstance(tokens, Bpe)
    tokens.tokenizer.add_tokens(unused)
    return Bpe(tokens.tokenizer, vocabulary)
