"""tokenizer.json from elsewhere: what would exhaust memory or time, or panic, is refused before it is used."""

from __future__ import annotations

import copy
import json
import resource
import time
from pathlib import Path

import pytest
from corpus.tokenizer_bombs import BOMBS, token
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from odeum.errors import OdeumError
from odeum.lab.data.pretrained_tokens import read_pretrained_tokens
from odeum.tokenizer_files import library_errors, read_tokenizer
from odeum.tokens import Bpe, load_tokens

PLAIN = json.loads(Tokenizer(models.BPE(vocab={chr(97 + i): i for i in range(26)}, merges=[])).to_str())


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path: Path, name: str) -> None:
    change, reason = BOMBS[name]
    content = copy.deepcopy(PLAIN)
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for read in (load_tokens, lambda folder: read_pretrained_tokens(folder, 1000)):
        with pytest.raises(OdeumError, match=rf"tokenizer\.json' cannot be used as a tokenizer: .*({reason})"):
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
    assert tokens.encode("abab" * 10) == [26] * 20 and tokens.encode_batch(["ab"]) == [[26]]
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
    with pytest.raises(OdeumError, match=r"vocab\.json' is not a vocabulary"):
        read_pretrained_tokens(tmp_path, 10)
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')  # whose merge has no token
    with pytest.raises(OdeumError, match=r"merges\.txt are not a valid tokenizer"):
        read_pretrained_tokens(tmp_path, 10)
