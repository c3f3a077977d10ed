"""A trained model as a class of transformers' own, which loads without Odeum and which serving engines know.

| model | architecture | class of transformers |
|---|---|---|
| language, rotary positions | `parallel` | GPT-NeoX |
| language, rotary positions | `parallel:norm=shared` | Phi |
| language, rotary positions | `sequential` | GPT-NeoX without parallel residuals |
| language, rotary positions, RMSNorm, SwiGLU | `sequential` | Llama |
| language, learned or sinusoidal positions | `sequential` | GPT-2 |
| images, patch stem, class token | `sequential` | ViT |
| images, patch stem, mean over patches | `sequential` | SigLIP |
| texts, class token, learned or sinusoidal positions | `sequential` | Megatron-BERT |
| texts, imported from BERT or RoBERTa | `post-norm` | BERT |
| translation, learned or sinusoidal positions | `sequential` | Pegasus |

The weights are the same numbers under other names. What another class lacks is folded into them: the factor √width of
our embedding (so input and output matrices are written separately), sinusoidal positions (written as a table), and
shared weights (written once per layer). Imported models use the same table, with grouped-query attention, partial or
scaled rotary positions and other activations where the class has them; norms of queries and keys make a Llama a Qwen 3.
Every other model is refused with the reason and the formats that take any architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.fields.roles import by_role
from odeum.models.base import OdeumModel
from odeum.models.classification import ClassificationModel
from odeum.models.language import LanguageModel
from odeum.models.masked import MaskedLanguageModel, PretrainedClassifier
from odeum.models.pretrained import details
from odeum.models.translation import TranslationModel
from odeum.models.vision import VisionModel
from odeum.registry.spelling import parse, spell

Weights = dict[str, Tensor]
ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "swiglu": "silu",
    "gelu-tanh": "gelu_pytorch_tanh",
    "quick-gelu": "quick_gelu",
    "silu": "silu",
    "geglu": "gelu",
    "geglu-tanh": "gelu_pytorch_tanh",
    "reglu": "relu",
}
"""our activations, those of imported models included, and the names in transformers"""
SMALL = 2.0**-12
"""scale of a pooler that should be the identity: tanh(ε x) = ε x (1 − (ε x)² / 3)"""
NEAR_ENOUGH = 1e-3
"""largest accepted difference of a logit, as a share of the largest logit"""
ELSEWHERE = "use --to onnx or --to torch, which support every architecture with fixed steps"


@dataclass(frozen=True)
class Native:
    """A model as a class of transformers, its configuration and its weights."""

    name: str
    """name of the class, such as GPTNeoXForCausalLM"""
    config: dict[str, Any]
    """arguments of its configuration class"""
    weights: Weights
    copies: int = 0
    """number of weights that are written more than once, because the class does not share them between layers"""
    notes: tuple[str, ...] = field(default=())


def to_native(model: OdeumModel) -> Native:
    """The model as a class of transformers; raises `OdeumError` if no class computes the same."""
    for kind, convert in CONVERTERS.items():
        if isinstance(model, kind):
            return convert(model)
    raise OdeumError(
        f"no class of transformers computes the same as Odeum's {type(model).__name__} (classifiers there pool or norm "
        f"differently); {ELSEWHERE}"
    )


def refuse_imported(model: OdeumModel, engine: str, converter: str) -> None:
    """Raise `OdeumError` for an imported model, which the engine's own converter takes after `--to transformers`."""
    if model.settings.pretrained is not None:
        raise OdeumError(
            f"this model was imported from {model.settings.pretrained.family}, and Odeum writes only models that it "
            f"trained for {engine}; use --to transformers and then {converter}"
        )


FORMS = {
    "sequential": ("lie-trotter", "pre"),
    "parallel": ("euler", "pre"),
    "shared": ("euler", "shared"),
    "post-norm": ("lie-trotter", "post"),
}
"""kinds of layers that other libraries have too: method and place of the norms"""


