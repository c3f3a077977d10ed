"""What an imported model reads and writes as text is what its own library makes of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as T
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import odeum
from odeum.lab.cli import main

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
TEXTS = ["the cat sat on the mat", "a dog ran over the hill", "the hill is high and green"] * 4


def tokenizer(form: str) -> T.PreTrainedTokenizerFast:
    """In the manner of Llama (blanks are letters, a first token before each text) or of GPT-2."""
    made = Tokenizer(models.BPE())
    special = ["<s>", "</s>"]
    if form == "llama":
        made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
        alphabet: list[str] = []
    else:
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=290, special_tokens=special, initial_alphabet=alphabet)
    )
    if form == "llama":
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return T.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def scrambled(model: Any) -> Any:
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def causal(vocabulary: int, **more: Any) -> Any:
    named = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None} | more
    return scrambled(T.LlamaForCausalLM(T.LlamaConfig(vocab_size=vocabulary, **SIZES, **named)))


def imported(source: Path, out: Path) -> str:
    assert main(["import", str(source), "--out", str(out)]) == 0
    return str(out)


def greedy(folder: Path, prompt: str) -> str:
    """Prompt and continuation by transformers alone, from the files of a folder."""
    read = T.AutoTokenizer.from_pretrained(folder)
    model = T.AutoModelForCausalLM.from_pretrained(folder)
    found = model.generate(**read(prompt, return_tensors="pt"), max_new_tokens=12, do_sample=False, pad_token_id=0)
    return read.decode(found[0], skip_special_tokens=True)


@pytest.mark.parametrize("form", ["llama", "gpt2"])
def test_a_prompt_is_continued_as_by_its_own_tokenizer(form: str, tmp_path: Path) -> None:
    made = tokenizer(form)
    made.save_pretrained(tmp_path / "theirs")
    causal(len(made)).save_pretrained(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    model = odeum.load(run)
    odeum.hf.save(run, tmp_path / "exported")
    new = 0
    for prompt in ("the cat", "a hill ", "over"):
        ours = prompt + model.predict([prompt], temperature=0, max_new_tokens=12)[0]
        assert ours == greedy(tmp_path / "theirs", prompt) == greedy(tmp_path / "exported", prompt)
        new += len(ours) - len(prompt)
    assert new > 10
    told = T.AutoTokenizer.from_pretrained(tmp_path / "theirs")("the cat")["input_ids"]
    assert T.AutoTokenizer.from_pretrained(tmp_path / "exported")("the cat")["input_ids"] == told
    assert model.predict([""], temperature=0, max_new_tokens=3)  # begins with the token that the files name
    config = T.AutoConfig.from_pretrained(tmp_path / "exported")
    assert config.bos_token_id == 0 and config.eos_token_id == [1]


def test_a_text_is_over_at_its_last_token(tmp_path: Path) -> None:
    made = tokenizer("gpt2")
    made.save_pretrained(tmp_path / "theirs")
    theirs = causal(len(made))
    ids = made("the cat", return_tensors="pt")["input_ids"]
    free = theirs.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=None)[0].tolist()
    end = next(token for place, token in enumerate(free) if place > ids.shape[1] and token not in free[:place])
    theirs.generation_config.eos_token_id = [1, end]  # stands in generation_config.json alone
    theirs.save_pretrained(tmp_path / "theirs")
    found = odeum.load(imported(tmp_path / "theirs", tmp_path / "run")).predict(
        ["the cat"], temperature=0, max_new_tokens=12
    )
    whole = theirs.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0]
    assert whole[-1] == end and found == [made.decode(whole[ids.shape[1] : -1])]


def test_without_a_tokenizer_tokens_are_numbers(tmp_path: Path, complaint: Any, capsys: Any) -> None:
    """IgLM of iglm 0.1.0 is like that: its first token is none that it has."""
    theirs = causal(33, bos_token_id=50256, eos_token_id=50256)
    theirs.save_pretrained(tmp_path / "theirs")
    run = imported(tmp_path / "theirs", tmp_path / "run")
    ids = torch.tensor([[5, 6, 7]])
    right = theirs.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0, eos_token_id=None)[0]
    capsys.readouterr()
    assert main(["predict", run, "--text", "5 6 7", "--temperature", "0", "--max_new_tokens", "5"]) == 0
    assert capsys.readouterr().out.split() == [str(int(token)) for token in right]
    assert main(["predict", run, "--text", "", "--temperature", "0"]) == 2
    assert "no token that begins a text" in complaint()
    (tmp_path / "numbers.txt").write_text("\n".join("5 6 7 8 9 10 11 12 13 14" for _ in range(40)))
    assert main(["refine", run, str(tmp_path / "numbers.txt")]) == 0


def test_an_imported_classifier_is_exported_with_its_frame(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "##s", "ran"]
    theirs = scrambled(T.BertForSequenceClassification(T.BertConfig(vocab_size=len(words), **SIZES, num_labels=3)))
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.txt").write_text("\n".join(words))
    run = imported(tmp_path / "theirs", tmp_path / "run")
    out = odeum.hf.save(run, tmp_path / "exported")
    read = T.AutoTokenizer.from_pretrained(out)
    batch = read(["The dogs ran", "cat"], padding=True, return_tensors="pt")
    assert batch["input_ids"].tolist() == [[2, 5, 7, 8, 9, 3], [2, 6, 3, 0, 0, 0]]
    model = T.AutoModelForSequenceClassification.from_pretrained(out)
    own = odeum.load(run).predict(["The dogs ran", "cat"], top=1)
    with torch.no_grad():
        right = theirs(**batch).logits
        torch.testing.assert_close(model(**batch).logits, right)
    assert [answer[0][1] for answer in own] == pytest.approx(right.softmax(-1).max(-1).values.tolist(), abs=1e-5)
