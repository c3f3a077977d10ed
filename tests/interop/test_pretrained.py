"""With pretrained weights, ours gives the logits of the library that they come from."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as T
from timm_import import timm_or_skip
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn

import odeum
from odeum import OdeumError
from odeum.decode.beam import greedy as greedy_translation
from odeum.fields.cache import Cache
from odeum.hf.configuration import class_of
from odeum.inspection import inspect
from odeum.interop import load, read_pretrained
from odeum.lab.cli import main
from odeum.models.saved import load_model, save_model
from odeum.registry.spelling import spell

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

TEXT = {"vocab_size": 29, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
GPT = {"vocab_size": 29, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32}
IMAGE = {k: v for k, v in TEXT.items() if k != "vocab_size"} | {"image_size": 12, "patch_size": 4, "num_labels": 5}
DINO = {k: v for k, v in IMAGE.items() if k not in ("intermediate_size", "num_labels")} | {"mlp_ratio": 2}
ROPE = {"rope_type": "default", "rope_theta": 500.0}

LLAMA3 = {
    **ROPE,
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
DISTIL = {"vocab_size": 29, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 20, "max_position_embeddings": 16}
OPT: dict[str, Any] = {"vocab_size": 29, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
OPT |= {"ffn_dim": 20, "word_embed_proj_dim": 24, "max_position_embeddings": 32}

CAUSAL: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**GPT)),
    "gpt2-relu-untied": lambda: T.GPT2LMHeadModel(
        T.GPT2Config(**GPT, activation_function="relu", tie_word_embeddings=False, n_inner=17)
    ),
    "gpt2-scaled": lambda: T.GPT2LMHeadModel(
        T.GPT2Config(**GPT, scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False, layer_norm_epsilon=1e-3)
    ),
    "neox": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**TEXT)),
    "neox-sequential": lambda: T.GPTNeoXForCausalLM(
        T.GPTNeoXConfig(
            **TEXT,
            use_parallel_residual=False,
            attention_bias=False,
            tie_word_embeddings=True,
            hidden_act="gelu_new",
            rope_parameters={**ROPE, "partial_rotary_factor": 0.5},
        )
    ),
    "gptj": lambda: T.GPTJForCausalLM(T.GPTJConfig(**GPT, rotary_dim=4)),
    "gptj-whole": lambda: T.GPTJForCausalLM(T.GPTJConfig(**(GPT | {"n_head": 2}), rotary_dim=12)),
    "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(**TEXT, num_key_value_heads=1)),
    "llama-biases": lambda: T.LlamaForCausalLM(
        T.LlamaConfig(
            **(TEXT | {"num_attention_heads": 4}),
            num_key_value_heads=2,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            rope_parameters=ROPE,
            rms_norm_eps=1e-3,
            hidden_act="gelu",
        )
    ),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**TEXT, num_key_value_heads=3, sliding_window=None)),
    "qwen2": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**TEXT, num_key_value_heads=1)),
    "llama-3.1": lambda: T.LlamaForCausalLM(T.LlamaConfig(**TEXT, rope_parameters=LLAMA3)),
    "llama-linear": lambda: T.LlamaForCausalLM(
        T.LlamaConfig(**TEXT, rope_parameters={**ROPE, "rope_type": "linear", "factor": 2.5})
    ),
    "gemma": lambda: T.GemmaForCausalLM(T.GemmaConfig(**TEXT, num_key_value_heads=1, head_dim=10)),
    "olmo": lambda: T.OlmoForCausalLM(T.OlmoConfig(**TEXT, num_key_value_heads=1, pad_token_id=None)),
    "phi": lambda: T.PhiForCausalLM(T.PhiConfig(**TEXT)),
    "phi3": lambda: T.Phi3ForCausalLM(T.Phi3Config(**TEXT, num_key_value_heads=1, pad_token_id=None)),
    "phi3-partial": lambda: T.Phi3ForCausalLM(
        T.Phi3Config(
            **(TEXT | {"num_attention_heads": 2}),
            pad_token_id=None,
            tie_word_embeddings=True,
            rope_parameters={**ROPE, "partial_rotary_factor": 0.5},
        )
    ),
    "olmo2": lambda: T.Olmo2ForCausalLM(T.Olmo2Config(**TEXT, num_key_value_heads=1, pad_token_id=None)),
    "olmo2-biases": lambda: T.Olmo2ForCausalLM(
        T.Olmo2Config(**TEXT, attention_bias=True, pad_token_id=None, rms_norm_eps=1e-3, tie_word_embeddings=True)
    ),
    "opt": lambda: T.OPTForCausalLM(T.OPTConfig(**OPT)),
    "opt-gelu": lambda: T.OPTForCausalLM(T.OPTConfig(**OPT, activation_function="gelu", enable_bias=False)),
    "qwen3": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**TEXT, num_key_value_heads=1, head_dim=10)),
}
BOTH_SIDES: dict[str, Callable[[], Any]] = {
    "bert": lambda: T.BertForMaskedLM(T.BertConfig(**TEXT)),
    "bert-untied": lambda: T.BertForMaskedLM(
        T.BertConfig(**TEXT, tie_word_embeddings=False, hidden_act="gelu_new", layer_norm_eps=1e-3)
    ),
    "bert-classes": lambda: T.BertForSequenceClassification(T.BertConfig(**TEXT, num_labels=4, hidden_act="relu")),
    "roberta": lambda: T.RobertaForMaskedLM(T.RobertaConfig(**TEXT, max_position_embeddings=20)),
    "roberta-padding": lambda: T.RobertaForMaskedLM(T.RobertaConfig(**TEXT, pad_token_id=4, type_vocab_size=1)),
    "roberta-classes": lambda: T.RobertaForSequenceClassification(T.RobertaConfig(**TEXT, num_labels=4)),
    "distilbert": lambda: T.DistilBertForMaskedLM(T.DistilBertConfig(**DISTIL)),
    "distilbert-sines": lambda: T.DistilBertForMaskedLM(
        T.DistilBertConfig(**DISTIL, sinusoidal_pos_embds=True, activation="relu")
    ),
    "distilbert-classes": lambda: T.DistilBertForSequenceClassification(T.DistilBertConfig(**DISTIL, num_labels=4)),
    "albert": lambda: T.AlbertForMaskedLM(T.AlbertConfig(**TEXT, embedding_size=7)),
    "albert-groups": lambda: T.AlbertForMaskedLM(
        T.AlbertConfig(**(TEXT | {"num_hidden_layers": 4}), embedding_size=24, num_hidden_groups=2)
    ),
    "albert-classes": lambda: T.AlbertForSequenceClassification(T.AlbertConfig(**TEXT, embedding_size=7)),
}
IMAGES: dict[str, Callable[[], Any]] = {
    "vit": lambda: T.ViTForImageClassification(T.ViTConfig(**IMAGE)),
    "vit-plain": lambda: T.ViTForImageClassification(
        T.ViTConfig(**IMAGE, qkv_bias=False, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-3, num_channels=1)
    ),
    "dinov2": lambda: T.Dinov2Model(T.Dinov2Config(**DINO)),
    "dinov2-gated": lambda: T.Dinov2Model(T.Dinov2Config(**DINO, use_swiglu_ffn=True, qkv_bias=False)),
    "dinov2-registers": lambda: T.Dinov2WithRegistersModel(
        T.Dinov2WithRegistersConfig(**DINO, num_register_tokens=3, layer_norm_eps=1e-3)
    ),
    "clip": lambda: T.CLIPVisionModelWithProjection(T.CLIPVisionConfig(**IMAGE, projection_dim=7)),
    "clip-headless": lambda: T.CLIPVisionModel(T.CLIPVisionConfig(**IMAGE, hidden_act="gelu")),
    "deit": lambda: T.DeiTForImageClassification(T.DeiTConfig(**IMAGE)),
}


def scrambled(make: Callable[[], Any]) -> Any:
    """So that biases and norms are not zeros and ones."""
    torch.manual_seed(3)
    model = make().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def same(found: Tensor, right: Tensor, keep: Tensor | None = None) -> None:
    if keep is not None:
        found, right = found[keep], right[keep]
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


def saved(theirs: Any, folder: Path) -> Path:
    theirs.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_models(name: str, tmp_path: Path) -> None:
    """From a directory and in memory; right- and left-padded; and token by token with a cache."""
    theirs = scrambled(CAUSAL[name])
    ids = torch.randint(29, (3, 9))
    with torch.no_grad():
        for ours in (load(theirs), load(saved(theirs, tmp_path / "theirs"))):
            same(ours(ids).logits, theirs(ids).logits)
        for keep in (torch.arange(9) < torch.tensor([[9], [5], [2]]), torch.arange(9) >= torch.tensor([[0], [4], [7]])):
            where = (keep.long().cumsum(1) - 1).clamp(min=0)
            right = theirs(ids, attention_mask=keep.long(), position_ids=where).logits
            same(ours(ids, keep.long()).logits, right, keep)
        cache = Cache()
        steps = [
            ours(ids[:, :4], cache=cache).logits,
            *(ours(ids[:, i : i + 1], cache=cache).logits for i in range(4, 9)),
        ]
        same(torch.cat(steps, dim=1), theirs(ids).logits)
        save_model(tmp_path, ours)
        assert torch.equal(load_model(tmp_path)(ids).logits, ours(ids).logits)


def embedded(theirs: Any, ids: Tensor, types: Tensor | None) -> Tensor:
    """What the first layer of transformers takes."""
    x = theirs.embeddings(ids) if types is None else theirs.embeddings(ids, types)
    return theirs.encoder.embedding_hidden_mapping_in(x) if theirs.config.model_type == "albert" else x


@pytest.mark.parametrize("name", BOTH_SIDES)
def test_models_that_read_from_both_sides(name: str, tmp_path: Path) -> None:
    theirs = scrambled(BOTH_SIDES[name])
    ours = load(saved(theirs, tmp_path / "theirs"))
    ids = torch.randint(29, (3, 9))
    number = getattr(theirs.config, "type_vocab_size", None)  # DistilBERT has no types
    types = None if number is None else torch.randint(number, (3, 9))
    typed = {} if types is None else {"token_type_ids": types}
    pooled = "classes" in name
    with torch.no_grad():
        same(ours(ids).logits, theirs(ids).logits)
        # to the bit: what is rounded otherwise here is made larger by a layer that acts at every depth
        assert torch.equal(ours.embed(ids, token_type_ids=types)[0], embedded(theirs.base_model, ids, types))
        for keep in (torch.arange(9) < torch.tensor([[9], [5], [2]]), torch.arange(9) >= torch.tensor([[0], [4], [7]])):
            right = theirs(ids, attention_mask=keep.long(), **typed).logits
            rows = keep[:, 0] if pooled else keep
            same(ours(ids, keep.long(), **typed).logits, right, rows)
    assert spell(ours.architecture).startswith("post-norm")
    if name.startswith("albert"):  # one layer, integrated over the depth
        assert len(ours.stack.flows) == theirs.config.num_hidden_groups
    save_model(tmp_path, ours)
    assert torch.equal(load_model(tmp_path)(ids).logits, ours(ids).logits)


@pytest.mark.parametrize("name", IMAGES)
def test_image_models(name: str, tmp_path: Path) -> None:
    theirs = scrambled(IMAGES[name])
    images = torch.randn(2, theirs.config.num_channels, 12, 12)
    with torch.no_grad():
        for source in (theirs, saved(theirs, tmp_path)):
            ours, right = load(source), theirs(images)
            if (logits := getattr(right, "logits", getattr(right, "image_embeds", None))) is not None:
                same(ours(images).logits, logits)
            else:  # the head is new, so what it reads is compared
                same(ours.pooled(images), right.pooler_output)
            (tmp_path / "ours").mkdir(exist_ok=True)
            save_model(tmp_path / "ours", ours)
            assert torch.equal(load_model(tmp_path / "ours")(images).logits, ours(images).logits)


@pytest.mark.parametrize("name", [*CAUSAL, *BOTH_SIDES, *IMAGES])
def test_every_family_can_be_inspected(name: str) -> None:
    """The lens after the last layer is the model's own answer."""
    theirs = scrambled((CAUSAL | BOTH_SIDES | IMAGES)[name])
    ours = load(theirs).eval()
    batch = torch.randn(2, theirs.config.num_channels, 12, 12) if name in IMAGES else torch.randint(29, (2, 9))
    result = inspect(ours, batch)
    assert result.lens is not None and result.answer is not None
    assert (result.lens[-1] == result.answer).all() and result.layers[-1].agreement == 1.0
    assert (result.answer == ours(batch).logits.argmax(-1).numpy()).all()
    assert all(math.isfinite(layer.displacement) for layer in result.layers)