def layer_form(architecture: Any, what: str = "architecture") -> str:
    """The key of `FORMS` of an architecture; raises `OdeumError` if other libraries do not have its layers."""
    name = spell(architecture)
    plain = parse("sequential")
    same = ("steps", "weights", "form", "attention", "feedforward", "interval", "pace")
    if type(architecture) is type(plain):
        changed = [option for option in same if getattr(architecture, option) != getattr(plain, option)]
        key = (architecture.method, architecture.norm)
        if not changed and key in FORMS.values():
            return next(form for form, value in FORMS.items() if value == key)
    raise OdeumError(
        f"the {what} '{name}' has no equivalent in other libraries, which have sequential, parallel and "
        f"parallel:norm=shared layers; {ELSEWHERE}"
    )


def _need(model: OdeumModel, option: str, *allowed: Any) -> None:
    value = getattr(model.settings, option)
    if value not in allowed:
        raise OdeumError(
            f"no class of transformers has this architecture with {option}={value}; train with "
            f"--model.{option} {' or '.join(map(str, allowed))}, or {ELSEWHERE}"
        )


def need_one_matrix(model: LanguageModel, where: str) -> None:
    """Raise `OdeumError` for the adaptive embedding, whose output is a softmax of two levels and not one matrix."""
    if model.settings.embedding == "adaptive":
        raise OdeumError(
            f"{where} has no adaptive softmax (embedding=adaptive, the default above 10,000 words): its logits are one "
            f"product with a matrix; train with --model.embedding tied, or {ELSEWHERE}"
        )


def _lacks(name: str, part: str) -> OdeumError:
    """The error for a part of an imported model that the class does not have."""
    return OdeumError(f"{name} of transformers has no {part}, which this imported model has; {ELSEWHERE}")


def acting_layers(stack: Any) -> list[Weights]:
    """The weights of each layer by role, in the order in which layers act; a shared layer is there several times."""
    stored = by_role(stack)
    flows = [
        {name.removeprefix(f"layers.{i}."): w for name, w in stored.items() if name.startswith(f"layers.{i}.")}
        for i in range(len(stack.flows))
    ]
    return [flows[i] for i in stack.schedule]


def _copies(*stacks: Any) -> int:
    """The number of weights that are written more than once, because layers share them."""
    return sum(
        sum(w.numel() for layer in acting_layers(stack) for w in layer.values())
        - sum(w.numel() for name, w in by_role(stack).items() if name.startswith("layers."))
        for stack in stacks
    )


def _copy(layer: Weights, ours: str, theirs: str, out: Weights, transpose: bool = False, bias: bool = True) -> None:
    """One linear map or norm under another name; a bias that the class must have is zero where we have none."""
    weight = layer[f"{ours}.weight"]
    out[f"{theirs}.weight"] = weight.T if transpose and weight.dim() == 2 else weight
    if f"{ours}.bias" in layer:
        out[f"{theirs}.bias"] = layer[f"{ours}.bias"]
    elif bias:
        out[f"{theirs}.bias"] = weight.new_zeros(weight.shape[0])


def _activation(model: OdeumModel) -> str:
    """The activation under the name that transformers uses."""
    return ACTIVATIONS[details(model.settings).activation or model.settings.activation]


def _shape(model: OdeumModel) -> dict[str, Any]:
    """Sizes under the names that most configurations use."""
    s = model.settings
    return {
        "hidden_size": s.width,
        "num_hidden_layers": s.depth,
        "num_attention_heads": s.heads,
        "intermediate_size": s.hidden or 4 * s.width,
        "hidden_act": _activation(model),
    }


