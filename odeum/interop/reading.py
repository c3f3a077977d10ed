"""Configurations and weights of other libraries, read so that nothing is silently ignored.

Every configuration value and every tensor is used, refused with an error, or reported in a note.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from odeum.errors import OdeumError
from odeum.models.pretrained import RotaryScaling
from odeum.models.settings import Model
from odeum.registry.names import Architecture

HARMLESS = re.compile(
    r"(_.*|.*_token_ids?|architectures|transformers_version|(torch_)?dtype|initializer_\w+|use_cache|id2label|label2id|"
    r"num_labels|problem_type|torchscript|use_bfloat16|pruned_heads|output_\w+|return_dict|gradient_checkpointing|"
    r"finetuning_task|task_specific_params|tokenizer_class|chunk_size_feed_forward|(attn|resid|embd)_pdrop|.*dropout\w*|"
    r"summary_\w+|n_ctx|do_sample|length_penalty|max_length|min_length|num_beams\w*|num_return_sequences|temperature|"
    r"top_[kp]|repetition_penalty|early_stopping|no_repeat_ngram_size|encoder_stride|pooler_\w+|pretraining_tp|prefix|"
    r"model_type|is_encoder_decoder|cross_attention_hidden_size|reorder_and_upcast_attn|max_window_layers|is_decoder|"
    r"down_scale_factor|gap_size|net_structure_type|num_memory_blocks|condition_on_\w+|name_or_path|bad_words_ids|"
    r"classifier_\w+|tie_encoder_decoder|typical_p|diversity_penalty|remove_invalid_values|exponential_decay\w*|"
    r"suppress_tokens|begin_suppress_tokens|forced_\w+|sep_token_id|decoder_start_token_id|num_beam_groups|"
    r"encoder_no_repeat_ngram_size|block|auto_map|bos_token|eos_token|use_mems_\w+|attn_implementation|"
    r"rope_theta|rope_scaling|rope_parameters|partial_rotary_factor|rotary_pct|rotary_emb_base|layer_types|"
    r"use_sliding_window)"
)
"""configuration names that do not affect the logits, or that are read separately"""


SIZES_OF_WEIGHTS = {
    "width": ("hidden_size", "n_embd"),
    "depth": ("num_hidden_layers", "n_layer"),
    "hidden": ("intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
}
"""settings that the weights determine: our name and the names in configurations"""


@contextlib.contextmanager
def convert_errors(what: str) -> Generator[None]:
    """Turn exceptions caused by values of an unexpected type in the files of other libraries into `OdeumError`."""
    try:
        yield
    except OdeumError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise OdeumError(f"{what}: {' '.join(str(error).split())} ({type(error).__name__})") from error


ACTIVATION_NAMES: dict[str, tuple[str, str | None]] = {
    "gelu": ("gelu", None),
    "gelu_python": ("gelu", None),
    "gelu_new": ("gelu", "gelu-tanh"),
    "gelu_fast": ("gelu", "gelu-tanh"),
    "gelu_pytorch_tanh": ("gelu", "gelu-tanh"),
    "gelutanh": ("gelu", "gelu-tanh"),
    "quick_gelu": ("gelu", "quick-gelu"),
    "quickgelu": ("gelu", "quick-gelu"),
    "relu": ("relu", None),
    "silu": ("gelu", "silu"),
    "swish": ("gelu", "silu"),
}
"""name in a configuration: our `activation`, and the activation of `Pretrained` that overrides it"""
GATED_NAMES: dict[str, tuple[str, str | None]] = {
    "silu": ("swiglu", None),
    "swish": ("swiglu", None),
    "gelu": ("swiglu", "geglu"),
    "gelu_pytorch_tanh": ("swiglu", "geglu-tanh"),
    "gelu_new": ("swiglu", "geglu-tanh"),
    "relu": ("swiglu", "reglu"),
}


Names = Mapping[str, str | tuple[str, ...]]
"""Role of a part of a layer: its name in the source.

