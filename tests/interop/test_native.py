"""Native exports: other libraries load them without Odeum and compute the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import untrained
from test_pretrained import BOTH_SIDES, CAUSAL, IMAGES, scrambled

import odeum
from odeum.errors import OdeumError
from odeum.interop import load
from odeum.interop.ctranslate2 import write_ctranslate2
from odeum.interop.gguf import write_gguf
from odeum.interop.native import largest_difference, to_native, write_native
from odeum.lab.cli import main
from odeum.models.saved import load_model, save_model
from odeum.models.settings import Classification, Language, Translation, Vision

TEXT = {"width": 32, "heads": 4, "depth": 4, "length": 16, "vocabulary": 50}
IMAGE = {"width": 32, "heads": 4, "depth": 2, "image_size": 16, "patch_size": 4, "classes": 7}
EQUALS: list[tuple[str, Any, str]] = [
    ("parallel", Language(**TEXT, positions="rotary"), "GPTNeoXForCausalLM"),
    (
        "parallel:independent=2",
        Language(**TEXT, positions="rotary", activation="relu", bias=False),
        "GPTNeoXForCausalLM",
    ),
    ("parallel:norm=shared", Language(**TEXT, positions="rotary"), "PhiForCausalLM"),
    ("sequential", Language(**TEXT, positions="rotary"), "GPTNeoXForCausalLM"),
    ("sequential", Language(**TEXT, positions="rotary", activation="swiglu", norm_kind="rms"), "LlamaForCausalLM"),
    (
        "sequential:independent=1",
        Language(**TEXT, positions="rotary", activation="swiglu", norm_kind="rms", bias=False),
        "LlamaForCausalLM",
    ),
    ("sequential", Language(**TEXT, positions="learned", bias=False), "GPT2LMHeadModel"),
    ("sequential:gradient=checkpointed", Language(**TEXT, positions="sinusoidal"), "GPT2LMHeadModel"),
    ("sequential", Vision(**IMAGE), "ViTForImageClassification"),
    ("sequential:sharing=cycle,independent=1", Vision(**IMAGE, activation="relu"), "ViTForImageClassification"),
    ("sequential", Vision(**IMAGE, pooling="mean", channels=1), "SiglipForImageClassification"),
    ("sequential", Classification(**TEXT, pooling="token", classes=3), "MegatronBertForSequenceClassification"),
    ("sequential", Translation(**TEXT, norm_eps=1e-5), "PegasusForConditionalGeneration"),
    (
        "sequential",
        Translation(**TEXT, positions="learned", decoder_depth=2, norm_eps=1e-5),
        "PegasusForConditionalGeneration",
    ),
]


def perturbed(architecture: str, settings: Any) -> Any:
    """A model whose every weight matters: none is zero or one."""
    torch.manual_seed(3)
    model: Any = odeum.build(architecture, settings).eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(("architecture", "settings", "name"), EQUALS)
def test_logits_are_equal(architecture: str, settings: Any, name: str, tmp_path: Path) -> None:
    model = perturbed(architecture, settings)
    written, native = write_native(model, tmp_path)
    assert native.name == name == type(written).__name__
    assert largest_difference(model, written, native) < 1e-5
    shared = "independent" in architecture
    assert bool(native.copies) == shared


def test_a_class_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    model = perturbed("parallel", Language(**TEXT, positions="rotary"))
    written, native = write_native(model, tmp_path)
    written.lm_head.weight.data.mul_(1.5)
    with pytest.raises(OdeumError, match="gives other logits than the model"):
        largest_difference(model, written, native)


def test_another_epsilon_is_said(tmp_path: Path) -> None:
    model = perturbed("sequential", Translation(**TEXT))
    written, native = write_native(model, tmp_path)
    assert native.notes == ("Pegasus norms with epsilon 1e-5, this model with 1e-06",)
    assert largest_difference(model, written, native) < 1e-3


def test_padding_is_hidden_alike(tmp_path: Path) -> None:
    model = perturbed("sequential", Translation(**TEXT, norm_eps=1e-5))
    written, _ = write_native(model, tmp_path)
    source, target = torch.randint(3, 50, (2, 9)), torch.randint(3, 50, (2, 7))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, 6:] = 0
    theirs = written(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    assert (model(source, mask, target).logits - theirs).abs().max() < 1e-5


NO_EQUALS: list[tuple[str, Any, str]] = [
    *(
        (name, Language(**TEXT, positions="rotary"), "no equivalent")
        for name in ("rk4", "hyper", "macaron", "transevolve")
    ),
    ("sequential:steps=2", Language(**TEXT, positions="rotary"), "no equivalent"),
    ("sequential:interval=0.5", Language(**TEXT, positions="rotary"), "no equivalent"),
    ("parallel", Language(**TEXT), "--model.positions rotary"),
    ("parallel", Language(**TEXT, positions="rotary", norm_kind="rms"), "norm_kind=rms"),
    (
        "sequential",
        Language(**TEXT, embedding="adaptive", cutoffs=(20,)),
        "no adaptive softmax .*embedding tied",
    ),
    ("parallel", Vision(**IMAGE), "no image class of transformers has parallel layers"),
    ("sequential", Vision(**IMAGE, stem="convolution"), "--model.stem patch"),
    ("sequential", Classification(**TEXT), "--model.pooling token"),
    ("sequential", Translation(**TEXT, decoder="parallel"), "the decoder 'parallel'"),
    ("sequential", Translation(**TEXT, positions="rotary"), "--model.positions sinusoidal or learned"),
]


@pytest.mark.parametrize(("architecture", "settings", "message"), NO_EQUALS)
def test_what_has_no_equal_is_refused_with_a_way_out(architecture: str, settings: Any, message: str) -> None:
    with pytest.raises(OdeumError, match=message) as raised:
        to_native(perturbed(architecture, settings))
    assert "--to onnx" in str(raised.value)


RETURNS = {
    "gpt2": "GPT2LMHeadModel",
    "gpt2-relu-untied": "GPT2LMHeadModel",
    "neox": "GPTNeoXForCausalLM",
    "neox-sequential": "GPTNeoXForCausalLM",
    "gptj": "PhiForCausalLM",
    "llama-biases": "LlamaForCausalLM",
    "llama-3.1": "LlamaForCausalLM",
    "llama-linear": "LlamaForCausalLM",
    "qwen2": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "LlamaForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "LlamaForCausalLM",
    "opt": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "bert-untied": "BertForMaskedLM",
    "bert-classes": "BertForSequenceClassification",
    "roberta": "BertForMaskedLM",
    "distilbert": "BertForMaskedLM",
    "vit": "ViTForImageClassification",
    "dinov2": "ViTForImageClassification",
}


@pytest.mark.parametrize("name", RETURNS)
def test_an_imported_model_is_exported_again(name: str, tmp_path: Path) -> None:
    """Import, save, load, export: the logits are those of the source, and of what is loaded again."""
    theirs = scrambled((CAUSAL | BOTH_SIDES | IMAGES)[name])
    (tmp_path / "run").mkdir()
    save_model(tmp_path / "run", load(theirs))
    model: Any = load_model(tmp_path / "run")
    written, native = write_native(model, tmp_path / "exported")
    assert native.name == RETURNS[name]
    assert largest_difference(model, written, native) < 1e-5 * max(1.0, model(**inputs_of(model)).logits.abs().max())
    if name != "dinov2":  # its head is new
        found = written(**inputs_of(written, model)).logits
        assert (found - theirs(**inputs_of(theirs, model)).logits).abs().max() < 1e-4 * max(1.0, found.abs().max())


def inputs_of(reader: Any, model: Any | None = None) -> dict[str, torch.Tensor]:
    """The same random input, under the name that the reader takes."""
    example = (model or reader).example("cpu", batch=2)
    torch.manual_seed(5)
    if "images" in example:
        return {"images" if model is None else "pixel_values": torch.randn(example["images"].shape)}
    return {"input_ids": torch.randint(5, 29, (2, 9))}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("olmo", "norm_kind=layer and activation=swiglu"),
        ("olmo2", "norm=branch' has no equivalent"),
        ("phi3-partial", "no partial rotary positions"),
        ("opt-gelu", None),
        ("distilbert-classes", "no pooler with relu"),
        ("albert", "no projection of the embedding"),
        ("clip", "no norm after the pooling"),
        ("deit", "no second class token"),
        ("dinov2-gated", "--model.activation gelu or relu"),
    ],
)
def test_an_imported_model_without_an_equal_names_the_part(name: str, message: str | None) -> None:
    model = load(scrambled((CAUSAL | BOTH_SIDES | IMAGES)[name]))
    if message is None:
        assert to_native(model).name == "GPT2LMHeadModel"
        return
    with pytest.raises(OdeumError, match=message) as raised:
        to_native(model)
    assert "--to onnx" in str(raised.value)


def test_engines_take_imported_models_through_transformers(tmp_path: Path) -> None:
    model = load(scrambled(CAUSAL["gpt2"]))
    with pytest.raises(OdeumError, match=r"use --to transformers and then its convert_hf_to_gguf\.py"):
        write_gguf(model, tmp_path / "model.gguf", "x", None)
    with pytest.raises(OdeumError, match="use --to transformers and then ct2-transformers-converter"):
        write_ctranslate2(model, tmp_path, [], unknown="", start="", end="")


LINES = ["the cat sat on the mat", "a dog ran over the hill", "the hill is high and green", "a cat ran on"] * 12


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    (folder / "rows.csv").write_text(
        "text,label\n" + "".join(f"{line},{'abc'[i % 3]}\n" for i, line in enumerate(LINES))
    )
    (folder / "lines.en").write_text("\n".join(LINES) + "\n")
    (folder / "lines.de").write_text("\n".join(line[::-1] for line in LINES) + "\n")
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)
    np.savez(folder / "set.npz", images=images, labels=np.arange(30) % 2)
    untrained(folder / "language", "parallel", str(folder / "lines.txt"), kind="language", length=64, changes={})
    token = {"pooling": "token"}
    untrained(folder / "texts", "sequential", str(folder / "rows.csv"), changes=token)
    untrained(
        folder / "images", "sequential", str(folder / "set.npz"), changes={**token, "stem": "patch", "patch_size": 4}
    )
    pair = (str(folder / "lines.en"), str(folder / "lines.de"))
    untrained(folder / "translation", "sequential", *pair, changes={})
    return folder


WITHOUT_ODEUM = """
import json, sys
sys.modules["odeum"] = None  # an import would fail
import torch, transformers
folder, kind, auto, argument = sys.argv[1:]
model = getattr(transformers, auto).from_pretrained(folder).eval()
if kind == "images":
    pixels = torch.tensor(json.loads(argument))
    out = {"logits": model(pixel_values=pixels).logits.tolist()}
