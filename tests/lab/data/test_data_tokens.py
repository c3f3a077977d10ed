"""Tokens: what goes in comes out, the vocabulary is learned from the training part, and saved as it is."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
import torch
from tokenizers import normalizers

from odeum.errors import OdeumError
from odeum.lab.data.ragged import Ragged, by_count, by_tokens
from odeum.lab.tasks.classification import ClassificationData
from odeum.lab.tasks.classification.task import ClassificationTask
from odeum.tokens import (
    LONGEST_PIECE,
    PAD,
    PIECES,
    UNKNOWN,
    Bpe,
    Bytes,
    Framed,
    Listed,
    Tokens,
    load_tokens,
    text_pieces,
)

TEXT = "the cat sat on the mat .\n\nthe dog , too : Größe 戦場 \x85 end\n" * 3


def test_words_are_counted_and_ordered_as_in_the_papers():
    words = Listed.learn("words", [TEXT], None)
    assert words.entries[:2] == ["<eos>", "the"]
    assert words.encode("the cat\n") == [words.index["the"], words.index["cat"], words.index["<eos>"]]
    assert words.encode("zebra") == [words.index[UNKNOWN]]
    assert words.decode(words.encode("the cat sat\nthe dog")) == "the cat sat\nthe dog"
    stream = words.stream([TEXT])
    assert len(stream) == len(TEXT.split()) + TEXT.count("\n")


def test_a_capped_vocabulary_keeps_the_frequent_and_unknown():
    words = Listed.learn("words", [TEXT], 5)
    assert words.size == 5
    assert UNKNOWN in words.entries
    pieces = Listed.learn("pieces", [TEXT], 6, first=(PAD, UNKNOWN))
    assert pieces.entries[:3] == [PAD, UNKNOWN, "the"]


def test_characters_bytes_and_bpe_give_the_text_back():
    characters = Listed.learn("characters", [TEXT], None)
    bpe = Bpe.learn([TEXT], 300)
    for tokens in (characters, Bytes(), bpe):
        assert tokens.decode(tokens.encode(TEXT)) == TEXT
        assert tokens.decode(tokens.stream([TEXT]).tolist()) == TEXT
    assert bpe.decode(bpe.encode("Ünseen ☃ characters")) == "Ünseen ☃ characters"
    assert "\N{REPLACEMENT CHARACTER}" in characters.decode(characters.encode("☃"))


def test_training_bpe_twice_gives_the_same():
    assert Bpe.learn([TEXT], 320).to_json() == Bpe.learn([TEXT], 320).to_json()


@pytest.mark.parametrize(
    "tokens",
    [Listed.learn("words", [TEXT], None), Bytes(), Bpe.learn([TEXT], 300, first=("<pad>",), prefix_space=True)],
    ids=["words", "bytes", "bpe"],
)
def test_saved_and_loaded_tokens_are_equal(tokens, tmp_path):
    for name, content in tokens.files().items():
        (tmp_path / name).write_bytes(content)
    again = load_tokens(tmp_path)
    assert again.size == tokens.size
    assert again.encode(TEXT) == tokens.encode(TEXT)


def test_bpe_smaller_than_the_bytes_is_refused():
    with pytest.raises(OdeumError, match="at least 256"):
        Bpe.learn([TEXT], 100)


def test_ragged_rows_are_padded_with_a_mask():
    rows = [[1, 2, 3], [4], [5, 6]]
    ids, mask = Ragged(rows).padded(torch.tensor([2, 0]), pad=9)
    assert ids.tolist() == [[5, 6, 9], [1, 2, 3]]
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_batches_by_count_hold_each_row_at_most_once_and_are_of_like_length():
    lengths = torch.randint(1, 200, (1003,), generator=torch.Generator().manual_seed(0))
    batches = by_count(lengths, 32, torch.Generator().manual_seed(1))
    assert len(batches) == 1003 // 32
    rows = torch.cat(batches)
    assert len(rows.unique()) == len(rows)
    spread = torch.stack([lengths[b].max() - lengths[b].min() for b in batches]).float().mean()
    assert spread < 20  # unsorted batches spread over nearly 200
    assert len(by_count(lengths[:5], 32, torch.Generator())) == 1


def test_batches_by_tokens_fit_and_are_as_many_each_epoch():
    random = torch.Generator().manual_seed(0)
    first, second = torch.randint(1, 60, (2, 2000), generator=random)
    plans = [by_tokens(first, second, 512, torch.Generator().manual_seed(seed)) for seed in range(3)]
    assert len({len(plan) for plan in plans}) == 1
    for plan in plans:
        assert torch.cat(plan).sort().values.tolist() == list(range(2000))
        assert all(len(rows) * int(first[rows].max()) <= 512 for rows in plan)
    assert not torch.equal(plans[0][0], plans[1][0])


@pytest.mark.parametrize("kind", ["words", "characters", "pieces", "symbols", "bytes", "bpe", "bpe-prefix"])
def test_a_long_line_in_pieces_has_the_tokens_of_the_whole(kind):
    """What is cut for the memory's sake must not be seen in the numbers."""
    pick = random.Random(0)
    words = [
        "the",
        "cat's",
        "<br />",
        "42nd",
        "Größe",
        "戦場",
        ",",
        "a/b",
        "--",
        " ",
        "\n",
        "\n\n",
        "don't",
        "_x_",
        "\t",
    ]
    text = " ".join(pick.choices(words, k=60_000))
    pieces = list(text_pieces(text))
    assert "".join(pieces) == text and len(pieces) > 2 and max(map(len, pieces)) <= LONGEST_PIECE
    match kind:
        case "bytes":
            tokens = Bytes()
        case "bpe" | "bpe-prefix":
            tokens = Bpe.learn([text[:20_000]], 400, prefix_space=kind == "bpe-prefix")
        case _:
            tokens = Listed.learn(kind, [text], None)
    whole = tokens.encode(text)
    assert [i for piece in pieces for i in tokens.encode(piece)] == whole
    assert list(tokens.encode_all([text, "the cat"], 50)) == [whole[:50], tokens.encode("the cat")[:50]]
    assert list(tokens.encode_all([text])) == [whole]