Several names are linear maps of the same input, which are concatenated. A role that ends in `?` may be missing.
"""


NORMS = ("norm", "inner", "outer")
"""endings of the roles of norms"""


class Config:
    """A configuration that records which of its values were read."""

    def __init__(self, values: dict[str, Any], family: str) -> None:
        self.values, self.family = values, family
        self.read: set[str] = set()
        self.notes: list[str] = []

    def known(self, *names: str) -> None:
        """Mark values as read that the weights determine or that do not matter."""
        self.read |= set(names)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these values that is present and not None."""
        self.known(*names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def number(self, *names: str, default: float) -> float:
        """The first of these values that is present, which must be a finite number."""
        value = self.get(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            name = next(name for name in names if self.values.get(name) is not None)
            raise OdeumError(f"{name}={value!r} in the configuration of this {self.family} must be a number")
        return value

    def must(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse a value that would change the model in a way that cannot be imported."""
        self.known(name)
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise OdeumError(f"{name}={value!r} of this {self.family} cannot be imported: {why}")

    def activation(self, *names: str, default: str, gated: bool = False) -> tuple[Any, Any]:
        """Our `activation`, and the activation of `Pretrained` that overrides it (or None)."""
        name, known = str(self.get(*names, default=default)), GATED_NAMES if gated else ACTIVATION_NAMES
        if name not in known:
            raise OdeumError(
                f"the activation '{name}' of this {self.family} is not supported; supported: {', '.join(known)}"
            )
        return known[name]

    def heads(self, width: int, *names: str) -> int:
        """The number of heads; if the configuration has none, 64 features per head, with a note."""
        heads = int(self.number(*names, default=0))
        if heads < 1 and self.get(*names) is not None:
            raise OdeumError(f"{names[0]}={self.get(*names)} of this {self.family} must be one or more heads")
        if not heads:
            heads = max(1, width // 64)
            self.notes.append(f"the configuration has no number of heads; {heads} heads of 64 features are assumed")
        return heads

    def dropout(self, branch: tuple[str, ...], attention: tuple[str, ...]) -> float:
        """The dropout of the residual branches; attention weights have none here, which a note says."""
        if attention and (rate := self.number(*attention, default=0.0)):
            self.notes.append(
                f"the source applies dropout to attention weights in training (rate {rate:g}), which Odeum does not "
                "have; fine-tuning differs in this"
            )
        return float(self.number(*branch, default=0.0))

    def rotary(self, head_width: int, share: float) -> tuple[float, int, RotaryScaling | None]:
        """Base, number of rotated features, and scaling of rotary positions; unknown scalings are refused."""
        rope = self.values.get("rope_parameters") or self.values.get("rope_scaling") or {}
        if not isinstance(rope, dict):
            raise OdeumError(f"rope_parameters={rope!r} of this {self.family} must be a group of settings")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if any(isinstance(value, dict) for value in rope.values()):
            raise OdeumError(f"rope_parameters that differ by kind of layer cannot be imported: {', '.join(rope)}")
        inner, scaling = Config(rope, self.family), None
        if kind == "linear":
            scaling = RotaryScaling(float(inner.number("factor", default=1.0)))
        elif kind == "llama3":
            names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
            if missing := [name for name in names if rope.get(name) is None]:
                raise OdeumError(f"rope_scaling of the kind 'llama3' lacks {missing[0]} in this {self.family}")
            scaling = RotaryScaling(*(float(inner.number(name, default=1.0)) for name in names))
        elif kind != "default":
            raise OdeumError(
                f"rope_scaling of the kind '{kind}' cannot be imported; supported kinds: default, linear, llama3"
            )
        base = inner.number("rope_theta", default=self.number("rope_theta", "rotary_emb_base", default=10_000.0))
        part = inner.number(
            "partial_rotary_factor", default=self.number("partial_rotary_factor", "rotary_pct", default=share)
        )
        return (
            float(base),
            check_rotary_width("partial_rotary_factor", part, head_width, int(head_width * part)),
            scaling,
        )

    def refuse_other_sizes(self, settings: Model) -> None:
        """Refuse sizes that differ from those of the weights, because the configuration then belongs to others."""
        for ours, theirs in SIZES_OF_WEIGHTS.items():
            value = getattr(settings, ours, None)
            for name in theirs:
                if value is not None and self.values.get(name) not in (None, value):
                    raise OdeumError(
                        f"{name}={self.values[name]!r} in the configuration of this {self.family} does not fit its "
                        f"weights, which are of {ours} {value}"
                    )

    def note_unknown(self) -> None:
        """Add a note that lists the values which nothing has read."""
        unknown = [
            f"{name}={value!r}"
            for name, value in self.values.items()
            if name not in self.read and not HARMLESS.fullmatch(name) and value not in (None, False, [], {}, "")
        ]
        if unknown:
            self.notes.append(f"unknown settings of the configuration are ignored: {', '.join(sorted(unknown))}")


def check_rotary_width(name: str, value: Any, head_width: int, rotated: int) -> int:
    """Returns `rotated`, the number of features of a head that rotary positions turn in pairs."""
    if rotated % 2 or not 0 < rotated <= head_width:
        raise OdeumError(
            f"{name}={value} cannot be imported: it would rotate {rotated} of the {head_width} features of a head; "
            "the number must be even and at least 2"
        )
    return rotated


class NamedWeights:
    """Tensors by name, without the prefix of a base model; it records which were taken."""

    def __init__(self, tensors: dict[str, Tensor], prefixes: Iterable[str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            short = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
            short = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", short))  # early BERT files
            self.tensors[short] = tensor
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str) -> Tensor:
        """The tensor of that name, in float32 or wider."""
        self.taken.add(name)
        if name not in self.tensors:
            raise OdeumError(f"the weights contain no '{name}'; they have {', '.join(sorted(self.tensors)[:4])} …")
        tensor = self.tensors[name]
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor

    def change(self, pattern: str, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a function to the tensors whose names match, in float32 or wider."""
        for name in [name for name in self.tensors if re.fullmatch(pattern, name)]:
            taken = name in self.taken
            self.tensors[name] = function(self.take(name)).contiguous()
            if not taken:
                self.taken.remove(name)

    def count(self, layers: str) -> int:
        """The number of layers in the list of that name."""
        pattern = re.compile(rf"{re.escape(layers)}\.(\d+)\.")
        numbers = [int(match[1]) for name in self.tensors if (match := pattern.match(name))]
        if not numbers:
            raise OdeumError(f"the weights contain no layers named '{layers}.0.…'")
        return max(numbers) + 1

    def linear(self, ours: str, *theirs: str) -> dict[str, Tensor]:
        """One or more linear maps of the same input, concatenated; a missing bias is zeros."""
        weights = [self.take(f"{name}.weight") for name in theirs]
        biases = [
            self.take(f"{name}.bias") if f"{name}.bias" in self else torch.zeros(weight.shape[0])
            for name, weight in zip(theirs, weights, strict=True)
        ]
        return {f"{ours}.weight": torch.cat(weights), f"{ours}.bias": torch.cat(biases)}

    def norm(self, ours: str, theirs: str, kind: str = "layer") -> dict[str, Tensor]:
        """A LayerNorm, or an RMSNorm (kind `rms`), which has no bias."""
        weight = self.take(f"{theirs}.weight")
        if kind == "rms":
            return {f"{ours}.weight": weight}
        if f"{theirs}.bias" not in self:
            raise OdeumError(
                f"the norm '{theirs}' has no bias, so it is not a LayerNorm; this model cannot be imported"
            )
        return {f"{ours}.weight": weight, f"{ours}.bias": self.take(f"{theirs}.bias")}

    def layer(self, theirs: str, names: Names, kind: str = "layer") -> dict[str, Tensor]:
        """The tensors of one layer by role; `kind` is that of its norms."""
        tensors: dict[str, Tensor] = {}
        for role, name in names.items():
            ours = role.removesuffix("?")
            parts = [f"{theirs}.{part}" for part in ((name,) if isinstance(name, str) else name)]
            if role.endswith("?") and f"{parts[0]}.weight" not in self:
                continue
            tensors |= self.norm(ours, parts[0], kind) if ours.endswith(NORMS) else self.linear(ours, *parts)
        return tensors

    def layers(
        self, ours: str, theirs: str, names: Names, kind: str = "layer", inner: str = ""
    ) -> tuple[int, dict[str, Tensor]]:
        """The number of layers in the list `theirs` and their tensors by role; `inner` is a path inside each layer."""
        count = self.count(theirs)
        layers = {
            f"{ours}.{i}.{role}": tensor
            for i in range(count)
            for role, tensor in self.layer(f"{theirs}.{i}{inner}", names, kind).items()
        }
        return count, layers

    def left(self, ignored: str) -> list[str]:
        """Names of the tensors that were not taken and do not match `ignored`."""
        return sorted(name for name in self.tensors if name not in self.taken and not re.search(ignored, name))


class Converted(NamedTuple):
    """A pretrained model in Odeum's terms."""

    settings: Model
    architecture: Architecture
    weights: dict[str, Tensor]
    """by role"""
    notes: list[str]
    """for the user"""
    new_head: bool = False
    """whether the source has no head, so that the model gets an untrained one"""
