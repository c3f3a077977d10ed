"""Whatever a configuration of a known family says: the logits are those of its library, or a sentence refuses it."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as T
from safetensors.torch import save_file
from timm_import import timm_or_skip
from torch import nn

from odeum.errors import OdeumError
from odeum.interop import load

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
TEXT = {**SIZES, "vocab_size": 29, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GPT = {"vocab_size": 29, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32, "bos_token_id": None}
GPT |= {"eos_token_id": None}
IMAGE = {**SIZES, "image_size": 12, "patch_size": 4, "num_labels": 5}
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gpt2": (T.GPT2LMHeadModel, T.GPT2Config, GPT),
    "neox": (T.GPTNeoXForCausalLM, T.GPTNeoXConfig, TEXT),
    "gptj": (T.GPTJForCausalLM, T.GPTJConfig, {**GPT, "rotary_dim": 4}),
    "llama": (T.LlamaForCausalLM, T.LlamaConfig, TEXT),
    "mistral": (T.MistralForCausalLM, T.MistralConfig, {**TEXT, "num_key_value_heads": 1, "sliding_window": None}),
    "qwen2": (T.Qwen2ForCausalLM, T.Qwen2Config, {**TEXT, "num_key_value_heads": 1}),
    "qwen3": (T.Qwen3ForCausalLM, T.Qwen3Config, {**TEXT, "num_key_value_heads": 3, "head_dim": 6}),
    "gemma": (T.GemmaForCausalLM, T.GemmaConfig, {**TEXT, "num_key_value_heads": 1, "head_dim": 8}),
    "olmo": (T.OlmoForCausalLM, T.OlmoConfig, TEXT),
    "phi": (T.PhiForCausalLM, T.PhiConfig, TEXT),
    "opt": (T.OPTForCausalLM, T.OPTConfig, {**TEXT, "ffn_dim": 20, "word_embed_proj_dim": 24}),
    "roberta": (T.RobertaForMaskedLM, T.RobertaConfig, {**TEXT, "max_position_embeddings": 16, "pad_token_id": 1}),
    "distilbert": (
        T.DistilBertForMaskedLM,
        T.DistilBertConfig,
        {"vocab_size": 29, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 20},
    ),
    "clip": (T.CLIPVisionModelWithProjection, T.CLIPVisionConfig, {**SIZES, "image_size": 12, "patch_size": 4}),
    "bert": (T.BertForMaskedLM, T.BertConfig, {**TEXT, "max_position_embeddings": 16}),
    "bert-classes": (T.BertForSequenceClassification, T.BertConfig, TEXT),
    "bert-tokens": (T.BertForTokenClassification, T.BertConfig, TEXT),
    "bert-choice": (T.BertForMultipleChoice, T.BertConfig, TEXT),
    "albert": (T.AlbertForMaskedLM, T.AlbertConfig, {**TEXT, "embedding_size": 7}),
    "albert-classes": (T.AlbertForSequenceClassification, T.AlbertConfig, {**TEXT, "embedding_size": 7}),
    "vit": (T.ViTForImageClassification, T.ViTConfig, IMAGE),
    "deit": (T.DeiTForImageClassification, T.DeiTConfig, IMAGE),
}


def rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, **settings}}


LLAMA3 = {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new", "gelu_pytorch_tanh")
DRAWN: dict[str, dict[str, tuple[Any, ...]]] = {
    "gpt2": {
        "n_inner": (None, 7),
        "activation_function": (*ACTIVATIONS, "gelu_fast", "quick_gelu"),
        "scale_attn_weights": (True, False),
        "scale_attn_by_inverse_layer_idx": (True, False),
        "reorder_and_upcast_attn": (True, False),
        "tie_word_embeddings": (True, False),
        "n_layer": (1, 3),
        "layer_norm_epsilon": (1e-5, 1e-2),
    },
    "neox": {
        "use_parallel_residual": (True, False),
        "rope_parameters": tuple(rope(partial_rotary_factor=p)["rope_parameters"] for p in (0.25, 0.5, 0.8, 1.0)),
        "hidden_act": ACTIVATIONS,
        "attention_bias": (True, False),
        "tie_word_embeddings": (True, False),
        "layer_norm_eps": (1e-5, 1e-2),
    },
    "gptj": {
        "rotary_dim": (2, 4, 6, 8),
        "n_inner": (None, 9),
        "activation_function": ACTIVATIONS,
        "tie_word_embeddings": (True, False),
    },
    "llama": {
        "tie_word_embeddings": (True, False),
        "num_key_value_heads": (1, 3),
        "attention_bias": (True, False),
        "mlp_bias": (True, False),
        "head_dim": (None, 4, 8, 10),
        "hidden_act": ACTIVATIONS,
        "rms_norm_eps": (1e-6, 1e-2),
        "rope_parameters": (
            {"rope_type": "default", "rope_theta": 1e6},
            {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
            {"rope_type": "llama3", "rope_theta": 500.0, **LLAMA3},
        ),
    },
    "mistral": {"head_dim": (None, 12), "num_key_value_heads": (1, 3), "tie_word_embeddings": (True, False)},
    "qwen2": {"num_key_value_heads": (1, 3), "tie_word_embeddings": (True, False), "sliding_window": (None, 4)},
    "qwen3": {"num_key_value_heads": (1, 3), "head_dim": (6, 8), "attention_bias": (True, False)},
    "gemma": {
        "num_key_value_heads": (1, 3),
        "head_dim": (8, 10),
        "hidden_act": ACTIVATIONS,
        "attention_bias": (True, False),
        "rms_norm_eps": (1e-6, 1e-2),
    },
    "olmo": {
        "num_key_value_heads": (1, 3),
        "tie_word_embeddings": (True, False),
        "attention_bias": (True, False),
        "hidden_act": ACTIVATIONS,
    },
    "phi": {
        "rope_parameters": tuple(rope(partial_rotary_factor=p)["rope_parameters"] for p in (0.25, 0.5, 1.0)),
        "hidden_act": ACTIVATIONS,
        "tie_word_embeddings": (True, False),
        "layer_norm_eps": (1e-5, 1e-2),
    },
    "opt": {
        "activation_function": ACTIVATIONS,
        "enable_bias": (True, False),
        "tie_word_embeddings": (True, False),
        "max_position_embeddings": (9, 32),
    },
    "roberta": {"pad_token_id": (0, 1, 3), "tie_word_embeddings": (True, False), "layer_norm_eps": (1e-12, 1e-2)},
    "distilbert": {"activation": ACTIVATIONS, "sinusoidal_pos_embds": (True, False)},
    "clip": {"hidden_act": (*ACTIVATIONS, "quick_gelu"), "projection_dim": (5, 24), "image_size": (4, 12)},
    "bert": {
        "hidden_act": ACTIVATIONS,
        "type_vocab_size": (1, 2, 5),
        "tie_word_embeddings": (True, False),
        "layer_norm_eps": (1e-12, 1e-2),
        "chunk_size_feed_forward": (0, 3),
    },
    "bert-classes": {"num_labels": (1, 2, 7), "hidden_act": ACTIVATIONS},
    "albert": {
        "embedding_size": (7, 24, 30),
        "hidden_act": ACTIVATIONS,
        "num_hidden_layers": (4, 6),
        "num_hidden_groups": (1, 2),
        "tie_word_embeddings": (True, False),
    },
    "albert-classes": {"num_labels": (1, 2, 7), "num_hidden_groups": (1, 2)},
    "vit": {
        "qkv_bias": (True, False),
        "hidden_act": ACTIVATIONS,
        "image_size": (4, 12, 20),
        "patch_size": (2, 4),
        "num_channels": (1, 3),
        "num_labels": (1, 5),
        "layer_norm_eps": (1e-12, 1e-2),
    },
    "deit": {"qkv_bias": (True, False), "hidden_act": ACTIVATIONS, "image_size": (4, 12), "num_labels": (1, 5)},
}


def made(name: str, settings: dict[str, Any]) -> Any:
    """A model with weights that hide nothing: biases are not zeros, norms are not ones."""
    cls, config, base = MODELS[name]
    torch.manual_seed(3)
    model = cls(config(**{**base, **settings})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
@pytest.mark.parametrize("name", DRAWN)
def test_settings_drawn_at_random(name: str, seed: int) -> None:
    draw = random.Random(f"{name}-{seed}")
    settings = {key: draw.choice(values) for key, values in DRAWN[name].items()}
    theirs = made(name, {key: value for key, value in settings.items() if value is not None})
    if "image_size" in MODELS[name][2]:
        inputs = torch.randn(2, theirs.config.num_channels, *(theirs.config.image_size,) * 2)
    else:
        inputs = torch.randint(29, (2, 9))
    with torch.no_grad():
        right = theirs(inputs)
        right = right.image_embeds if name == "clip" else right.logits
        torch.testing.assert_close(load(theirs)(inputs).logits, right, rtol=1e-4, atol=1e-4)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "gpt2-activation": ("gpt2", {"activation_function": "gelu_10"}, "activation 'gelu_10'"),
    "gpt2-cross": ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
    "neox-none": ("neox", rope(partial_rotary_factor=0.0), "partial_rotary_factor=0.0"),
    "neox-odd": ("neox", rope(partial_rotary_factor=0.4), "partial_rotary_factor=0.4"),
    "neox-yarn": ("neox", rope(rope_type="yarn", factor=2.0), "kind 'yarn'"),
    "gptj-odd": ("gptj", {"rotary_dim": 3}, "rotary_dim=3"),
    "gptj-none": ("gptj", {"rotary_dim": 0}, "rotary_dim=0"),
    "gptj-wide": ("gptj", {"rotary_dim": 12}, "rotary_dim=12"),
    "llama-partial": ("llama", rope(partial_rotary_factor=0.5), "partial_rotary_factor=0.5"),
    "llama-dynamic": ("llama", rope(rope_type="dynamic", factor=2.0), "kind 'dynamic'"),
    "llama-yarn": ("llama", rope(rope_type="yarn", factor=2.0), "kind 'yarn'"),
    "llama-activation": ("llama", {"hidden_act": "tanh"}, "activation 'tanh'"),
    "mistral-window": ("mistral", {"sliding_window": 4}, "sliding_window=4"),
    "qwen2-window": ("qwen2", {"use_sliding_window": True, "sliding_window": 4}, "sliding_window=4"),
    "bert-relative": ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
    "bert-decoder": ("bert", {"is_decoder": True}, "is_decoder=True"),
    "bert-tokens": ("bert-tokens", {}, "reads every token"),
    "bert-choice": ("bert-choice", {}, "for multiple choice"),
    "albert-inner": ("albert", {"inner_group_num": 2}, "inner_group_num=2"),
    "albert-groups": ("albert", {"num_hidden_layers": 3, "num_hidden_groups": 2}, "num_hidden_groups=2"),
    "vit-odd": ("vit", {"image_size": 13}, "image_size=13"),
    "vit-oblong": ("vit", {"image_size": (12, 16)}, r"image_size=\[12, 16\]"),
    "vit-oblong-square": ("vit", {"image_size": (4, 16)}, r"image_size=\[4, 16\]"),
    "vit-patches": ("vit", {"image_size": (4, 8), "patch_size": (2, 4)}, "patches of 2 × 4"),
    "deit-odd": ("deit", {"image_size": 11}, "image_size=11"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_would_be_another_model_is_named(name: str) -> None:
    model, settings, sentence = REFUSED[name]
    with pytest.raises(OdeumError, match=sentence):
        load(made(model, settings))


def test_the_output_matrix_is_what_the_weights_say() -> None:
    """As in transformers: two tensors that differ are not tied, whatever the configuration says."""
    theirs, ids = made("llama", {"tie_word_embeddings": False}), torch.randint(29, (2, 9))
    theirs.config.tie_word_embeddings = True
    with torch.no_grad():
        torch.testing.assert_close(load(theirs)(ids).logits, theirs(ids).logits, rtol=1e-4, atol=1e-4)
    with pytest.warns(UserWarning, match="the embedding is used as output matrix"):
        load(made("llama", {}).model)
    with pytest.warns(UserWarning, match="there is no configuration"):
        load(made("gpt2", {"n_embd": 64, "n_head": 1}).state_dict())


TIMM: dict[str, tuple[dict[str, Any], str | None]] = {
    "plain": ({}, None),
    "mean": ({"global_pool": "avg"}, None),
    "mean-inside": ({"global_pool": "avg", "fc_norm": False}, None),
    "no-token": ({"class_token": False, "global_pool": "avg"}, None),
    "token-after": ({"fc_norm": True}, None),
    "registers": ({"reg_tokens": 2}, None),
    "registers-unplaced": ({"reg_tokens": 2, "no_embed_class": True}, None),
    "registers-square": ({"reg_tokens": 4, "img_size": 8, "class_token": True}, None),
    "token-unplaced": ({"no_embed_class": True}, None),
    "layer-scale": ({"init_values": 0.3}, None),
    "no-biases": ({"qkv_bias": False, "proj_bias": False}, None),
    "tanh": ({"act_layer": partial(nn.GELU, approximate="tanh")}, None),
    "silu": ({"act_layer": "silu"}, None),
    "eps": ({"norm_layer": partial(nn.LayerNorm, eps=1e-2)}, None),
    "qk-norm": ({"qk_norm": True}, "qk_norm"),
    "pre-norm": ({"pre_norm": True}, "pre_norm"),
    "no-last-norm": ({"final_norm": False}, "final_norm=False"),
    "no-places": ({"pos_embed": "none"}, "pos_embed='none'"),
    "rms": ({"norm_layer": "rmsnorm"}, "'blocks.0.norm1' has no bias"),
    "prefix": ({"global_pool": "avg", "pool_include_prefix": True}, "pool_include_prefix=True"),
    "max": ({"global_pool": "max"}, "global_pool='max'"),
    "map": ({"global_pool": "map"}, "global_pool='map'"),
    "odd": ({"img_size": 13}, r"image_size=\(13, 13\)"),
    "oblong": ({"img_size": (4, 16)}, r"image_size=\(4, 16\)"),
    "act": ({"act_layer": "hard_swish"}, "activation 'hardswish'"),
    "scale-norms": ({"scale_mlp_norm": True}, "scale_mlp_norm"),
}


@pytest.mark.parametrize("name", TIMM)
def test_vision_transformers_of_timm(name: str) -> None:
    timm_or_skip()
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    options, sentence = TIMM[name]
    torch.manual_seed(3)
    theirs = VisionTransformer(**{**sizes, **options}).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    if sentence is not None:
        with pytest.raises(OdeumError, match=sentence):
            load(theirs)
        return
    images = torch.randn(2, 3, *theirs.patch_embed.img_size)
    with torch.no_grad():
        torch.testing.assert_close(load(theirs)(images).logits, theirs(images), rtol=1e-4, atol=1e-4)


def test_a_folder_that_names_an_architecture_of_timm(tmp_path: Path) -> None:
    """timm knows its heads and norms by that name; without timm a note says that the heads are a guess."""
    timm = timm_or_skip()
    name, sizes = "vit_tiny_patch16_224", {"embed_dim": 32, "depth": 1, "num_heads": 4, "img_size": 32}
    theirs = timm.create_model(name, num_classes=5, **sizes).eval()
    record = {"architecture": name, "num_classes": 5, "num_features": 32, "global_pool": "token", "model_args": sizes}
    (tmp_path / "config.json").write_text(json.dumps(record))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(images).logits, theirs(images), rtol=1e-4, atol=1e-4)
    (tmp_path / "config.json").write_text(json.dumps({**record, "architecture": "vit_of_nobody"}))
    with pytest.warns(UserWarning, match="has no number of heads"):
        load(tmp_path)