def _language(model: LanguageModel) -> Native:
    need_one_matrix(model, "transformers")
    form, s = layer_form(model.architecture), model.settings
    if form == "post-norm":
        raise OdeumError(f"no language model of transformers has {spell(model.architecture)} layers; {ELSEWHERE}")
    if s.positions != "rotary":
        if form != "sequential":
            raise OdeumError(
                f"no class of transformers has {spell(model.architecture)} layers with positions={s.positions}; train "
                f"with --model.positions rotary, or {ELSEWHERE}"
            )
        return _gpt2(model)
    if s.width // s.heads % 2 and details(s).attention.head_width is None:
        raise OdeumError(f"rotary positions need an even head width, got {s.width // s.heads}")
    gated, rms = s.activation == "swiglu", s.norm_kind == "rms"
    if form == "sequential" and gated and rms:
        return _llama(model)
    if gated or rms:
        raise OdeumError(
            f"no class of transformers has {spell(model.architecture)} layers with norm_kind={s.norm_kind} and "
            f"activation={s.activation}; sequential layers need rms and swiglu (Llama) or layer and gelu or relu "
            f"(GPT-NeoX), parallel layers need layer and gelu or relu; {ELSEWHERE}"
        )
    return _phi(model) if form == "shared" else _neox(model, form == "parallel")


def _ends(model: LanguageModel, name: str) -> tuple[Tensor, Tensor]:
    """The input matrix with its factor, and the output matrix; only Phi has a bias of the logits."""
    weight: Any = model.embedding.weight
    output = model.output
    if output is not None and output.bias is not None and name != "Phi":
        raise _lacks(name, "bias of the logits")
    scale: Any = model.embedding.scale
    return weight * scale, weight if output is None else output.weight


def _rope(model: LanguageModel, name: str, partial: bool = True) -> dict[str, Any]:
    """Rotary positions as transformers configures them."""
    attention = details(model.settings).attention
    size = attention.head_width or model.settings.width // model.settings.heads
    share = (attention.rotary_width or size) / size
    if share != 1.0 and not partial:
        raise _lacks(name, "partial rotary positions")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": attention.rotary_base}
    if (scaling := attention.rotary_scaling) is not None:
        rope |= {"rope_type": "linear", "factor": scaling.factor}
        if scaling.original:
            rope |= {
                "rope_type": "llama3",
                "low_freq_factor": scaling.low,
                "high_freq_factor": scaling.high,
                "original_max_position_embeddings": int(scaling.original),
            }
    return rope | ({"partial_rotary_factor": share} if partial else {})


def _need_plain_attention(model: LanguageModel, name: str) -> None:
    """Raise `OdeumError` for attention with grouped queries, another head width or norms of queries and keys."""
    attention = details(model.settings).attention
    for value, part in (
        (attention.key_value_heads, "grouped-query attention"),
        (attention.head_width, "head width of its own"),
        (attention.qk_norm, "norms of queries and keys"),
    ):
        if value:
            raise _lacks(name, part)


def _neox(model: LanguageModel, parallel: bool) -> Native:
    _need_plain_attention(model, "GPT-NeoX")
    s, layers = model.settings, acting_layers(model.stack)
    out: Weights = {}
    out["gpt_neox.embed_in.weight"], out["embed_out.weight"] = _ends(model, "GPT-NeoX")
    for i, layer in enumerate(layers):
        at = f"gpt_neox.layers.{i}"
        qkv: Weights = {}
        _copy(layer, "attention.qkv", "qkv", qkv)
        for name, tensor in qkv.items():  # theirs: query, key and value of one head after the other
            by_head = tensor.unflatten(0, (3, s.heads, -1)).transpose(0, 1).flatten(0, 2)
            out[f"{at}.attention.query_key_value.{name.removeprefix('qkv.')}"] = by_head
        _copy(layer, "attention.out", f"{at}.attention.dense", out)
        _copy(layer, "attention.norm", f"{at}.input_layernorm", out)
        _copy(layer, "feedforward.norm", f"{at}.post_attention_layernorm", out)
        _copy(layer, "feedforward.up", f"{at}.mlp.dense_h_to_4h", out)
        _copy(layer, "feedforward.down", f"{at}.mlp.dense_4h_to_h", out)
    _copy(by_role(model), "stack.norm", "gpt_neox.final_layer_norm", out)
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.length,
        "layer_norm_eps": s.norm_eps,
        "use_parallel_residual": parallel,
        "rope_parameters": _rope(model, "GPT-NeoX"),
        "tie_word_embeddings": False,
        "hidden_dropout": s.dropout,
    }
    return Native("GPTNeoXForCausalLM", config, out, _copies(model.stack))


