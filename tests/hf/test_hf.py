"""Our models under transformers: what they give here is what they give there."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from covering import every_second
from torch import nn

import odeum.models.settings
from odeum import OdeumError, build, hf, load
from odeum.decode import beam_search, generate
from odeum.hf.base import OdeumPreTrainedModel
from odeum.hf.configuration import class_of
from odeum.interop.native import to_native
from odeum.lab.tasks import open_task
from odeum.lab.train.job import Job
from odeum.lab.train.progress import Progress
from odeum.lab.train.run import train, with_changes
from odeum.models.settings import MODEL_KINDS, ModelKind
from odeum.registry.spelling import parse
from odeum.tokens import Bpe, Bytes, Listed

SMALL = {"width": 16, "heads": 2, "depth": 2, "hidden": 24}
FAMILY = [
    *("sequential", "parallel", "parallel:independent=1", "rk4", "macaron", "strang", "ode-transformer", "transevolve"),
    *("transevolve:random-1", "adams-bashforth", "hyper", "mhc:mixing=permutations"),
]


def scrambled(model: Any) -> Any:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def language(architecture: str, **changes: Any) -> Any:
    settings = SMALL | {"vocabulary": 23, "length": 40} | changes
    return scrambled(build(architecture, "language_small", **settings))


def reloaded(model: Any, auto: Any, directory: Path, **options: Any) -> Any:
    model.save_pretrained(directory, **options)
    return auto.from_pretrained(directory)


def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Three prompts, padded on the left."""
    mask = (torch.arange(7) >= torch.tensor([[0], [3], [5]])).long()
    return torch.randint(23, (3, 7)), mask


@pytest.mark.parametrize("architecture", every_second(FAMILY, turn=1))
def test_generate_is_ours(architecture: str, tmp_path: Path) -> None:
    """Greedy, left-padded, from a directory, with growing and static caches; beams are the same without a cache."""
    ours = language(architecture, positions="rotary")
    theirs = reloaded(hf.OdeumForCausalLM.wrap(ours), transformers.AutoModelForCausalLM, tmp_path)
    ids, mask = prompts()
    right = generate(ours, ids, mask, max_new_tokens=6, temperature=0)
    greedy = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(theirs.generate(ids, **greedy), right)
    assert torch.equal(theirs.generate(ids, **greedy, cache_implementation="static"), right)
    assert torch.equal(theirs.generate(ids, **greedy, use_cache=False), right)
    beams = theirs.generate(ids, **greedy, num_beams=3)
    assert torch.equal(theirs.generate(ids, **greedy, num_beams=3, use_cache=False), beams)


def test_an_adaptive_solver_reads_the_prefix_again() -> None:
    ours = language("continuous")
    theirs = hf.OdeumForCausalLM.wrap(ours)
    ids, mask = prompts()
    right = generate(ours, ids, mask, max_new_tokens=3, temperature=0)
    assert not theirs.config.use_cache
    for more in ({}, {"use_cache": True}, {"cache_implementation": "static"}):
        found = theirs.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0, **more)
        assert torch.equal(found, right)
    with pytest.raises(OdeumError, match="no decoding cache"):
        theirs(ids, past_key_values=transformers.DynamicCache())