MARIAN: dict[str, Any] = {
    "vocab_size": 29,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 32,
    "pad_token_id": 28,
    "decoder_start_token_id": 28,
    "eos_token_id": 0,
    "forced_eos_token_id": None,
}


def marian(**changes: Any) -> Any:
    """With weights that hide nothing; its positions are constants."""
    torch.manual_seed(3)
    theirs = T.MarianMTModel(T.MarianConfig(**MARIAN | changes)).eval()
    for parameter in theirs.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.3)
    theirs.final_logits_bias.normal_()
    return theirs


@pytest.mark.parametrize(
    "changes", [{}, {"scale_embedding": True, "activation_function": "swish", "decoder_layers": 3}]
)
def test_marian(changes: dict[str, Any], tmp_path: Path) -> None:
    """Logits with padding, decoding with caches, `generate`, and the loss with its bias."""
    theirs = marian(**changes)
    source, target = torch.randint(1, 28, (3, 9)), torch.randint(1, 28, (3, 7))
    keep = (torch.arange(9) < torch.tensor([[9], [5], [2]])).long()
    source = source.masked_fill(keep == 0, 28)
    with torch.no_grad():
        for ours in (load(theirs), load(saved(theirs, tmp_path / "theirs"))):
            right = theirs(input_ids=source, attention_mask=keep, decoder_input_ids=target).logits
            same(ours(source, keep, target).logits, right)
        ends = {"start": 28, "end": 0, "pad": 28}
        found = greedy_translation(ours, source, keep, max_length=12, **ends)
        theirs.generation_config.suppress_tokens = [28]
        made = theirs.generate(
            input_ids=source, attention_mask=keep, max_new_tokens=12, do_sample=False, num_beams=1
        ).tolist()
        cut = [row[1 : row.index(0)] if 0 in row else row[1:] for row in made]
        assert found == [row[:12] for row in cut] and any(found)
        wrapped = class_of("Translation").wrap(ours, pad_token_id=28, decoder_start_token_id=28, eos_token_id=0)
        own = wrapped.generate(
            input_ids=source, attention_mask=keep, max_new_tokens=12, do_sample=False, num_beams=1, suppress_tokens=[28]
        )
        assert own.tolist() == made
        labels = torch.randint(1, 28, (3, 7))
        loss = nn.functional.cross_entropy(right.flatten(0, 1), labels.flatten())
        same(ours(source, keep, target, labels=labels).loss, loss)
        (tmp_path / "ours").mkdir()
        save_model(tmp_path / "ours", ours)
        assert torch.equal(
            load_model(tmp_path / "ours")(source, keep, target).logits, ours(source, keep, target).logits
        )
        wrapped.resize_token_embeddings(33, mean_resizing=False)
        bigger = wrapped(input_ids=source, attention_mask=keep, decoder_input_ids=target).logits
        same(bigger[..., :29], right)
    assert main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run")]) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}, "different embeddings"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads=2"),
        ({"decoder_ffn_dim": 12}, "decoder_ffn_dim=12"),
    ],
)
def test_other_marians_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OdeumError, match=message):
        load(marian(**changes))