def _phi(model: LanguageModel) -> Native:
    _need_plain_attention(model, "Phi")
    s, layers = model.settings, acting_layers(model.stack)
    out: Weights = {}
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _ends(model, "Phi")
    bias = None if model.output is None else model.output.bias
    out["lm_head.bias"] = out["lm_head.weight"].new_zeros(s.vocabulary) if bias is None else bias
    for i, layer in enumerate(layers):
        at = f"model.layers.{i}"
        _split(layer, "attention.qkv", [f"{at}.self_attn.{name}_proj" for name in "qkv"], out)
        _copy(layer, "attention.out", f"{at}.self_attn.dense", out)
        _copy(layer, "norm", f"{at}.input_layernorm", out)
        _copy(layer, "feedforward.up", f"{at}.mlp.fc1", out)
        _copy(layer, "feedforward.down", f"{at}.mlp.fc2", out)
    _copy(by_role(model), "stack.norm", "model.final_layernorm", out)
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.length,
        "layer_norm_eps": s.norm_eps,
        "rope_parameters": _rope(model, "Phi"),
        "tie_word_embeddings": False,
        "resid_pdrop": s.dropout,
    }
    return Native("PhiForCausalLM", config, out, _copies(model.stack))


def _llama(model: LanguageModel) -> Native:
    s, layers, attention = model.settings, acting_layers(model.stack), details(model.settings).attention
    name = "Qwen3" if attention.qk_norm else "Llama"
    if attention.qk_norm and s.bias:
        raise _lacks(name, "biases in the feed-forward")
    groups, size = attention.key_value_heads or s.heads, attention.head_width or s.width // s.heads
    out: Weights = {}
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _ends(model, name)
    for i, layer in enumerate(layers):
        at = f"model.layers.{i}"
        rows = [size * heads for heads in (s.heads, groups, groups)]
        _split(layer, "attention.qkv", [f"{at}.self_attn.{part}_proj" for part in "qkv"], out, s.bias, rows)
        if attention.qk_norm:
            for part in "qk":
                _copy(layer, f"attention.{part}_norm", f"{at}.self_attn.{part}_norm", out, bias=False)
        _copy(layer, "attention.out", f"{at}.self_attn.o_proj", out, bias=s.bias)
        _copy(layer, "attention.norm", f"{at}.input_layernorm", out, bias=False)
        _copy(layer, "feedforward.norm", f"{at}.post_attention_layernorm", out, bias=False)
        _split(layer, "feedforward.up", [f"{at}.mlp.{part}_proj" for part in ("gate", "up")], out, s.bias)
        _copy(layer, "feedforward.down", f"{at}.mlp.down_proj", out, bias=s.bias)
    _copy(by_role(model), "stack.norm", "model.norm", out, bias=False)
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.length,
        "num_key_value_heads": groups,
        "head_dim": size,
        "rms_norm_eps": s.norm_eps,
        "attention_bias": s.bias,
        "rope_parameters": _rope(model, name, partial=False),
        "tie_word_embeddings": False,
    }
    config |= {} if attention.qk_norm else {"mlp_bias": s.bias}
    return Native(f"{name}ForCausalLM", config, out, _copies(model.stack))