def test_the_forward_pass_has_what_transformers_users_expect(tmp_path: Path) -> None:
    ours = language("rk4")
    theirs = reloaded(hf.OdeumForCausalLM.wrap(ours), transformers.AutoModelForCausalLM, tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    ids, _ = prompts()
    out = theirs(ids, labels=ids, output_hidden_states=True, use_cache=True)
    expected = ours(ids)
    torch.testing.assert_close(out.logits, expected.logits)
    shifted = ours(ids[:, :-1], labels=ids[:, 1:]).loss
    torch.testing.assert_close(out.loss, shifted)
    assert len(out.hidden_states) == 3 and len(out.past_key_values) == 8  # four evaluations a layer
    torch.testing.assert_close(ours.logits(out.hidden_states[-1]), expected.logits)
    torch.testing.assert_close(theirs(ids, logits_to_keep=1).logits, expected.logits[:, -1:])
    torch.testing.assert_close(theirs(inputs_embeds=theirs.get_input_embeddings()(ids)).logits, expected.logits)
    assert torch.equal(theirs(ids, labels=ids, return_dict=False)[0], out.loss)
    attentions = theirs(ids, output_attentions=True, use_cache=False).attentions
    assert len(attentions) == 8 and attentions[0].shape == (*attentions[0].shape[:2], ids.shape[1], ids.shape[1])
    with pytest.raises(OdeumError, match="pass use_cache=False"):
        theirs(ids, output_attentions=True, use_cache=True)


def test_recomputing_gives_the_same_gradient() -> None:
    model = hf.OdeumForCausalLM.wrap(language("hyper", dropout=0.1)).train()
    ids, _ = prompts()

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        model(ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    plain = gradients()
    model.gradient_checkpointing_enable()
    assert model.odeum.stack.recompute is not None
    for a, b in zip(gradients(), plain, strict=True):
        torch.testing.assert_close(a, b)
    model.gradient_checkpointing_disable()
    assert model.odeum.stack.recompute is None


def test_the_vocabulary_grows(tmp_path: Path) -> None:
    ours = language("parallel")
    model = hf.OdeumForCausalLM.wrap(ours)
    ids, _ = prompts()
    before = ours(ids).logits
    model.resize_token_embeddings(30, mean_resizing=False)
    torch.testing.assert_close(model(ids).logits[..., :23], before)
    again = reloaded(model, transformers.AutoModelForCausalLM, tmp_path)
    assert again(ids).logits.shape[-1] == 30 and again.odeum.settings.vocabulary == 30


def test_a_new_head_is_made_where_the_file_has_none(tmp_path: Path) -> None:
    ours = scrambled(build("sequential", "classification_small", **SMALL, vocabulary=23, length=9, classes=3))
    hf.OdeumForSequenceClassification.wrap(ours).save_pretrained(tmp_path)
    new = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=5, ignore_mismatched_sizes=True
    )
    assert new(torch.randint(23, (2, 9))).logits.shape == (2, 5)
    assert torch.equal(new.odeum.stack.norm.weight, ours.stack.norm.weight)
    assert bool(new.odeum.head.weight.isfinite().all()) and not bool(new.odeum.head.bias.any())


@pytest.mark.parametrize("architecture", ["sequential", "rk4", "transevolve"])
def test_translations_are_ours(architecture: str, tmp_path: Path) -> None:
    ours = scrambled(build(architecture, "translation_small", **SMALL, vocabulary=9, length=20, decoder_depth=1))
    nn.init.normal_(ours.embedding.weight, std=0.1)  # so that the layers decide
    for norm in (m for m in ours.modules() if isinstance(m, nn.LayerNorm)):
        nn.init.ones_(norm.weight)
    ids = torch.randint(3, 9, (6, 7))
    mask = (torch.arange(7) < torch.tensor([[7], [4], [2], [7], [5], [1]])).long()

    def search(beam: int, end: int) -> list[list[int]]:
        return beam_search(ours, ids, mask, beam=beam, length_penalty=0.0, max_length=12, start=1, end=end, pad=0)

    # an untrained model ends by chance: take the token at which most of these do
    end = max(range(2, 9), key=lambda token: sum(len(row) < 12 for row in search(1, token)))
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": end, "decoder_start_token_id": 1}
    model = hf.OdeumForSeq2SeqLM.wrap(ours, **special)
    theirs = reloaded(model, transformers.AutoModelForSeq2SeqLM, tmp_path)
    options = {"attention_mask": mask, "max_new_tokens": 13, "do_sample": False, "suppress_tokens": [0, 1]}
    for beam, more in ((1, {}), (3, {"num_beams": 3, "length_penalty": 0.0, "early_stopping": "never"})):
        found = theirs.generate(ids, **options, **more)
        assert torch.equal(found, theirs.generate(ids, **options, **more, use_cache=False))
        pairs = zip(found[:, 1:].tolist(), search(beam, end), strict=True)
        ended = [(row[: row.index(end)], right) for row, right in pairs if end in row]
        assert ended and all(row == right for row, right in ended)
    ids, mask = ids[:3], mask[:3]
    labels = torch.tensor([[3, 4, 2, -100], [4, 2, -100, -100], [3, 3, 4, 2]])
    shifted = torch.tensor([[1, 3, 4, 2], [1, 4, 2, 0], [1, 3, 3, 4]])
    torch.testing.assert_close(theirs(ids, mask, labels=labels).loss, ours(ids, mask, shifted, labels).loss)


def small_run(
    out: Path, *data: Any, architecture: str = "rk4", seed: int = 0, options: Any = None, **model: Any
) -> Path:
    task = open_task(*data, **(options or {}))
    settings = with_changes(task.model(), {"width": 16, "heads": 2, "depth": 1})
    training = with_changes(task.training(), {"steps": 2, "batch_size": 4})
    job = Job.on(task, settings, parse(architecture), training, seed, out, command="odeum train …")
    train(job, Progress("", quiet=True))
    return out


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "rain.txt"
    path.write_text("\n".join(f"the rain falls on roof number {i % 7} & runs" for i in range(120)))
    return path


def test_a_run_becomes_a_directory_of_transformers(text: Path, tmp_path: Path) -> None:
    """Tokenizer, card and model: the text of a pipeline is the text of `odeum predict`."""
    for seed in (0, 1):
        run = small_run(tmp_path / "runs" / f"seed-{seed}", text, seed=seed, options={"length": 24})
    out = hf.save(run, tmp_path / "out")
    words = "the rain"
    own = load(run).predict([words], max_new_tokens=8, temperature=0)[0]
    pipe = transformers.pipeline("text-generation", model=str(out))
    found = pipe(words, max_new_tokens=8, do_sample=False, return_full_text=False)[0]["generated_text"]
    assert found == own and own.strip()
    card = (out / "README.md").read_text()
    assert "dx/dt = G(N(x)) + F(N(x))" in card and "odeum train …" in card and "| 0 |" in card and "| 1 |" in card
    assert "/" + str(tmp_path).strip("/") not in card
    with pytest.raises(OdeumError, match="holds an Odeum run"):
        hf.save(run, tmp_path / "runs" / "seed-0")


def test_what_is_pushed_has_our_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pushed: dict[str, str] = {}

    def upload(self: Any, working_dir: str, repo: str, *_: Any, **__: Any) -> None:
        pushed.update({p.name: p.read_text() for p in Path(working_dir).iterdir() if p.suffix != ".safetensors"})

    class Api:
        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return type("Made", (), {"repo_id": repo_id})

    class Stub:
        def save(self, path: str) -> None:
            Path(path).write_text("# a template")

    from transformers.utils import hub

    monkeypatch.setattr(hub, "hf_api", Api)
    monkeypatch.setattr(hub.PushToHubMixin, "_upload_modified_files", upload)
    monkeypatch.setattr(hub, "create_and_tag_model_card", lambda *_, **__: Stub())
    model = hf.OdeumForCausalLM.wrap(language("sequential"))
    model.card = "# ours\n"
    model.push_to_hub("somebody/model")
    assert pushed["README.md"] == "# ours\n" and json.loads(pushed["config.json"])["model_type"] == "odeum"


def test_image_classifiers_come_with_their_processor(tmp_path: Path) -> None:
    from PIL import Image

    for name, shade in (("dark", 40), ("light", 200)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(12):
            noise = np.random.default_rng(i).integers(-30, 30, (14, 11, 3))
            Image.fromarray((shade + noise).astype(np.uint8)).save(tmp_path / "data" / name / f"{i}.png")
    run = small_run(tmp_path / "run", tmp_path / "data", architecture="parallel", options={"size": 8})
    out = hf.save(run, tmp_path / "out")
    pipe = transformers.pipeline("image-classification", model=str(out))
    file = tmp_path / "data" / "dark" / "3.png"
    ((first, chance), *_) = load(run).predict([file])[0]
    found = pipe(str(file))[0]
    assert found["label"] == first and found["score"] == pytest.approx(chance, abs=1e-6)


def test_hidden_tokens_are_told_by_a_pipeline(text: Path, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", text, architecture="post-norm", options={"kind": "masked", "tokens": "symbols"})
    out = hf.save(run, tmp_path / "out")
    own = load(run).predict(["the <mask> falls"], top=2)[0][0]
    pipe = transformers.pipeline("fill-mask", model=str(out), top_k=2)
    found = [(answer["token_str"], pytest.approx(answer["score"], abs=1e-6)) for answer in pipe("the <mask> falls")]
    assert [(token, score) for token, score in own] == found
    model = transformers.AutoModelForMaskedLM.from_pretrained(out)
    ids = torch.randint(5, 12, (2, 6))
    labels = torch.where(torch.rand(2, 6) < 0.5, ids, -100)
    torch.testing.assert_close(model(ids, labels=labels).loss, load(run).model(ids, labels=labels).loss)


LINES = ["The rain isn't <br /> falling; on_the roof!", "b  a\n\n c <unk> d\n", "naïve Ünïcode — 日本 \t z", "a"]


@pytest.mark.parametrize("kind", ["words", "characters", "pieces", "symbols", "bytes", "bpe"])
def test_tokenizers_give_the_same_numbers(kind: str, tmp_path: Path) -> None:
    texts = [*LINES[:2], "the cat sat"]
    tokens: Any = Bytes() if kind == "bytes" else None
    if kind == "bpe":
        tokens = Bpe.learn(texts, 300)
    elif tokens is None:
        tokens = Listed.learn(kind, texts, None, first=("<pad>", "<unk>") if kind == "pieces" else ())
    made = hf.make_tokenizer(tokens, "class", 16)
    made.save_pretrained(tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for line in LINES:
        ids = tokens.encode(line)
        assert again(line)["input_ids"] == ids
        if (
            getattr(tokens, "unknown", None) not in ids or kind == "words"
        ):  # elsewhere we show what is unknown otherwise
            assert again.decode(ids, skip_special_tokens=False) == tokens.decode(ids)
    if kind in ("words", "characters", "bpe"):
        prompt = hf.make_tokenizer(tokens, "next token", 16)("the cat")["input_ids"]
        assert prompt == [tokens.start, *tokens.encode("the cat")]


def test_trainer_lowers_the_loss(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="Trainer needs accelerate, which is not installed")
    model = hf.OdeumForCausalLM.wrap(language("parallel"))
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(23, (8, 12))]
    with torch.no_grad():
        batch = torch.stack([row["input_ids"] for row in rows])
        before = model(batch, labels=batch).loss
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=6, learning_rate=1e-2, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", logging_strategy="no", gradient_checkpointing=True,
    )  # fmt: skip
    transformers.Trainer(model=model, args=settings, train_dataset=rows).train()
    assert model(batch, labels=batch).loss < before


@pytest.mark.parametrize("kind", ["Language", "Classification", "MaskedLanguage", "Translation", "Vision"])
def test_batches_of_one_step_add_up(kind: str) -> None:
    """Trainer tells each of the batches that make one step how many labels all of them have."""
    image = {"image_size": 8, "patch_size": 4, "channels": 1, "classes": 3}
    settings = getattr(odeum.models.settings, kind)(
        **SMALL, **(image if kind == "Vision" else {"vocabulary": 23, "length": 40})
    )
    wrapped = class_of(kind)
    special = {"decoder_start_token_id": 1, "pad_token_id": 0} if kind == "Translation" else {}
    model = wrapped.wrap(scrambled(build("parallel", settings)), **special)
    labels = torch.randint(2, (6, 9)) if kind in ("Language", "MaskedLanguage", "Translation") else torch.arange(6) % 2
    labels[0] = -100
    ids = torch.randn(6, 1, 8, 8) if kind == "Vision" else torch.randint(23, (6, 9))
    whole = model(ids, labels=labels).loss
    shift = 5 if kind == "Language" else 0  # its first labels are told by nothing
    count = int((labels != -100).sum()) - shift
    parts = [model(ids[rows], labels=labels[rows], num_items_in_batch=count).loss for rows in ([0, 1, 2, 3], [4, 5])]
    torch.testing.assert_close(torch.stack(parts).sum(), whole)


def test_lora_trains_adapters_alone(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    base = hf.OdeumForCausalLM.wrap(language("rk4", activation="relu"))
    ids, _ = prompts()
    plain = base(ids).logits.detach()
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["qkv", "up"], init_lora_weights=False)
    model = peft.get_peft_model(base, settings).train()
    model(input_ids=ids, labels=ids).loss.backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert trained and all("lora" in name for name in trained) and any("up.lora" in name for name in trained)
    assert not torch.allclose(model.eval()(input_ids=ids).logits, plain)
    assert model.generate(input_ids=ids, max_new_tokens=3, do_sample=False, pad_token_id=0).shape == (3, 10)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    hf.OdeumForCausalLM.wrap(language("sequential")).save_pretrained(tmp_path)
    with pytest.raises(OdeumError, match="OdeumForSeq2SeqLM cannot wrap a Language model; use OdeumForCausalLM"):
        transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)


def test_every_model_is_one_of_transformers() -> None:
    for name in hf.__all__:
        found = getattr(hf, name)
        if name.startswith("OdeumFor"):
            assert issubclass(found, OdeumPreTrainedModel)


def saved_numbers(forward: Any) -> int:
    """How many numbers a forward pass keeps for backward."""
    sizes: dict[int, int] = {}
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.update({t.data_ptr(): t.numel()}) or t, lambda t: t
    )
    with hooks:
        forward().loss.backward()
    return sum(sizes.values())


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_a_pass_with_gradients_makes_no_cache_unless_asked(kind: str, mode: str) -> None:
    """The cache would keep keys and values for backward, whatever `gradient=checkpointed` saves."""
    ids = torch.randint(1, 20, (2, 12))
    if kind == "causal":
        model = hf.OdeumForCausalLM.wrap(language("sequential:gradient=checkpointed"))
        given: dict[str, Any] = {"input_ids": ids, "labels": ids}
    else:
        pair = build("sequential:gradient=checkpointed", "translation_small", **SMALL, vocabulary=23, length=40)
        model = hf.OdeumForSeq2SeqLM.wrap(pair, decoder_start_token_id=1, pad_token_id=0)
        given = {"input_ids": ids, "labels": ids}
    getattr(model, mode)()
    default, asked = (saved_numbers(lambda: model(**given, **more)) for more in ({}, {"use_cache": False}))  # noqa: B023
    assert default == asked
    assert model(**given).past_key_values is None
    assert model(**given, use_cache=True).past_key_values is not None
    with torch.no_grad():
        assert model(**given).past_key_values is not None