else:
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokens(argument, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    if kind == "texts":
        out = {"logits": model(**inputs).logits.tolist(), "labels": model.config.id2label}
    else:
        found = model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
        out = {"ids": found[0].tolist(), "text": tokens.decode(found[0], skip_special_tokens=True)}
print(json.dumps(out))
"""


def elsewhere(folder: Path, kind: str, auto: str, argument: str) -> dict[str, Any]:
    command = [sys.executable, "-c", WITHOUT_ODEUM, str(folder), kind, auto, argument]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def export(runs: Path, kind: str, to: str = "transformers") -> Path:
    out = runs / f"{kind}-{to}"
    if not out.exists():
        assert main(["export", str(runs / kind), str(out), "--to", to]) == 0
    return out


@pytest.mark.timeout(300)
def test_transformers_loads_runs_without_odeum(runs: Path) -> None:
    run = odeum.load(runs / "language")
    theirs = elsewhere(export(runs, "language"), "language", "AutoModelForCausalLM", "the cat")
    assert theirs["text"].strip() == ("the cat" + run.generate("the cat", max_new_tokens=8, temperature=0)[0]).strip()

    run = odeum.load(runs / "texts")
    theirs = elsewhere(export(runs, "texts"), "texts", "AutoModelForSequenceClassification", LINES[0])
    model: Any = run.model
    ids = torch.tensor([run.task.tokens.encode(LINES[0])])  # ty: ignore[unresolved-attribute]
    assert torch.allclose(torch.tensor(theirs["logits"]), model(ids).logits, atol=1e-5)
    assert list(theirs["labels"].values()) == ["a", "b", "c"]

    run = odeum.load(runs / "images")
    pixels = torch.randn(2, 1, 8, 8)
    argument = json.dumps(pixels.tolist())
    theirs = elsewhere(export(runs, "images"), "images", "AutoModelForImageClassification", argument)
    model = run.model
    assert torch.allclose(torch.tensor(theirs["logits"]), model(pixels).logits, atol=1e-5)

    run = odeum.load(runs / "translation")
    exported = export(runs, "translation")
    theirs = elsewhere(exported, "translation", "AutoModelForSeq2SeqLM", LINES[0])
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert tokenizer.decode(tokenizer(f" {LINES[0]}").input_ids, skip_special_tokens=True) == LINES[0]
    assert theirs["text"].strip() == run.translate(LINES[0], beam=1)[0].strip()[: len(theirs["text"].strip())]


def test_ctranslate2_generates_the_same(runs: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    transformers = pytest.importorskip("transformers")
    for kind in ("language", "translation"):
        folder = export(runs, kind, "ctranslate2")
        run = odeum.load(runs / kind)
        tokens = transformers.AutoTokenizer.from_pretrained(folder / "tokenizer")
        words = tokens.convert_ids_to_tokens(tokens("the cat sat")["input_ids"])
        if kind == "language":
            engine = ctranslate2.Generator(str(folder))
            found = engine.generate_batch([words], max_length=8, sampling_topk=1, include_prompt_in_result=False)[0]
            ours = run.generate("the cat sat", max_new_tokens=8, temperature=0)[0]
            ids = found.sequences_ids[0]
        else:
            engine = ctranslate2.Translator(str(folder))
            found = engine.translate_batch([words[:-1]], beam_size=1, max_decoding_length=8)[0]
            ours = run.translate("the cat sat", beam=1)[0]
            ids = tokens.convert_tokens_to_ids(found.hypotheses[0])
        text = tokens.decode(ids).strip()
        assert text and ours.strip().startswith(text)


def test_predict_by_ctranslate2_says_the_same(runs: Path, complaint: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2", reason="the engine is not installed: pip install odeum[ctranslate2]")
    language = ["predict", str(runs / "language"), "--text", "the cat", "--text", "", "--temperature", "0"]
    translation = ["predict", str(runs / "translation"), "--text", LINES[0], "--text", "a dog ran"]
    for words in (
        [*language, "--max_new_tokens", "40", "--format", "json"],
        [*language, "--max_new_tokens", "40", "--stop", "t"],
        [*translation, "--beam", "1"],
    ):
        answers = []
        for engine in ([], ["--engine", "ctranslate2"]):
            assert main([*words, *engine]) == 0
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1] != ""
    assert main([*translation, "--beam", "3", "--length_penalty", "0", "--engine", "ctranslate2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    drawn = ["predict", str(runs / "language"), "--text", "the", "--max_new_tokens", "20", "--engine", "ctranslate2"]
    answers = set()
    for seed in ("0", "0", "1"):
        assert main([*drawn, "--seed", seed]) == 0
        answers.add(capsys.readouterr().out)
    assert len(answers) == 2
    for words, message in (
        (["--max_new_tokens", "64"], "give --max_new_tokens 52 or less"),
        (["--steps", "2"], "leave out --steps"),
    ):
        assert main([*language[:4], *words, "--engine", "ctranslate2"]) == 2
        assert message in complaint()
    assert main([*translation, "--engine", "ctranslate2"]) == 2
    assert "give --length_penalty 0 or --beam 1" in complaint()
    assert main(["predict", str(runs / "texts"), "--text", "a", "--engine", "ctranslate2"]) == 2
    assert "this is a classification run" in complaint()
    assert main(["predict", str(runs / "texts"), "--text", "a", "--engine", "fast"]) == 2
    assert "ctranslate2" in complaint()


def test_an_engine_that_is_not_installed(runs: Path, complaint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ctranslate2", "gguf"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["predict", str(runs / "language"), "--text", "a", "--engine", "ctranslate2"]) == 2
    assert "pip install odeum[ctranslate2]" in complaint()
    assert main(["export", str(runs / "language"), str(runs / "nothing"), "--to", "gguf"]) == 2
    assert "pip install odeum[gguf]" in complaint() and not (runs / "nothing").exists()


def test_the_command_says_what_it_wrote(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = runs / "told"
    assert main(["export", str(runs / "language"), str(out), "--to", "transformers"]) == 0
    assert "GPTNeoXForCausalLM of transformers; logits differ from the model's by at most" in capsys.readouterr().out
    assert json.loads((out / "export.json").read_text())["difference"] < 1e-4
    assert main(["export", str(runs / "language"), str(runs / "no"), "--to", "transformers", "--steps", "2"]) == 2
    assert "use --solver and --steps with --to onnx or torch" in capsys.readouterr().err
