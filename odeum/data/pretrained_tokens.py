"""The tokens of a pretrained model, from the files beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from odeum.data.files import read_text
from odeum.data.tokens import Bpe, Listed, Tokens
from odeum.errors import OdeumError, choose
from odeum.storage import read_json

TOKEN_FORMS = ("wordpiece", "symbols", "numbers")
SPECIAL_SPELLINGS = {
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "first": ("[CLS]", "<s>"),
    "last": ("[SEP]", "</s>"),
}
"""how others call the tokens that have a meaning of their own"""


class FoundTokens(NamedTuple):
    """Tokens, the numbers of the special ones by our names, and what a user should know."""

    tokens: Tokens
    special: dict[str, int]
    notes: list[str]


def read_pretrained_tokens(folder: Path | None, vocabulary: int, form: str | None = None) -> FoundTokens:
    """As many as the model has; `form` says how those of a vocab.txt cut a text (none: recognised)."""
    if form is not None:
        choose(form, TOKEN_FORMS, "form of tokens")
    notes: list[str] = []
    tokens = None if folder is None or form == "numbers" else _read(folder, form)
    if tokens is None:
        notes.append("there is no tokenizer beside the weights: a token is written as its number, as in '17 4 9'")
        tokens = Listed("symbols", [str(number) for number in range(vocabulary)])
    if tokens.size > vocabulary:
        raise OdeumError(f"the tokenizer has {tokens.size} tokens, but the model tells {vocabulary} apart")
    tokens = _filled(tokens, vocabulary)
    index = {tokens.token(number): number for number in range(vocabulary)}
    special = {ours: index[name] for ours, names in SPECIAL_SPELLINGS.items() for name in names if name in index}
    return FoundTokens(tokens, special, notes)


def _read(folder: Path, form: str | None) -> Tokens | None:
    from tokenizers import Tokenizer

    if (folder / "tokenizer.json").exists():
        try:
            return Bpe(Tokenizer.from_str(read_text(folder / "tokenizer.json")))
        except Exception as error:  # whatever the library makes of it
            raise OdeumError(f"'{folder / 'tokenizer.json'}' is no tokenizer ({error})") from None
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

    settings = folder / "tokenizer_config.json"
    lower = bool(read_json(settings).get("do_lower_case", True)) if settings.exists() else True
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return Bpe(made)


def _byte_level(folder: Path) -> Tokens:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    vocabulary = json.loads(read_text(folder / "vocab.json"))
    lines = [
        line.split(" ") for line in read_text(folder / "merges.txt").splitlines() if not line.startswith("#version")
    ]
    made = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[(a, b) for a, b in (line for line in lines if len(line) == 2)])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return Bpe(made)


def _filled(tokens: Tokens, vocabulary: int) -> Tokens:
    """With names for the numbers that a padded table has beyond its tokens."""
    unused = [f"<unused {number}>" for number in range(tokens.size, vocabulary)]
    if not unused:
        return tokens
    if isinstance(tokens, Listed):
        return Listed(tokens.kind, [*tokens.entries, *unused])
    assert isinstance(tokens, Bpe)
    tokens.tokenizer.add_tokens(unused)
    return Bpe(tokens.tokenizer)
