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
| translation, learned or sinusoidal positions | `sequential` | Pegasus |

The weights are the same numbers under other names. What another class lacks is folded into them: the factor √width of
our embedding (so input and output matrices are written apart), sinusoidal positions (written out as a table), and
layers that share weights (written out once per layer). Other architectures have no equal there: `equal_class` says
why, and names the formats that take any architecture.
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
from odeum.models.translation import TranslationModel
from odeum.models.vision import VisionModel
from odeum.registry.spelling import parse, spell

Weights = dict[str, Tensor]
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "swiglu": "silu"}
SMALL = 2.0**-12
"""of a pooler that should do nothing: tanh(ε x) = ε x (1 − (ε x)² / 3)"""
NEAR_ENOUGH = 1e-3
"""largest difference of a logit that is kept, as a share of the largest logit"""
ELSEWHERE = "use --to onnx or --to torch, which take every architecture"


@dataclass(frozen=True)
class Native:
    """A model in the words of transformers."""

    name: str
    """of the class, such as GPTNeoXForCausalLM"""
    config: dict[str, Any]
    """arguments of its configuration class"""
    weights: Weights
    copies: int = 0
    """numbers that are written more than once, because the class shares no weights between layers"""
    notes: tuple[str, ...] = field(default=())


def to_native(model: OdeumModel) -> Native:
    """The equal of a model among the classes of transformers; raises `OdeumError` if there is none."""
    refuse_imported(model)
    for kind, convert in CONVERTERS.items():
        if isinstance(model, kind):
            return convert(model)
    raise OdeumError(
        f"transformers has no class that computes what a {type(model).__name__} of Odeum does (its classifiers pool or "
        f"norm otherwise); {ELSEWHERE}"
    )


def refuse_imported(model: OdeumModel) -> None:
    """Raise `OdeumError` for a model that came from another library and has parts that ours lack."""
    if model.settings.pretrained is not None:
        raise OdeumError(
            f"this model was imported from {model.settings.pretrained.family}, which has parts of its own; export the "
            f"source, or {ELSEWHERE}"
        )


def layer_form(architecture: Any, what: str = "architecture") -> str:
    """`sequential`, `parallel` or `shared` for the layers that others have too; raises `OdeumError` for the rest."""
    forms = {
        "sequential": ("lie-trotter", "pre"),
        "parallel": ("euler", "pre"),
        "shared": ("euler", "shared"),
    }
    name = spell(architecture)
    plain = parse("sequential")
    same = ("steps", "weights", "form", "attention", "feedforward", "interval", "pace")
    if type(architecture) is type(plain):
        changed = [option for option in same if getattr(architecture, option) != getattr(plain, option)]
        key = (architecture.method, architecture.norm)
        if not changed and key in forms.values():
            return next(form for form, value in forms.items() if value == key)
    raise OdeumError(
        f"the {what} '{name}' has no equal among the classes of transformers, which has sequential, parallel and "
        f"parallel:norm=shared; {ELSEWHERE}"
    )


def _need(model: OdeumModel, option: str, *allowed: Any) -> None:
    value = getattr(model.settings, option)
    if value not in allowed:
        raise OdeumError(
            f"{option}={value} of this model has no equal in transformers beside its architecture; train with "
            f"--model.{option} {' or '.join(map(str, allowed))}, or {ELSEWHERE}"
        )


def acting_layers(stack: Any) -> list[Weights]:
    """The weights of each layer by role, in the order in which layers act; a shared layer is there several times."""
    stored = by_role(stack)
    flows = [
        {name.removeprefix(f"layers.{i}."): w for name, w in stored.items() if name.startswith(f"layers.{i}.")}
        for i in range(len(stack.flows))
    ]
    return [flows[i] for i in stack.schedule]


def _copies(*stacks: Any) -> int:
    """Numbers that are written more than once, because layers share them."""
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


def _shape(model: OdeumModel) -> dict[str, Any]:
    """What most configurations call alike."""
    s = model.settings
    return {
        "hidden_size": s.width,
        "num_hidden_layers": s.depth,
        "num_attention_heads": s.heads,
        "intermediate_size": s.hidden or 4 * s.width,
        "hidden_act": ACTIVATIONS[s.activation],
    }


def _language(model: LanguageModel) -> Native:
    _need(model, "embedding", "tied")
    form, s = layer_form(model.architecture), model.settings
    if s.positions != "rotary":
        if form != "sequential":
            raise OdeumError(
                f"{spell(model.architecture)} with positions={s.positions} has no equal in transformers; train with "
                f"--model.positions rotary, or {ELSEWHERE}"
            )
        return _gpt2(model)
    if s.width // s.heads % 2:
        raise OdeumError(f"rotary positions need an even head width, got {s.width // s.heads}")
    gated, rms = s.activation == "swiglu", s.norm_kind == "rms"
    if form == "sequential" and gated and rms:
        return _llama(model)
    if gated or rms:
        raise OdeumError(
            f"{spell(model.architecture)} with norm_kind={s.norm_kind} and activation={s.activation} has no equal in "
            "transformers: sequential layers have one with rms and swiglu (Llama) or layer and gelu or relu "
            f"(GPT-NeoX), parallel ones with layer and gelu or relu; {ELSEWHERE}"
        )
    return _phi(model) if form == "shared" else _neox(model, form == "parallel")