@pytest.mark.parametrize("kind", MODEL_KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_of_model_names_its_class(kind: ModelKind) -> None:
    wrapper = class_of(kind.settings.__name__)
    assert wrapper is getattr(hf, wrapper.__name__)
    assert transformers.AutoConfig.for_model("odeum", kind=kind.settings.__name__).model_type == "odeum"
    assert getattr(transformers, wrapper.auto_model)._model_mapping[hf.OdeumConfig] is wrapper


def small_of(kind: ModelKind) -> Any:
    """A small model of the kind, with scrambled weights."""
    sizes = {"vocabulary": 23, "length": 9, "image_size": 8, "patch_size": 4, "channels": 1, "classes": 3}
    known = {field.name for field in dataclasses.fields(kind.settings)}
    return scrambled(build("parallel", kind.settings(**SMALL, **{k: v for k, v in sizes.items() if k in known})))


def inputs_of(model: Any) -> dict[str, torch.Tensor]:
    return {"pixel_values" if k == "images" else k: v for k, v in model.example("cpu", batch=2).items()}


@pytest.mark.parametrize("kind", MODEL_KINDS.values(), ids=lambda kind: kind.name)
def test_auto_model_is_the_model_before_its_head(kind: ModelKind, tmp_path: Path) -> None:
    model = small_of(kind)
    whole = class_of(kind.settings.__name__).wrap(model)
    whole.save_pretrained(tmp_path)
    base, loading = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(base) is hf.OdeumBaseModel and not loading["missing_keys"] and not loading["unexpected_keys"]
    inputs = inputs_of(model)
    assert base.main_input_name in inputs
    out, right = base(**inputs, output_hidden_states=True), whole(**inputs, output_hidden_states=True)
    name = "decoder_hidden_states" if kind.name == "translation" else "hidden_states"
    for mine, theirs in zip(getattr(out, name), getattr(right, name), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(out.last_hidden_state, getattr(right, name)[-1]) and base(**inputs).get(name) is None
    for asked in (whole, base):
        if kind.name == "translation":
            with pytest.raises(OdeumError, match="output_attentions is not available"):
                asked(**inputs, output_attentions=True)
        else:
            cached = {"use_cache": False} if kind.name == "language" else {}
            weights = asked(**inputs, output_attentions=True, **cached).attentions
            assert len(weights) == model.settings.depth
            for each in weights:
                torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))