def _gpt2(model: LanguageModel) -> Native:
    s, layers = model.settings, acting_layers(model.stack)
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    out: Weights = {}
    out["transformer.wte.weight"], out["lm_head.weight"] = _ends(model, "GPT-2")
    out["transformer.wpe.weight"] = position_table(model, out["lm_head.weight"])
    for i, layer in enumerate(layers):
        at = f"transformer.h.{i}"
        _copy(layer, "attention.norm", f"{at}.ln_1", out)
        _copy(layer, "attention.qkv", f"{at}.attn.c_attn", out, transpose=True)
        _copy(layer, "attention.out", f"{at}.attn.c_proj", out, transpose=True)
        _copy(layer, "feedforward.norm", f"{at}.ln_2", out)
        _copy(layer, "feedforward.up", f"{at}.mlp.c_fc", out, transpose=True)
        _copy(layer, "feedforward.down", f"{at}.mlp.c_proj", out, transpose=True)
    _copy(by_role(model), "stack.norm", "transformer.ln_f", out)
    config = {
        "n_embd": s.width,
        "n_layer": s.depth,
        "n_head": s.heads,
        "n_inner": s.hidden or 4 * s.width,
        "n_positions": s.length,
        "vocab_size": s.vocabulary,
        "activation_function": _activation(model),
        "layer_norm_epsilon": s.norm_eps,
        "tie_word_embeddings": False,
        "resid_pdrop": s.dropout,
        "embd_pdrop": s.dropout,
        "attn_pdrop": 0.0,
    }
    return Native("GPT2LMHeadModel", config, out, _copies(model.stack))


def position_table(model: Any, like: Tensor, length: int | None = None) -> Tensor:
    """The table of positions, with one row per position (`length` rows; default: the length of the model)."""
    table = model.positions.added(like)
    assert table is not None
    return table[: length or model.settings.length]


def _split(
    layer: Weights, ours: str, theirs: list[str], out: Weights, bias: bool = True, rows: list[int] | None = None
) -> None:
    """One linear map as several, with these numbers of rows (default: equal)."""
    joined: Weights = {}
    _copy(layer, ours, "", joined, bias=bias)
    for name, tensor in joined.items():
        parts = tensor.chunk(len(theirs)) if rows is None else tensor.split(rows)
        for part, target in zip(parts, theirs, strict=True):
            out[f"{target}{name}"] = part


def _vision(model: VisionModel) -> Native:
    if layer_form(model.architecture) != "sequential":
        raise OdeumError(f"no image class of transformers has {spell(model.architecture)} layers; {ELSEWHERE}")
    _need(model, "stem", "patch")
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    s, stored, out = model.settings, by_role(model), {}
    token, extra = s.pooling == "token", details(s)
    for wrong, part in (
        (model.tokens != int(token), "second class token, registers, or class token beside mean pooling"),
        (extra.pooled_norm, "norm after the pooling"),
        (extra.embedding.norm, "norm before the first layer"),
    ):
        if wrong:
            raise _lacks("ViT" if token else "Siglip", part)
    config = {
        **_shape(model),
        "image_size": s.image_size,
        "patch_size": s.patch_size,
        "num_channels": s.channels,
        "layer_norm_eps": s.norm_eps,
    }
    if token:
        name, layers, norms, last = "ViT", "vit.encoder.layer", ("layernorm_before", "layernorm_after"), "vit.layernorm"
        qkv = [f"attention.attention.{part}" for part in ("query", "key", "value")]
        rest = ("attention.output.dense", "intermediate.dense", "output.dense")
        patch = "vit.embeddings.patch_embeddings.projection"
        out["vit.embeddings.cls_token"] = stored["token"]
        out["vit.embeddings.position_embeddings"] = stored["position"]
        config |= {"hidden_dropout_prob": s.dropout, "num_labels": s.classes}
    else:  # no class token, and the mean of the normed patches
        name, layers, norms = "Siglip", "vision_model.encoder.layers", ("layer_norm1", "layer_norm2")
        last, patch = "vision_model.post_layernorm", "vision_model.embeddings.patch_embedding"
        qkv, rest = [f"self_attn.{part}_proj" for part in "qkv"], ("self_attn.out_proj", "mlp.fc1", "mlp.fc2")
        out["vision_model.embeddings.position_embedding.weight"] = stored["position"][0]
        text = {"vocab_size": 2, "bos_token_id": 0, "eos_token_id": 1}  # there is no text, but its size is checked
        config = {
            "vision_config": {**config, "vision_use_head": False},
            "text_config": text,
            "num_labels": s.classes,
        }
    _copy(stored, "patch", patch, out)
    for i, layer in enumerate(acting_layers(model.stack)):
        at = f"{layers}.{i}"
        _split(layer, "attention.qkv", [f"{at}.{part}" for part in qkv], out)
        for ours, theirs in zip(("attention.out", "feedforward.up", "feedforward.down"), rest, strict=True):
            _copy(layer, ours, f"{at}.{theirs}", out)
        for ours, theirs in zip(("attention.norm", "feedforward.norm"), norms, strict=True):
            _copy(layer, ours, f"{at}.{theirs}", out)
    _copy(stored, "stack.norm", last, out)
    _copy(stored, "head", "classifier", out)
    return Native(f"{name}ForImageClassification", config, out, _copies(model.stack))