def _ends(model: LanguageModel) -> tuple[Tensor, Tensor]:
    """The input matrix with its factor, and the output matrix."""
    weight = model.embedding.weight
    return weight * model.embedding.scale, weight  # ty: ignore[unsupported-operator, invalid-return-type]


def _rope(partial: float = 1.0) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": partial}


def _neox(model: LanguageModel, parallel: bool) -> Native:
    s, layers = model.settings, acting_layers(model.stack)
    out: Weights = {}
    out["gpt_neox.embed_in.weight"], out["embed_out.weight"] = _ends(model)
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
        "rope_parameters": _rope(),
        "tie_word_embeddings": False,
        "hidden_dropout": s.dropout,
    }
    return Native("GPTNeoXForCausalLM", config, out, _copies(model.stack))


def _phi(model: LanguageModel) -> Native:
    s, layers = model.settings, acting_layers(model.stack)
    out: Weights = {}
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _ends(model)
    out["lm_head.bias"] = out["lm_head.weight"].new_zeros(s.vocabulary)
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
        "rope_parameters": _rope(),
        "tie_word_embeddings": False,
        "resid_pdrop": s.dropout,
    }
    return Native("PhiForCausalLM", config, out, _copies(model.stack))


def _llama(model: LanguageModel) -> Native:
    s, layers = model.settings, acting_layers(model.stack)
    out: Weights = {}
    out["model.embed_tokens.weight"], out["lm_head.weight"] = _ends(model)
    for i, layer in enumerate(layers):
        at = f"model.layers.{i}"
        _split(layer, "attention.qkv", [f"{at}.self_attn.{name}_proj" for name in "qkv"], out, s.bias)
        _copy(layer, "attention.out", f"{at}.self_attn.o_proj", out, bias=s.bias)
        _copy(layer, "attention.norm", f"{at}.input_layernorm", out, bias=False)
        _copy(layer, "feedforward.norm", f"{at}.post_attention_layernorm", out, bias=False)
        _split(layer, "feedforward.up", [f"{at}.mlp.{name}_proj" for name in ("gate", "up")], out, s.bias)
        _copy(layer, "feedforward.down", f"{at}.mlp.down_proj", out, bias=s.bias)
    _copy(by_role(model), "stack.norm", "model.norm", out, bias=False)
    config = {
        **_shape(model),
        "vocab_size": s.vocabulary,
        "max_position_embeddings": s.length,
        "num_key_value_heads": s.heads,
        "rms_norm_eps": s.norm_eps,
        "attention_bias": s.bias,
        "mlp_bias": s.bias,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": False,
    }
    return Native("LlamaForCausalLM", config, out, _copies(model.stack))


def _gpt2(model: LanguageModel) -> Native:
    s, layers = model.settings, acting_layers(model.stack)
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    out: Weights = {}
    out["transformer.wte.weight"], out["lm_head.weight"] = _ends(model)
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
        "activation_function": ACTIVATIONS[s.activation],
        "layer_norm_epsilon": s.norm_eps,
        "tie_word_embeddings": False,
        "resid_pdrop": s.dropout,
        "embd_pdrop": s.dropout,
        "attn_pdrop": 0.0,
    }
    return Native("GPT2LMHeadModel", config, out, _copies(model.stack))


def position_table(model: Any, like: Tensor, length: int | None = None) -> Tensor:
    """The table that is added, one row per position; as many as the model's length unless another number is given."""
    table = model.positions.added(like)
    assert table is not None
    return table[: length or model.settings.length]


def _split(layer: Weights, ours: str, theirs: list[str], out: Weights, bias: bool = True) -> None:
    """One map of ours as several of theirs."""
    joined: Weights = {}
    _copy(layer, ours, "", joined, bias=bias)
    for name, tensor in joined.items():
        for part, target in zip(tensor.chunk(len(theirs)), theirs, strict=True):
            out[f"{target}{name}"] = part


def _vision(model: VisionModel) -> Native:
    if layer_form(model.architecture) != "sequential":
        raise OdeumError(
            f"{spell(model.architecture)} has no equal among the image classes of transformers; {ELSEWHERE}"
        )
    _need(model, "stem", "patch")
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    s, stored, out = model.settings, by_role(model), {}
    token = s.pooling == "token"
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
        raise OdeumError(
            f"{spell(model.architecture)} has no equal among the text classifiers of transformers; {ELSEWHERE}"
        )
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
    notes = (f"token {s.vocabulary} stands for the class token; the tokenizer puts it before each text",)
    return Native("MegatronBertForSequenceClassification", config, out, _copies(model.stack), notes)


def _translation(model: TranslationModel) -> Native:
    s = model.settings
    if s.positions == "rotary":
        _need(model, "positions", "sinusoidal", "learned")
    _need(model, "norm_kind", "layer")
    _need(model, "activation", "gelu", "relu")
    decoder = model.architecture if s.decoder is None else parse(s.decoder)
    for what, architecture in (("architecture", model.architecture), ("decoder", decoder)):
        if layer_form(architecture, what) != "sequential":
            raise OdeumError(f"the {what} '{spell(architecture)}' has no equal in transformers; {ELSEWHERE}")
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
        "activation_function": ACTIVATIONS[s.activation],
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
                f"this version of transformers ({transformers.__version__}) has other weights in {native.name}: "
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
            inputs[name] = torch.randint(0, high, tensor.shape, generator=random)
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