def test_a_line_without_blanks_is_cut_too():
    text = "x" * (3 * LONGEST_PIECE + 5)
    assert [len(piece) for piece in text_pieces(text)] == [LONGEST_PIECE] * 3 + [5]
    bpe = Bpe.learn([text[:5000]], 260)
    assert bpe.decode(bpe.stream([text]).tolist()) == text


def word_pieces(*words: str) -> Bpe:
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    tokenizer = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return Bpe(tokenizer)


@pytest.mark.parametrize(
    ("tokens", "known", "strange", "remedy"),
    [
        (Listed("symbols", ["[PAD]", "[UNK]", "C", "=", "O"]), "C = O", "C=O", "; separate symbols by blanks"),
        (Listed.learn("words", ["the cat sat"], None), "the cat", "ein Hund hier", ""),
        (Framed(word_pieces("the", "cat"), 2, 3), "the cat the cat", "ein Hund", ""),
    ],
    ids=["symbols", "words", "word pieces"],
)
def test_unknown_tokens_are_counted_and_reported_once(
    tokens: Tokens, known: str, strange: str, remedy: str, recwarn: pytest.WarningsRecorder
) -> None:
    task = ClassificationTask("x", ClassificationData(), tokens, ["a", "b"], 16)
    assert tokens.unknown_share(known) < 0.5 < tokens.unknown_share(strange)
    list(task.input_batches([known]))
    assert not recwarn
    for _ in range(2):
        list(task.input_batches([known, strange]))
    (warning,) = recwarn
    assert str(warning.message).endswith(f"% of the tokens of '{strange}' are unknown to the tokenizer{remedy}")


def test_bytes_know_every_text() -> None:
    learned = Bpe.learn(["the cat sat on the mat"] * 9, 270)
    assert Bytes().unknown_share("日本") == learned.unknown_share("日本") == 0


@pytest.mark.parametrize("prefix", [False, True])
def test_words_encoded_once_give_the_tokens_of_whole_texts(prefix: bool):
    """All kinds of white space, special tokens in the text, letters that change in lower case or with their context."""
    draw = random.Random(0)
    parts = [*" \n\t\r\x1c\x85\xa0\u2003\u0301\ufeffa'._-éßΣ你🙂İ²", "  ", "the", "cat", "'s", "12", "ΑΣ", PAD]
    parts += ["<br />", "<BR />", "foo ", " bar"]
    texts = ["".join(draw.choices(parts, k=draw.randrange(14))) for _ in range(3000)]
    texts += [f"{text}\n" for text in texts] + [line + "\n" for line in TEXT.split("\n")]
    bpe = Bpe.learn(texts, 400, first=(PAD,), prefix_space=prefix)
    whole = [encoding.ids for encoding in bpe.tokenizer.encode_batch(texts, add_special_tokens=False)]
    assert bpe.encode_batch(texts) == whole and bpe.encode_batch(texts) == whole
    pieces = [re.findall(PIECES, text.lower()) for text in texts]
    counts = Counter(piece for found in pieces for piece in found)
    listed = Listed.learn("pieces", texts, 60, first=(PAD, UNKNOWN))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    assert listed.entries[2:] == [word for word, _ in ranked][:58]
    assert listed.encode_batch(texts) == [[listed.index.get(w, listed.unknown) for w in found] for found in pieces]


def test_words_are_not_encoded_alone_where_other_parts_of_a_tokenizer_see_the_text():
    bpe = Bpe.learn([TEXT], 300)
    bpe.tokenizer.add_tokens(["the cat"])
    bpe = Bpe(bpe.tokenizer)
    assert bpe.encode_batch(["see the cat sat"]) == [bpe.encode("see the cat sat")]
    bpe = Bpe.learn([TEXT], 300)
    bpe.tokenizer.normalizer = normalizers.Replace(" c", " d")
    bpe = Bpe(bpe.tokenizer)
    assert bpe.encode_batch(["see the cat sat"]) == [bpe.encode("see the cat sat")]


def test_what_is_kept_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("odeum.tokens.MOST_CACHED", 100)
    bpe, listed = Bpe.learn([TEXT], 300), Listed.learn("pieces", [TEXT], None)
    texts = [f"the word{i} and the wor{i} again" for i in range(50)]
    for tokens in (bpe, listed):
        assert [tokens.encode_batch([text])[0] for text in texts] == [tokens.encode(text) for text in texts]
    assert len(bpe._words.numbers) < 60 and len(listed._known) < 60