def test_every_form_of_a_file(tmp_path: Path) -> None:
    theirs = scrambled(CAUSAL["llama"])
    ids = torch.randint(29, (1, 7))
    right = theirs(ids).logits
    theirs.save_pretrained(tmp_path / "parts", max_shard_size="5KB")
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1
    same(load(tmp_path / "parts")(ids).logits, right)
    theirs.save_pretrained(tmp_path / "whole")
    same(load(tmp_path / "whole" / "model.safetensors")(ids).logits, right)
    (tmp_path / "bin").mkdir()
    torch.save(theirs.state_dict(), tmp_path / "bin" / "pytorch_model.bin")
    (tmp_path / "bin" / "config.json").write_text(theirs.config.to_json_string())
    same(load(tmp_path / "bin")(ids).logits, right)
    half = load(theirs.to(torch.bfloat16))
    assert next(half.parameters()).dtype == torch.float32


def test_the_family_is_told_by_the_weights(tmp_path: Path) -> None:
    for name, make in {**CAUSAL, **BOTH_SIDES, **IMAGES}.items():
        theirs = make()
        theirs.save_pretrained(tmp_path / name)
        (tmp_path / name / "config.json").unlink()
        try:
            family = read_pretrained(tmp_path / name).family
        except OdeumError as error:  # without a configuration the heads are a guess
            assert "heads" in str(error)
            continue
        assert family in (theirs.config.model_type, "llama")
    with pytest.raises(OdeumError, match="no known family"):
        load({"something": torch.zeros(2, 2)})


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("echo evil",))