@pytest.mark.parametrize("form", ["parallel", "sequential"])
def test_attentions_are_those_of_transformers(form: str) -> None:
    """Of the same weights as a GPT-NeoX of theirs, with padding on the left."""
    model = odeum.build(
        form, "language_small", width=32, heads=2, depth=2, vocabulary=50, length=16, positions="rotary"
    )
    config = transformers.GPTNeoXConfig(**to_native(model).config, attn_implementation="eager")
    right = transformers.GPTNeoXForCausalLM(config).eval()
    right.load_state_dict(
        {k.replace("embed_out", "lm_head"): v for k, v in to_native(model).weights.items()}, strict=False
    )
    ids = torch.randint(50, (2, 9))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    asked = {"attention_mask": mask, "use_cache": False, "output_attentions": True}
    where = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        ours = hf.OdeumForCausalLM.wrap(model.eval())(ids, **asked)
        theirs = right(ids, position_ids=where, **asked)
    torch.testing.assert_close(ours.logits[mask.bool()], theirs.logits[mask.bool()], rtol=1e-4, atol=1e-4)
    for mine, other in zip(ours.attentions, theirs.attentions, strict=True):
        keep = mask.bool()[:, None].expand(mine.shape[:3])
        torch.testing.assert_close(mine[keep], other[keep], rtol=1e-4, atol=1e-5)


