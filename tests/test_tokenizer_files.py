"""tokenizer.json from elsewhere: what would exhaust memory or time, or panic, is refused before it is used."""

from __future__ import annotations

import base64
import copy
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from odeum.errors import OdeumError
from odeum.lab.data.pretrained_tokens import read_pretrained_tokens
from odeum.tokenizer_files import library_errors, read_tokenizer
from odeum.tokens import Bpe, load_tokens

PLAIN = json.loads(Tokenizer(models.BPE(vocab={chr(97 + i): i for i in range(26)}, merges=[])).to_str())


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def table(*texts: bytes) -> dict[str, Any]:
    raw = (4).to_bytes(4, "little") + bytes(4) + b"\0".join(texts)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(parts)}


def nested(depth: int) -> dict[str, Any]:
    return sequence(nested(depth - 1)) if depth else {"type": "Lowercase"}


def token(number: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": "zz", "special": True, **flags}


Change = Callable[[dict[str, Any]], object]
BOMBS: dict[str, tuple[Change, str]] = {
    "replacements": (lambda c: c.update(normalizer=sequence(*[replace("a" * 10, String="a")] * 9)), "times longer"),
    "regex replacements": (lambda c: c.update(normalizer=sequence(*[replace("ab", Regex=".")] * 30)), "times longer"),
    "many parts": (lambda c: c.update(normalizer=sequence(*[{"type": "Lowercase"}] * 300)), "over 200"),
    "deep parts": (lambda c: c.update(normalizer=nested(50)), "nested too deeply"),
    "long text": (lambda c: c.update(normalizer={"type": "Prepend", "prepend": "a" * 10**6}), "1,000,000 characters"),
    "slow split": (lambda c: c.update(pre_tokenizer=split("(a+)+$")), "retry-limit|seconds"),
    "slow replacement": (lambda c: c.update(normalizer=replace("", Regex="(x+x+)+y")), "retry-limit|seconds"),
    "long pattern": (lambda c: c.update(pre_tokenizer=split("(" * 9000 + ")" * 9000)), "18,000 characters"),
    "no pattern": (lambda c: c.update(pre_tokenizer=split("(")), "unmatched parenthesis"),
    "cut table": (lambda c: c.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "cut short"),
    "no table": (lambda c: c.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "?"}), "no base64"),
    "growing table": (lambda c: c.update(normalizer=table(b"x" * 1000)), "over 256 bytes"),
    "huge id": (lambda c: c["model"]["vocab"].update(a=2**32 - 1), "is no id"),
    "text as id": (lambda c: c["model"]["vocab"].update(a="1"), "is no id"),
    "huge added id": (lambda c: c.update(added_tokens=[token(2**32 - 1)]), "is no id"),
    "added nothing": (lambda c: c.update(added_tokens=[3]), "no list of tokens"),
    "no vocabulary": (lambda c: c["model"].update(vocab=3), "no vocabulary"),
    "no model": (lambda c: c.update(model=[]), "no model"),
    "long words": (
        lambda c: c.update(model={"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**15}),
        "words of any length",
    ),
    "template": (
        lambda c: c.update(
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10**5,
                "pair": [],
                "special_tokens": {},
            }
        ),
        "repeats a text",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path: Path, name: str) -> None:
    change, reason = BOMBS[name]
    content = copy.deepcopy(PLAIN)
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for read in (load_tokens, lambda folder: read_pretrained_tokens(folder, 1000)):
        with pytest.raises(OdeumError, match=rf"tokenizer\.json' is not used as a tokenizer: .*({reason})"):
            read(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
    assert time.monotonic() - begin < 100


def test_a_text_is_encoded_whole_and_always_the_same() -> None:
    content = copy.deepcopy(PLAIN)
    content["model"] |= {"dropout": 0.9, "merges": [["a", "b"]], "vocab": {**content["model"]["vocab"], "ab": 26}}
    padding = {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    content["padding"] = {**padding, "pad_to_multiple_of": None}
    content["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "direction": "Right", "stride": 5}
    tokens = Bpe(*read_tokenizer(json.dumps(content), Path("x")))
    assert tokens.encode("abab" * 10) == [26] * 20 and tokens.encode_some(["ab"]) == [[26]]
    assert Bpe(*read_tokenizer(tokens.to_json(), Path("x"))).encode("ab") == [26]


def test_usual_tokenizers_are_used_as_they_are() -> None:
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    pieces.normalizer, pieces.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0), ("b", -2.0)], unk_id=0))
    unigram.pre_tokenizer, unigram.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" ", "▁")])
    for tokenizer, text in ((pieces, "ab A"), (unigram, "ab b")):
        again, size = read_tokenizer(tokenizer.to_str(), Path("x"))
        assert again.encode(text).ids == tokenizer.encode(text).ids and size == 3
        assert again.to_str() == tokenizer.to_str()


def test_ids_beyond_the_table_are_counted() -> None:
    content = copy.deepcopy(PLAIN)
    content["added_tokens"] = [token(5000)]
    assert Bpe(*read_tokenizer(json.dumps(content), Path("x"))).size == 5001


def test_a_panic_is_a_message() -> None:
    class PanicException(BaseException):
        """As pyo3 names it."""

    with pytest.raises(OdeumError, match="fails on this text: index out of bounds"), library_errors():
        raise PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt), library_errors():
        raise KeyboardInterrupt
    wrong = Tokenizer(models.Unigram([("a", 0.0)]))  # without a token for what it does not know
    with pytest.raises(OdeumError, match="unk_id"):
        Bpe(wrong).encode("b")


@pytest.mark.parametrize(
    "vocabulary", ['{"a": "x"}', '{"a": 99999999999}', '{"a": -5}', '{"a": 1.5}', "[]", "3", "{", '{"a": null}']
)
def test_vocabularies_that_are_none(tmp_path: Path, vocabulary: str) -> None:
    (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(OdeumError, match=r"vocab\.json' is no vocabulary"):
        read_pretrained_tokens(tmp_path, 10)
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')  # whose merge has no token
    with pytest.raises(OdeumError, match=r"merges\.txt are no tokenizer"):
        read_pretrained_tokens(tmp_path, 10)