def _classification(model: ClassificationModel) -> Native:
    """Its pooler is tanh(W x + b); with a small W = ε and the head divided by ε it is the identity to 1e-7."""
    if layer_form(model.architecture) != "sequential":
        raise OdeumError(f"no text classifier of transformers has {spell(model.architecture)} layers; {ELSEWHERE}")
    _need(model, "pooling", "token")
    _need(model, "positions", "sinusoidal", "learned")
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    s, stored, out = model.settings, by_role(model), {}
    token = stored["token"][0]
    out["bert.embeddings.word_embeddings.weight"] = torch.cat((stored["embedding.weight"] * s.width**0.5, token))
    out["bert.embeddings.position_embeddings.weight"] = position_table(model, token, s.length + 1)
    out["bert.embeddings.token_type_embeddings.weight"] = token.new_zeros(2, s.width)
    for i, layer in enumerate(acting_layers(model.stack)):
        at = f"bert.encoder.layer.{i}"
        _split(layer, "attention.qkv", [f"{at}.attention.self.{name}" for name in ("query", "key", "value")], out)
        _copy(layer, "attention.out", f"{at}.attention.output.dense", out)
        _copy(layer, "attention.norm", f"{at}.attention.ln", out)
        _copy(layer, "feedforward.norm", f"{at}.ln", out)
        _copy(layer, "feedforward.up", f"{at}.intermediate.dense", out)
        _copy(layer, "feedforward.down", f"{at}.output.dense", out)
    _copy(stored, "stack.norm", "bert.encoder.ln", out)
    out["bert.pooler.dense.weight"] = SMALL * torch.eye(s.width)
    out["bert.pooler.dense.bias"] = token.new_zeros(s.width)
    out["classifier.weight"], out["classifier.bias"] = stored["head.weight"] / SMALL, stored["head.bias"]
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary + 1,
        "max_position_embeddings": s.length + 1,
        "layer_norm_eps": s.norm_eps,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": s.classes,
    }
    notes = (f"token {s.vocabulary} is the class token; the tokenizer prepends it to each text",)
    return Native("MegatronBertForSequenceClassification", config, out, _copies(model.stack), notes)


