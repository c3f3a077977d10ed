"""Reading a configuration and weights of others: every number is used, refused or told of, and every tensor too."""

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
"""what changes no logits, or is read apart"""


SIZES_OF_WEIGHTS = {
    "width": ("hidden_size", "n_embd"),
    "depth": ("num_hidden_layers", "n_layer"),
    "hidden": ("intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
}
"""our settings that weights show, and what configurations call them"""


@contextlib.contextmanager
def convert_errors(what: str) -> Generator[None]:
    """Raise `OdeumError` where a value of a file from elsewhere is of a type that nobody reads."""
    try:
        yield
    except OdeumError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise OdeumError(f"{what}: {' '.join(str(error).split())} ({type(error).__name__})") from error


class Config:
    """A configuration that notes what was read of it."""

    def __init__(self, values: dict[str, Any], family: str) -> None:
        self.values, self.family = values, family
        self.read: set[str] = set()
        self.notes: list[str] = []

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these names that is there and not none."""
        self.read |= set(names)
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def number(self, *names: str, default: float) -> float:
        """The same for a number; anything else is a mistake of the configuration."""
        value = self.get(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            name = next(name for name in names if self.values.get(name) is not None)
            raise OdeumError(f"{name}={value!r} in the configuration of this {self.family} must be a number")
        return value

    def must(self, name: str, *allowed: Any, why: str) -> None:
        """Refuse a value that would make another model."""
        self.read.add(name)
        value = self.values.get(name)
        if value is not None and value not in allowed:
            raise OdeumError(f"{name}={value!r} of this {self.family} cannot be imported: {why}")

    def refuse_other_sizes(self, settings: Model) -> None:
        """Sizes are read off the weights; a configuration that says others belongs to other weights."""
        for ours, theirs in SIZES_OF_WEIGHTS.items():
            value = getattr(settings, ours, None)
            for name in theirs:
                if value is not None and self.values.get(name) not in (None, value):
                    raise OdeumError(
                        f"{name}={self.values[name]!r} in the configuration of this {self.family} does not fit its "
                        f"weights, which are of {ours} {value}"
                    )

    def finish(self) -> None:
        """Tell of what is not known."""
        unknown = [
            f"{name}={value!r}"
            for name, value in self.values.items()
            if name not in self.read and not HARMLESS.fullmatch(name) and value not in (None, False, [], {}, "")
        ]
        if unknown:
            self.notes.append(f"the configuration says {', '.join(sorted(unknown))}, which is not known here")


class NamedWeights:
    """Tensors by their names, without the prefix of a base model; those that were not taken can be told."""

    def __init__(self, tensors: dict[str, Tensor], prefixes: Iterable[str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            short = next((name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)), name)
            short = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", short))  # of the first BERTs
            self.tensors[short] = tensor
        self.taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str) -> Tensor:
        """The tensor of that name, in single precision at least."""
        self.taken.add(name)
        if name not in self.tensors:
            raise OdeumError(f"the weights hold no '{name}'; they have {', '.join(sorted(self.tensors)[:4])} …")
        tensor = self.tensors[name]
        return tensor.to(torch.promote_types(tensor.dtype, torch.float32)) if tensor.is_floating_point() else tensor

    def change(self, pattern: str, function: Callable[[Tensor], Tensor]) -> None:
        """Replace tensors with these names, in single precision at least."""
        for name in [name for name in self.tensors if re.fullmatch(pattern, name)]:
            taken = name in self.taken
            self.tensors[name] = function(self.take(name)).contiguous()
            if not taken:
                self.taken.remove(name)

    def bias(self, name: str, like: Tensor) -> Tensor:
        """The bias of a map; zeros where the source has none."""
        return self.take(name) if name in self.tensors else torch.zeros(like.shape[0])

    def count(self, pattern: str) -> int:
        """How many layers there are: one more than the largest number in that place."""
        numbers = [int(m[1]) for name in self.tensors if (m := re.match(pattern, name))]
        if not numbers:
            first = pattern.replace(r"(\d+)", "0").replace("\\", "")
            raise OdeumError(f"the weights hold no layers by the name of '{first}'")
        return max(numbers) + 1

    def left(self, ignored: str) -> list[str]:
        """Names that nobody took, but for those that match."""
        return sorted(n for n in self.tensors if n not in self.taken and not re.search(ignored, n))


class Converted(NamedTuple):
    """A source in our words: settings, architecture, weights by role, and what a user should know."""

    settings: Model
    architecture: Architecture
    weights: dict[str, Tensor]
    notes: list[str]


def linear(weights: NamedWeights, ours: str, theirs: str) -> dict[str, Tensor]:
    """A linear map or a norm under our name; a bias that the source lacks is zeros."""
    weight = weights.take(f"{theirs}.weight")
    return {f"{ours}.weight": weight, f"{ours}.bias": weights.bias(f"{theirs}.bias", weight)}


def norm(weights: NamedWeights, ours: str, theirs: str, kind: str = "layer") -> dict[str, Tensor]:
    """A LayerNorm under our name, or an RMSNorm (kind `rms`), which has no bias."""
    weight = weights.take(f"{theirs}.weight")
    if kind == "rms":
        return {f"{ours}.weight": weight}
    if f"{theirs}.bias" not in weights:
        raise OdeumError(f"the norm '{theirs}' has no bias, so it is no LayerNorm; this model cannot be imported")
    return {f"{ours}.weight": weight, f"{ours}.bias": weights.take(f"{theirs}.bias")}


def stacked(weights: NamedWeights, ours: str, names: Iterable[str]) -> dict[str, Tensor]:
    """Several maps of the same input as one."""
    parts = [linear(weights, "", name) for name in names]
    return {
        f"{ours}.weight": torch.cat([part[".weight"] for part in parts]),
        f"{ours}.bias": torch.cat([part[".bias"] for part in parts]),
    }


Names = Mapping[str, str | tuple[str, ...]]
"""of the parts of a layer by our roles; several names are maps of the same input, and ? marks what may be missing"""


def take_layer(weights: NamedWeights, theirs: str, names: Names, kind: str = "layer") -> dict[str, Tensor]:
    """The tensors of one layer by our roles; norms are of this kind."""
    out: dict[str, Tensor] = {}
    for role, name in names.items():
        ours, parts = role.removesuffix("?"), (name,) if isinstance(name, str) else name
        if role.endswith("?") and f"{theirs}.{parts[0]}.weight" not in weights:
            continue
        if ours.endswith("norm"):
            out |= norm(weights, ours, f"{theirs}.{parts[0]}", kind)
        else:
            out |= stacked(weights, ours, [f"{theirs}.{part}" for part in parts])
    return out


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
"""their name: our setting, and the one of pretrained models that overrules it"""
GATED_NAMES: dict[str, tuple[str, str | None]] = {
    "silu": ("swiglu", None),
    "swish": ("swiglu", None),
    "gelu": ("swiglu", "geglu"),
    "gelu_pytorch_tanh": ("swiglu", "geglu-tanh"),
    "gelu_new": ("swiglu", "geglu-tanh"),
    "relu": ("swiglu", "reglu"),
}


def activation(config: Config, *names: str, default: str, gated: bool = False) -> tuple[str, Any]:
    """Our two settings for an activation of theirs."""
    name, known = str(config.get(*names, default=default)), GATED_NAMES if gated else ACTIVATION_NAMES
    if name not in known:
        raise OdeumError(f"the activation '{name}' of this {config.family} is not known; known: {', '.join(known)}")
    return known[name]


def heads_of(config: Config, width: int, *names: str) -> int:
    """How many heads there are; 64 features each, which is told, where no configuration says it."""
    heads = int(config.number(*names, default=0))
    if heads < 1 and config.get(*names) is not None:
        raise OdeumError(f"{names[0]}={config.get(*names)} of this {config.family} must be one or more heads")
    if not heads:
        heads = max(1, width // 64)
        config.notes.append(f"no configuration says how many heads there are; {heads} of 64 features are assumed")
    return heads


def check_rotary_width(name: str, value: Any, head_width: int, turning: int) -> int:
    """The features of a head that turn, which are pairs."""
    if turning % 2 or not 0 < turning <= head_width:
        raise OdeumError(
            f"{name}={value} cannot be imported: {turning} of the {head_width} features of a head would turn, and it "
            "takes an even number of them, two at least"
        )
    return turning


def rotary_of(config: Config, head_width: int, share: float) -> tuple[float, int, RotaryScaling | None]:
    """Base, number of turning features, and a scaling by a fixed factor per wavelength; others are refused."""
    rope = config.values.get("rope_parameters") or config.values.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise OdeumError(f"rope_parameters={rope!r} of this {config.family} must be a group of settings")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if any(isinstance(value, dict) for value in rope.values()):
        raise OdeumError(f"rope_parameters by the kind of layer cannot be imported: {', '.join(rope)} would differ")
    inner, scaling = Config(rope, config.family), None
    if kind == "linear":
        scaling = RotaryScaling(float(inner.number("factor", default=1.0)))
    elif kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        if missing := [name for name in names if rope.get(name) is None]:
            raise OdeumError(f"rope_scaling of the kind 'llama3' lacks {missing[0]} in this {config.family}")
        scaling = RotaryScaling(*(float(inner.number(name, default=1.0)) for name in names))
    elif kind != "default":
        raise OdeumError(
            f"rope_scaling of the kind '{kind}' cannot be imported: positions would turn otherwise; default, linear "
            "and llama3 are known"
        )
    base = inner.number("rope_theta", default=config.number("rope_theta", "rotary_emb_base", default=10_000.0))
    part = inner.number(
        "partial_rotary_factor", default=config.number("partial_rotary_factor", "rotary_pct", default=share)
    )
    turning = check_rotary_width("partial_rotary_factor", part, head_width, int(head_width * part))
    return float(base), turning, scaling


def dropout_of(config: Config, hidden: tuple[str, ...], inner: tuple[str, ...]) -> float:
    """Of the residual branches; on attention weights there is none here, which is told."""
    if inner and (value := config.number(*inner, default=0.0)):
        config.notes.append(
            f"the source drops attention weights ({value:g}) in training; here there is no such dropout, so "
            "fine-tuning differs in that"
        )
    return float(config.number(*hidden, default=0.0))