def test_nothing_in_a_pickle_runs(tmp_path: Path) -> None:
    torch.save({"weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(OdeumError, match="without executing its content"):
        load(tmp_path)


def test_damage_is_a_sentence(tmp_path: Path) -> None:
    theirs = scrambled(CAUSAL["llama"])
    theirs.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_text("hello")
    with pytest.raises(OdeumError, match="torch cannot open it"):
        load(tmp_path / "pytorch_model.bin")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "layer_types": 5}))
    with pytest.raises(OdeumError, match="layers of the kind 5"):
        load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    with pytest.raises(OdeumError, match="its weight_map must map"):
        load(tmp_path)
    state = {name: value for name, value in theirs.state_dict().items() if "layers.0." not in name}
    with pytest.raises(OdeumError, match=r"contain no 'layers\.0\.input_layernorm\.weight'"):
        load(state, "llama")


REFUSED = {
    "rope": (
        lambda: T.LlamaConfig(**TEXT, rope_parameters={**ROPE, "rope_type": "yarn", "factor": 2.0}),
        "rope_scaling",
    ),
    "window": (lambda: T.MistralConfig(**TEXT, num_key_value_heads=3, sliding_window=5), "sliding_window=5"),
    "activation": (lambda: T.BertConfig(**TEXT, hidden_act="mish"), "activation 'mish'"),
    "decoder": (lambda: T.BertConfig(**TEXT, is_decoder=True), "is_decoder=True"),
    "inner": (lambda: T.AlbertConfig(**TEXT, inner_group_num=2), "inner_group_num=2"),
    "type": (lambda: T.BloomConfig(vocab_size=29, hidden_size=24, n_layer=1, n_head=3), "'bloom' .* are biases of"),
    "unknown": (lambda: T.BioGptConfig(**TEXT), "'biogpt' cannot be imported; known: gpt2"),
    "gemma2": (lambda: T.Gemma2Config(**TEXT, num_key_value_heads=1, head_dim=8), "'gemma2' .*softcapping"),
    "gemma3": (
        lambda: T.Gemma3TextConfig(**TEXT, num_key_value_heads=1, head_dim=8),
        "'gemma3_text' .* window",
    ),
    "bart": (
        lambda: T.BartConfig(vocab_size=29, d_model=32, decoder_layers=1),
        "'bart' .* embedding norms of their",
    ),
    "phi3-long": (
        lambda: T.Phi3Config(
            **TEXT,
            pad_token_id=None,
            original_max_position_embeddings=8,
            rope_parameters={**ROPE, "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
        ),
        "rope_scaling of the kind 'longrope'",
    ),
    "opt-post": (lambda: T.OPTConfig(**OPT, do_layer_norm_before=False), "OPT-350m"),
    "opt-narrow": (lambda: T.OPTConfig(**(OPT | {"word_embed_proj_dim": 12})), "word_embed_proj_dim"),
    "olmo-clipped": (lambda: T.OlmoConfig(**TEXT, pad_token_id=None, clip_qkv=2.0), "clip_qkv=2.0"),
    "phi-norms": (lambda: T.PhiConfig(**TEXT, qk_layernorm=True), "qk_layernorm=True"),
    "roberta-act": (lambda: T.RobertaConfig(**TEXT, hidden_act="relu"), "hidden_act='relu'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_another_model_is_refused(name: str) -> None:
    make, sentence = REFUSED[name]
    config = make()
    auto = T.AutoModelForMaskedLM if config.model_type in ("bert", "albert", "roberta") else T.AutoModelForCausalLM
    with pytest.raises(OdeumError, match=sentence):
        load(auto.from_config(config))


def test_what_is_not_known_is_told() -> None:
    theirs = CAUSAL["gpt2"]()
    theirs.config.strange_feature = 3
    assert any("strange_feature=3" in note for note in read_pretrained(theirs).notes)
    state = {**theirs.state_dict(), "transformer.h.0.attn.extra.weight": torch.zeros(2)}
    with pytest.raises(OdeumError, match=r"h\.0\.attn\.extra\.weight"):
        load(state, "gpt2")


def test_heads_beside_the_one_for_hidden_tokens_are_left_out() -> None:
    theirs = scrambled(lambda: T.BertForPreTraining(T.BertConfig(**TEXT)))
    state = {**theirs.state_dict(), "cls.species.weight": torch.zeros(6, 24)}  # as in antiberty
    theirs.state_dict = lambda *_, **__: state
    found = read_pretrained(theirs)
    assert "heads that are left out: cls.seq_relationship, cls.species" in found.notes
    ids = torch.randint(29, (2, 9))
    with torch.no_grad():
        same(found.model(ids).logits, theirs(ids).prediction_logits)


def test_a_family_against_the_name_of_the_source_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Gemma has the names of a Llama and is none: its norms and its embedding are others."""
    theirs = scrambled(lambda: T.GemmaForCausalLM(T.GemmaConfig(**TEXT, num_key_value_heads=1, head_dim=8)))
    theirs.save_pretrained(tmp_path / "theirs")
    notes = read_pretrained(tmp_path / "theirs", "llama").notes
    assert any("calls this a gemma; it is read as a llama" in note for note in notes)
    assert main(["import", str(tmp_path / "theirs"), "--family", "llama", "--out", str(tmp_path / "run")]) == 2
    assert "logits differ from those of transformers" in capsys.readouterr().err


REAL = {
    "iglm": ["iglm/trained_models/IgLM", "iglm/trained_models/IgLM-S"],
    "rxnmapper": ["rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"],
    "rxnfp": [f"rxnfp/models/transformers/{name}" for name in ("bert_ft", "bert_ft_10k_25s", "bert_pretrained")],
    "antiberty": ["antiberty/trained_models/AntiBERTy_md_smooth"],
}


def answers(ours: Any, theirs: Any, ids: Tensor, keep: Tensor, headless: bool) -> tuple[Tensor, Tensor]:
    """Logits of both, or the last states where there is no head."""
    with torch.no_grad():
        right = theirs(ids, attention_mask=keep, output_hidden_states=True)
        return (ours.hidden(ids, keep), right.hidden_states[-1]) if headless else (ours(ids, keep).logits, right.logits)


@pytest.mark.slow
@pytest.mark.parametrize("package", REAL)
def test_real_weights(package: str) -> None:
    """`pip install --no-deps --target DIR/NAME NAME`: iglm 0.1.0, rxnmapper 0.4.3, rxnfp 0.1.0, antiberty 0.0.5."""
    home = os.environ.get("ODEUM_PRETRAINED")
    if home is None or not Path(home, package).is_dir():
        pytest.skip(f"$ODEUM_PRETRAINED/{package} is not there: the weights are not part of this repository")
    autos = {"gpt2": T.AutoModelForCausalLM, "albert": T.AutoModelForMaskedLM, "bert": T.AutoModelForMaskedLM}
    for place in REAL[package]:
        folder = Path(home, package, place)
        found = read_pretrained(folder)
        config = json.loads((folder / "config.json").read_text()) | {"model_type": found.family}
        classes = getattr(found.model.settings, "classes", None)
        auto = autos[found.family] if classes is None else T.AutoModelForSequenceClassification
        config.pop("id2label", None), config.pop("label2id", None), config.pop("num_labels", None)
        made = T.AutoConfig.for_model(**config, **({} if classes is None else {"num_labels": classes}))
        theirs = auto.from_pretrained(folder, config=made).eval()
        ours, headless = found.model, any("no head" in note for note in found.notes)
        for length in (1, 2, 17, 128, 512):
            ids = torch.randint(ours.settings.vocabulary, (2, length))
            keep = torch.ones_like(ids)
            keep[1, (length + 1) // 2 :] = 0
            rows = torch.ones(2, dtype=torch.bool) if classes else keep.bool()
            single, their_single = (x[rows] for x in answers(ours, theirs, ids, keep, headless))
            # The same operations in the same order: one layer that acts twelve times makes a last bit large.
            assert float((single - their_single).abs().max()) < 1e-4
            ours.double(), theirs.double()
            double, right = (x[rows] for x in answers(ours, theirs, ids, keep, headless))
            ours.float(), theirs.float()
            assert float((double - right).abs().max()) < 1e-9


@pytest.mark.parametrize(
    "options",
    [{}, {"init_values": 0.3, "class_token": False, "global_pool": "avg"}, {"reg_tokens": 2, "no_embed_class": True}],
)
def test_timms_models(options: dict[str, Any]) -> None:
    timm_or_skip()
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    theirs = scrambled(lambda: VisionTransformer(**sizes, **options))
    images = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        same(load(theirs)(images).logits, theirs(images))


# What an imported model reads and writes as text is what its own library makes of the same files.


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


def scrambled_text(model: Any) -> Any:
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def causal(vocabulary: int, **more: Any) -> Any:
    named = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None} | more
    return scrambled_text(T.LlamaForCausalLM(T.LlamaConfig(vocab_size=vocabulary, **SIZES, **named)))


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
    assert "no start token" in complaint()
    numbers = torch.randint(5, 30, (40, 10), generator=torch.Generator().manual_seed(0)).tolist()
    (tmp_path / "numbers.txt").write_text("\n".join(" ".join(map(str, row)) for row in numbers))
    assert main(["surgery", run, str(tmp_path / "numbers.txt"), "--edits", "skip"]) == 0


def test_an_imported_classifier_is_exported_with_its_frame(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "##s", "ran"]
    theirs = scrambled_text(T.BertForSequenceClassification(T.BertConfig(vocab_size=len(words), **SIZES, num_labels=3)))
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


# Imported models under transformers' interface, with more tokens than they came with.


@pytest.mark.parametrize("name", ["llama", "gptj", "bert", "bert-untied", "albert", "bert-classes"])
def test_the_vocabulary_of_what_was_imported_grows(name: str, tmp_path: Path) -> None:
    """Under transformers' interface, with an output matrix that is the embedding's, its own, or has a bias."""
    model = load(scrambled({**CAUSAL, **BOTH_SIDES}[name]))
    kind = type(model.settings).__name__
    wrapped = class_of(kind).wrap(model)
    ids = torch.randint(29, (2, 9))
    with torch.no_grad():
        before = wrapped(ids).logits
        wrapped.resize_token_embeddings(33, mean_resizing=False)
        after = wrapped(ids).logits
        assert torch.equal(after[..., : before.shape[-1]], before)
        assert after.shape[-1] == (before.shape[-1] if kind == "Classification" else 33)
        wrapped.save_pretrained(tmp_path)
        assert torch.equal(type(wrapped).from_pretrained(tmp_path)(ids + 4).logits, wrapped(ids + 4).logits)