def _bert(model: MaskedLanguageModel | PretrainedClassifier) -> Native:
    """RoBERTa counts positions from the number of its padding token on; here the table begins at the first token."""
    s, extra, stored, out = model.settings, details(model.settings), by_role(model), {}
    masked, embedding = isinstance(model, MaskedLanguageModel), details(model.settings).embedding
    if layer_form(model.architecture) != "post-norm":
        raise OdeumError(f"BERT of transformers has post-norm layers, not {spell(model.architecture)}; {ELSEWHERE}")
    _need(model, "positions", "learned", "sinusoidal")
    for wrong, part in (
        (not embedding.norm, "model without a norm of the embedding"),
        (embedding.width is not None, "projection of the embedding"),
        (not masked and extra.pooler != "tanh", f"pooler with {extra.pooler}"),
    ):
        if wrong:
            raise _lacks("BERT", part)
    words = stored["embedding.weight"]
    first = 0 if embedding.padding is None else embedding.padding + 1
    out["bert.embeddings.word_embeddings.weight"] = words
    out["bert.embeddings.position_embeddings.weight"] = position_table(model, words, first + s.length)[first:]
    out["bert.embeddings.token_type_embeddings.weight"] = stored.get("types.weight", words.new_zeros(1, s.width))
    _copy(stored, "embedding_norm", "bert.embeddings.LayerNorm", out)
    for i, layer in enumerate(acting_layers(model.stack)):
        at = f"bert.encoder.layer.{i}"
        _split(layer, "attention.qkv", [f"{at}.attention.self.{name}" for name in ("query", "key", "value")], out)
        _copy(layer, "attention.out", f"{at}.attention.output.dense", out)
        _copy(layer, "attention.norm", f"{at}.attention.output.LayerNorm", out)
        _copy(layer, "feedforward.up", f"{at}.intermediate.dense", out)
        _copy(layer, "feedforward.down", f"{at}.output.dense", out)
        _copy(layer, "feedforward.norm", f"{at}.output.LayerNorm", out)
    if masked:
        _copy(stored, "transform", "cls.predictions.transform.dense", out)
        _copy(stored, "transform_norm", "cls.predictions.transform.LayerNorm", out)
        out["cls.predictions.decoder.weight"] = stored.get("output.weight", words)
        out["cls.predictions.bias"] = out["cls.predictions.decoder.bias"] = stored["bias"]
    else:
        _copy(stored, "pooler", "bert.pooler.dense", out)
        _copy(stored, "head", "classifier", out)
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.length,
        "type_vocab_size": out["bert.embeddings.token_type_embeddings.weight"].shape[0],
        "layer_norm_eps": s.norm_eps,
        "hidden_dropout_prob": s.dropout,
        "attention_probs_dropout_prob": 0.0,
        "tie_word_embeddings": False,
        "pad_token_id": embedding.padding or 0,
    }
    if not masked:
        config["num_labels"] = stored["head.weight"].shape[0]
    notes = (
        ("right padding only: positions are counted from the first column",) if embedding.padding is not None else ()
    )
    name = "BertForMaskedLM" if masked else "BertForSequenceClassification"
    return Native(name, config, out, _copies(model.stack), notes)


def _translation(model: TranslationModel) -> Native:
    s = model.settings
    if s.positions == "rotary":
        _need(model, "positions", "sinusoidal", "learned")
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    decoder = model.architecture if s.decoder is None else parse(s.decoder)
    for what, architecture in (("architecture", model.architecture), ("decoder", decoder)):
        if layer_form(architecture, what) != "sequential":
            raise OdeumError(
                f"no translation class of transformers has the {what} '{spell(architecture)}'; {ELSEWHERE}"
            )
    weight, out = model.embedding.weight, {}
    table = position_table(model, weight)
    out["model.shared.weight"] = weight
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        out[f"model.{side}.embed_tokens.weight"] = weight
        out[f"model.{side}.embed_positions.weight"] = table
        for i, layer in enumerate(acting_layers(stack)):
            at = f"model.{side}.layers.{i}"
            _split(layer, "attention.qkv", [f"{at}.self_attn.{name}_proj" for name in "qkv"], out)
            _copy(layer, "attention.out", f"{at}.self_attn.out_proj", out)
            _copy(layer, "attention.norm", f"{at}.self_attn_layer_norm", out)
            if side == "decoder":
                _copy(layer, "cross.q", f"{at}.encoder_attn.q_proj", out)
                _split(layer, "cross.kv", [f"{at}.encoder_attn.{name}_proj" for name in "kv"], out)
                _copy(layer, "cross.out", f"{at}.encoder_attn.out_proj", out)
                _copy(layer, "cross.norm", f"{at}.encoder_attn_layer_norm", out)
            _copy(layer, "feedforward.norm", f"{at}.final_layer_norm", out)
            _copy(layer, "feedforward.up", f"{at}.fc1", out)
            _copy(layer, "feedforward.down", f"{at}.fc2", out)
        _copy(by_role(stack), "norm", f"model.{side}.layer_norm", out)
    out["lm_head.weight"] = weight
    out["final_logits_bias"] = weight.new_zeros(1, s.vocabulary)
    config = {
        "vocab_size": s.vocabulary,
        "d_model": s.width,
        "encoder_layers": s.depth,
        "decoder_layers": s.decoder_depth or s.depth,
        "encoder_attention_heads": s.heads,
        "decoder_attention_heads": s.heads,
        "encoder_ffn_dim": s.hidden or 4 * s.width,
        "decoder_ffn_dim": s.hidden or 4 * s.width,
        "activation_function": _activation(model),
        "max_position_embeddings": s.length,
        "scale_embedding": True,
        "dropout": s.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "forced_eos_token_id": None,
        "num_beams": 1,
    }
    notes = () if s.norm_eps == 1e-5 else (f"Pegasus norms with epsilon 1e-5, this model with {s.norm_eps:g}",)
    return Native("PegasusForConditionalGeneration", config, out, _copies(model.encoder, model.decoder), notes)


