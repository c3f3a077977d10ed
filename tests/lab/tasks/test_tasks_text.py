"""Text tasks: language modelling, classification and ListOps, from files made by someone else."""

from __future__ import annotations

import csv
import json
import math
import os
import random
from pathlib import Path

import pytest
import torch
from torch import nn

from odeum.errors import OdeumError
from odeum.lab.data import tables
from odeum.lab.tasks import load_task, open_task, reopen_task
from odeum.lab.tasks.classification import ClassificationData
from odeum.lab.tasks.listops import ListOpsData, expressions
from odeum.models import Output, build

SMALL = {"width": 16, "heads": 2, "depth": 1, "hidden": 32}
WORDS = ["time", "flows", "through", "attention", "and", "the", "layer", "steps", "on", "while", "tokens", "drift"]
WORDS += ["in", "a", "field", "of", "scores"]


def prose(lines: int, seed: int = 0) -> str:
    pick = random.Random(seed)
    return "".join(" ".join(pick.choices(WORDS, k=8)) + " .\n" for _ in range(lines))


def train(task, model, epochs: int, batch_size: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for batch in (b for epoch in range(epochs) for b in task.batches(epoch, batch_size, 0)):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


class Counting(nn.Module):
    """Knows the frequencies of tokens only: its loss can be computed by hand."""

    def __init__(self, counts: torch.Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter((counts + 1).log())

    def forward(self, input_ids, labels, only_loss=False):
        logits = self.scores.expand(*input_ids.shape, -1)
        return Output(None, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))


@pytest.mark.parametrize("tokens", ["words", "characters", "bpe"])
def test_an_evaluation_scores_each_token_once_with_context(tmp_path, tokens):
    (tmp_path / "corpus.txt").write_text(prose(600))
    task = open_task(
        tmp_path / "corpus.txt", tokens=tokens, length=32, context=24, vocabulary=None if tokens != "bpe" else 300
    )
    stream = task.streams["valid"].long()
    scored, begin = [], 0
    for batch in task.windows("valid"):
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
            kept = labels != -100
            place = begin - int((~kept).sum())
            assert ids[0] == (task.tokens.start if place == 0 else stream[place - 1])
            assert place == 0 or (~kept).sum() == 24
            scored.append(labels[kept])
            begin += int(kept.sum())
    assert torch.equal(torch.cat(scored), stream)

    model = Counting(torch.bincount(task.streams["train"].long(), minlength=task.tokens.size).float())
    loss = nn.functional.cross_entropy(model.scores.expand(len(stream), -1), stream).item()
    result = task.evaluate(model)
    text = task.tokens.decode(stream.tolist())
    words = len(text.split()) + text.count("\n")
    assert result["loss"] == pytest.approx(loss, rel=1e-5)
    assert result["perplexity"] == pytest.approx(math.exp(loss), rel=1e-5)
    assert result["word_perplexity"] == pytest.approx(math.exp(loss * len(stream) / words), rel=1e-4)


def test_training_windows_are_consecutive_shifted_and_move_each_epoch(tmp_path):
    (tmp_path / "corpus.txt").write_text(prose(600))
    task = open_task(tmp_path / "corpus.txt", tokens="characters", length=64)
    stream = task.tokens.decode(task.streams["train"].tolist())
    batches = list(task.batches(0, 4, 0))
    assert len(batches) == task.steps_per_epoch(4)
    for batch in batches[:5]:
        assert torch.equal(batch["input_ids"][:, 1:], batch["labels"][:, :-1])
        assert task.tokens.decode(batch["input_ids"][0].tolist()) in stream
    again, other = next(task.batches(0, 4, 0)), next(task.batches(1, 4, 0))
    assert torch.equal(batches[0]["input_ids"], again["input_ids"])
    assert not torch.equal(batches[0]["input_ids"], other["input_ids"])
    share = sum(batch["labels"].numel() for batch in batches) / len(stream)
    assert 0.9 < share <= 1


def test_a_text_file_trains_saves_and_continues(tmp_path):
    (tmp_path / "corpus.txt").write_text(prose(400))
    task = open_task(tmp_path / "corpus.txt", length=32)
    model = build("parallel", task.model(), **SMALL)
    before = task.evaluate(model)["perplexity"]
    train(task, model, 3, 8)
    after = task.evaluate(model, "test")["perplexity"]
    assert after < before / 2
    task.save(tmp_path / "run")
    again = load_task(tmp_path / "run")
    prompts = ["time flows", ""]
    answers = again.predict(model, prompts, max_new_tokens=20)
    assert answers == task.predict(model, prompts, max_new_tokens=20)
    assert all(len(answer) == 20 for answer in answers)
    assert reopen_task(tmp_path / "run").fingerprint() == task.fingerprint()


def test_folders_and_named_parts_of_text(tmp_path):
    for name, lines in (("train", 300), ("valid", 40), ("test", 50)):
        (tmp_path / f"{name}.txt").write_text(prose(lines, seed=lines))
    task = open_task(tmp_path)
    assert task.words == {"valid": 40 * 10, "test": 50 * 10}
    both = open_task(tmp_path / "valid.txt", tmp_path / "train.txt")
    assert both.words["valid"] == 400
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text(prose(100))
    (tmp_path / "a" / "two.txt").write_text(prose(100, 1))
    assert open_task(tmp_path / "a").kind == "language"


def test_wikitext_layout_keeps_the_published_words(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    (tmp_path / "wikitext-2").mkdir()
    for part in ("train", "valid", "test"):
        (tmp_path / "wikitext-2" / f"wiki.{part}.tokens").write_text(
            " \n = Title = \n \n" + " the <unk> of a cat . \n" * 40
        )
    task = open_task("wikitext2")
    assert len(task.streams["test"]) == 3 + 3 + 40 * 7 == task.words["test"]
    assert task.tokens.entries[:2] == [".", "<eos>"] or "<eos>" in task.tokens.entries[:2]
    assert "<unk>" in task.tokens.entries


def test_python_comes_with_its_own_text():
    task = open_task("python", megabytes=0.8, tokens="characters")
    assert len(task.streams["train"]) > 400_000
    assert not set(task.tokens.decode(task.streams["valid"][:500].tolist())) - set(task.tokens.entries)


# classification


def reviews(count: int = 120) -> list[tuple[str, str]]:
    pick = random.Random(0)
    rows = []
    for i in range(count):
        mood = "good" if i % 2 else "bad"
        rows.append((f"{' '.join(pick.choices(WORDS, k=6))}, {mood} {mood}", {"good": "pos", "bad": "neg"}[mood]))
    return rows


def write_csv(path: Path, rows, head=("text", "label")) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([*([head] if head else []), *rows])
    return path


def test_a_csv_trains_saves_and_predicts(tmp_path):
    task = open_task(write_csv(tmp_path / "reviews.csv", reviews()))
    assert task.classes == ["neg", "pos"]
    assert {part: len(labels) for part, (_, labels) in task.parts.items()} == {"train": 96, "valid": 12, "test": 12}
    assert task.parts["test"][1].sum() == 6  # stratified
    model = build("sequential", task.model(), **SMALL)
    train(task, model, 20, 16)
    assert task.evaluate(model, "test")["accuracy"] == 1.0
    task.save(tmp_path / "run")
    again = load_task(tmp_path / "run")
    answers = again.predict(model, ["good good time", "bad bad time", ""])
    assert [row[0][0] for row in answers[:2]] == ["pos", "neg"]
    assert answers[0][0][1] > 0.6
    assert len(answers) == 3


def test_padding_does_not_change_an_answer(tmp_path):
    task = open_task(write_csv(tmp_path / "reviews.csv", reviews()))
    model = build("parallel", task.model(), **SMALL)
    texts = ["good time", "a field of scores and tokens , bad bad"]
    together = task.predict(model, texts)
    for text, row in zip(texts, together, strict=True):
        assert task.predict(model, [text])[0][0][1] == pytest.approx(row[0][1], abs=1e-5)


def test_the_same_table_in_every_form(tmp_path):
    rows = reviews()
    expected = open_task(write_csv(tmp_path / "a.csv", rows)).parts["train"][0].flat
    (tmp_path / "b.tsv").write_text("".join(f"{label}\t{text}\n" for text, label in rows))
    lines = (json.dumps({"sentiment": label, "review": text}) for text, label in rows)
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    (tmp_path / "g.json").write_text(json.dumps([{"text": text, "label": label} for text, label in rows]))
    forms = [
        open_task(write_csv(tmp_path / "d.csv", rows, head=None)),
        open_task(
            write_csv(tmp_path / "e.csv", [(i, b, a) for i, (a, b) in enumerate(rows)], ("id", "Class", "Content"))
        ),
        open_task(write_csv(tmp_path / "f.csv", rows, ("x", "z")), text_column="x", label_column="z"),
        open_task(tmp_path / "b.tsv"),
        open_task(tmp_path / "c.jsonl"),
        open_task(tmp_path / "g.json"),
    ]
    for task in forms:
        assert torch.equal(task.parts["train"][0].flat, expected)
        assert task.classes == ["neg", "pos"]


def test_train_and_test_tables_in_a_folder(tmp_path):
    write_csv(tmp_path / "train.csv", reviews(100))
    write_csv(tmp_path / "test.csv", reviews(30))
    for task in (open_task(tmp_path), open_task(tmp_path / "train.csv", tmp_path / "test.csv")):
        assert {part: len(labels) for part, (_, labels) in task.parts.items()} == {"train": 90, "valid": 10, "test": 30}
    write_csv(tmp_path / "test.csv", [*reviews(30), ("so so", "meh")])
    with pytest.raises(OdeumError, match=r"the label 'meh' of the test part .* never occurs in its training part"):
        open_task(tmp_path)


def test_line_breaks_within_a_text_are_kept(tmp_path):
    rows = [(f"one\x85two {i}\nthree", str(i % 2)) for i in range(40)]
    write_csv(tmp_path / "x.csv", rows)
    assert len(tables.read_table(tmp_path / "x.csv", ClassificationData())[0]) == 40
    (tmp_path / "x.tsv").write_text("".join(f"{i % 2}\ta\x85b\u2028c d {i % 7}\n" for i in range(40)))
    assert len(tables.read_table(tmp_path / "x.tsv", ClassificationData())[0]) == 40


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"text,label\n", "no rows"),
        (b"text,label\na,x\nb,x\nc,x\n", "only one class, 'x'"),
        (b"text,label\ncaf\x81,x\n", "not UTF-8: byte 0x81 at offset 14"),
        (
            b"body of text,score\ngood,1\nbad,2\n",
            "'body of text', 'score'; name them with --data.text_column",
        ),
        (b"text,label\na,x\nb,y\n", "too few"),
        (b"text,other,label\na,b,x\na\n", "row 3 of .* has 1 columns"),
    ],
)
def test_bad_tables_get_a_sentence(tmp_path, content, sentence):
    (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(OdeumError, match=sentence) as caught:
        open_task(tmp_path / "bad.csv")
    assert "\n" not in str(caught.value)


def test_rows_without_a_label_are_counted(tmp_path):
    with pytest.warns(UserWarning, match="2 rows of .* without a label were left out"):
        open_task(write_csv(tmp_path / "x.csv", [*reviews(60), ("a", ""), ("b", " ")]))


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_rows_without_a_text_are_counted(tmp_path, kind):
    rows = [(text, str(i % 2)) for i, (text, _) in enumerate([*reviews(60), ("", ""), (" ", "")])]
    with pytest.warns(UserWarning, match="2 rows of .* with an empty text were left out"):
        task = open_task(write_csv(tmp_path / "x.csv", rows), kind=kind)
    assert sum(task.sizes().values()) == 60


def test_imdb_and_ag_news_layouts(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    (tmp_path / "imdb").mkdir()
    (tmp_path / "ag_news").mkdir()
    for part in ("train", "test"):
        lines = (f"{i % 2}\t3\ttt1\t{i}\tA film\x85 number {i}\n" for i in range(40))
        (tmp_path / "imdb" / f"{part}.tsv").write_text("".join(lines))
        write_csv(
            tmp_path / "ag_news" / f"{part}.csv", [(i % 4 + 1, f"Title {i}", "Description") for i in range(60)], None
        )
    imdb = open_task("imdb")
    assert imdb.classes == ["negative", "positive"]
    assert len(imdb.parts["test"][0]) == 40
    as_bytes = open_task("imdb-bytes", length=10)
    assert as_bytes.facts() == {"vocabulary": 257, "classes": 2, "length": 10}
    assert (
        as_bytes.tokens.decode(as_bytes.parts["test"][0].padded(torch.tensor([0]))[0][0].tolist()) == "A film\x85 n"[:9]
    )
    fewer = open_task("imdb", test_examples=10)
    assert len(fewer.parts["test"][0]) == 10
    assert fewer.notes[0] == "tested on 10 of 40 test examples"
    assert "6 of 10 test examples are in the training part too" in fewer.notes[1]
    assert 0 < fewer.parts["test"][1].sum() < 10
    news = open_task("ag_news")
    assert news.classes == ["World", "Sports", "Business", "Sci/Tech"]
    assert "title" in news.tokens.entries
    assert "title" not in open_task("ag_news", text_column="description").tokens.entries


# listops


def value(tokens: list[str]) -> int:
    """An independent reading of an expression."""
    stack: list[list] = [[]]
    for token in tokens:
        if token.startswith("["):
            stack.append([token])
        elif token == "]":
            name, *values = stack.pop()
            ordered = sorted(values)
            middle = len(values) // 2
            median = ordered[middle] if len(values) % 2 else int((ordered[middle - 1] + ordered[middle]) / 2)
            result = {"[MIN": min(values), "[MAX": max(values), "[MED": median, "[SM": sum(values) % 10}[name]
            stack[-1].append(result)
        else:
            stack[-1].append(int(token))
    return stack[0][0]


def test_listops_follow_the_rules(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ListOpsData(count=500, min_length=20, max_length=60, max_depth=4)
    parts = expressions.load_listops(options)
    assert {part: len(rows) for part, rows in parts.items()} == {"train": 500, "valid": 50, "test": 50}
    texts = [text for rows in parts.values() for text, _ in rows]
    assert len(set(texts)) == len(texts)
    for rows in parts.values():
        for text, answer in rows:
            tokens = text.split()
            assert 20 < len(tokens) < 60
            assert value(tokens) == answer
            depth = deepest = 0
            for token in tokens:
                depth += token.startswith("[") - (token == "]")
                deepest = max(deepest, depth)
            assert deepest <= 3  # the fourth level holds digits only
    assert expressions.load_listops(options) == parts  # now from the cache
    assert expressions.Generator(options).examples(600)[:500] == parts["train"]
    other = ListOpsData(count=500, min_length=20, max_length=60, max_depth=4, seed=1)
    assert expressions.load_listops(other)["train"] != parts["train"]


def test_listops_is_a_task(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    task = open_task("listops", count=200, max_length=60)
    assert task.facts() == {"vocabulary": 17, "classes": 10, "length": 60}
    model = build("parallel", task.model(), **SMALL)
    assert 0 <= task.evaluate(model)["accuracy"] <= 1
    task.save(tmp_path / "run")
    assert load_task(tmp_path / "run").predict(model, ["[MIN 2 [MAX 3 9 ] ]"], top=1)[0][0][0] in task.classes
    with pytest.raises(OdeumError, match="max_length above min_length"):
        open_task("listops", min_length=60, max_length=60)


@pytest.mark.skipif("ODEUM_DATA" not in os.environ, reason="needs ODEUM_DATA with wikitext-2, imdb and ag_news")
def test_real_text_sets_have_their_published_sizes():
    wiki = open_task("wikitext2")
    assert wiki.tokens.size == 33_278
    assert [len(wiki.streams[p]) for p in ("train", "valid", "test")] == [2_088_628, 217_646, 245_569]
    imdb = open_task("imdb")
    assert [len(imdb.parts[p][1]) for p in ("train", "valid", "test")] == [22_500, 2_500, 25_000]
    assert len(open_task("ag_news").parts["test"][1]) == 7_600


def test_texts_of_any_length_are_answered_in_their_order_as_if_alone(tmp_path, monkeypatch):
    """They are read in batches of like length; the answers do not show it."""
    pick = random.Random(0)
    texts = [" ".join(pick.choices(WORDS, k=1 + i * 7 % 23)) for i in range(40)]
    rows = "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(texts))
    (tmp_path / "texts.csv").write_text("text,label\n" + rows)
    task = open_task(tmp_path / "texts.csv", length=24)
    model = build("sequential", task.model(), **SMALL)
    monkeypatch.setattr("odeum.lab.tasks.text_base.TOKENS_AT_ONCE", 64)
    together = torch.cat(list(task.apply_head(model, iter(texts))))
    alone = torch.cat([logits for text in texts for logits in task.apply_head(model, [text])])
    assert together.shape == (40, 2) and len(together.unique(dim=0)) > 20
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    assert list(task.apply_head(model, [])) == []