def test_attentions_that_are_no_softmax_are_refused() -> None:
    model = hf.OdeumForCausalLM.wrap(language("transevolve"))
    with pytest.raises(OdeumError, match="attention other than softmax"):
        model(prompts()[0], output_attentions=True, use_cache=False)
    with pytest.raises(OdeumError, match="output_attentions is not available"):
        hf.OdeumForCausalLM.wrap(language("moda"))(prompts()[0], output_attentions=True, use_cache=False)


@pytest.mark.parametrize("kind", [MODEL_KINDS["language"], MODEL_KINDS["vision"]], ids=lambda kind: kind.name)
def test_a_saved_model_loads_where_odeum_was_not_imported(kind: ModelKind, tmp_path: Path) -> None:
    model = small_of(kind)
    whole = class_of(kind.settings.__name__).wrap(model)
    whole.save_pretrained(tmp_path / "saved")
    hf.OdeumImageProcessor(8, [0.5], [0.5]).save_pretrained(tmp_path / "saved")
    inputs = inputs_of(model)
    torch.save(inputs, tmp_path / "inputs.pt")
    code = f"""
import sys, torch, transformers
assert "odeum" not in sys.modules
trusted = {{"trust_remote_code": True}}
model = transformers.{whole.auto_model}.from_pretrained("saved", **trusted)
model.save_pretrained("again")
model = transformers.{whole.auto_model}.from_pretrained("again", **trusted)
torch.save(model(**torch.load("inputs.pt")).logits, "logits.pt")
assert type(transformers.AutoModel.from_pretrained("again", **trusted)).__name__ == "OdeumBaseModel"
assert type(transformers.AutoImageProcessor.from_pretrained("saved", **trusted)).__name__ == "OdeumImageProcessor"
"""
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(odeum.__file__).parent.parent),
    }
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "logits.pt"), whole(**inputs).logits)