CONVERTERS: dict[type[OdeumModel], Callable[[Any], Native]] = {
    LanguageModel: _language,
    VisionModel: _vision,
    MaskedLanguageModel: _bert,
    PretrainedClassifier: _bert,
    ClassificationModel: _classification,
    TranslationModel: _translation,
}


def write_native(model: OdeumModel, directory: Path, **config: Any) -> tuple[Any, Native]:
    """Write config.json and model.safetensors as published checkpoints of the class have them, and load them again.

    Returns the loaded model of transformers, in evaluation mode. `config` holds labels and special tokens. Raises
    `OdeumError` unless every weight found its place and every place its weight.
    """
    import transformers
    from safetensors.torch import save_file

    native = to_native(model)
    kind = getattr(transformers, native.name)
    made = kind.config_class(**native.config | config, architectures=[native.name], dtype="float32")
    made.save_pretrained(directory)
    weights = {name: w.detach().to("cpu", torch.float32).contiguous().clone() for name, w in native.weights.items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    loaded, info = kind.from_pretrained(directory, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[problem]:
            raise OdeumError(
                f"this version of transformers ({transformers.__version__}) expects other weights in {native.name}: "
                f"{problem.replace('_', ' ')} {sorted(info[problem])[:3]}; use --to onnx, or another version"
            )
    return loaded.eval(), native


def largest_difference(model: OdeumModel, written: Any, native: Native) -> float:
    """Returns the largest difference of a logit between both, on random input.

    Raises `OdeumError` if it is more than rounding explains, so that no wrong export is kept.
    """
    random = torch.Generator().manual_seed(0)
    inputs = {}
    for name, tensor in model.example("cpu", batch=2).items():
        if tensor.is_floating_point():
            inputs[name] = torch.randn(tensor.shape, generator=random)
        else:
            high = model.settings.vocabulary  # ty: ignore[missing-attribute]
            ids = torch.randint(0, high, tensor.shape, generator=random)
            padding = details(model.settings).embedding.padding  # not counted as a position
            inputs[name] = ids if padding is None else ids.masked_fill(ids == padding, padding + 1)
    theirs = {"pixel_values" if name == "images" else name: tensor for name, tensor in inputs.items()}
    if native.name == "MegatronBertForSequenceClassification":
        first = torch.full((2, 1), native.config["vocab_size"] - 1)
        theirs["input_ids"] = torch.cat((first, theirs["input_ids"]), dim=1)
    model.eval()
    with torch.no_grad():
        logits = model(**inputs).logits
        difference = float((logits - written(**theirs).logits).abs().max())
    if not difference <= NEAR_ENOUGH * max(1.0, float(logits.abs().max())):
        raise OdeumError(f"{native.name} gives other logits than the model (by {difference:.1e}); {ELSEWHERE}")
    return difference
