"""Configuration of our models for transformers: their settings, and the sizes that its tools look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig

from odeum.decode.common import cacheable
from odeum.draws import shapes_only
from odeum.errors import OdeumError
from odeum.fields.base import Context, Source
from odeum.fields.cache import Cache
from odeum.models import OdeumModel, assemble
from odeum.models.language import LanguageModel
from odeum.models.saved import settings_from_record, settings_record
from odeum.models.settings import Model, kind_of_settings, resolve
from odeum.models.translation import TranslationModel
from odeum.registry.spelling import parse, spell

SIZES = {"vocab_size": "vocabulary", "num_labels": "classes"}
"""settings that transformers may change (new tokens, another head), by our names"""


class OdeumConfig(PreTrainedConfig):
    """A spelling of an architecture and the settings of a kind of model.

    `num_hidden_layers` is the number of slots that a decoding cache needs, one for each evaluation of attention: a
    layer of RK4 has four. The depth is in `settings`.
    """

    model_type: ClassVar[str] = "odeum"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    kind: str = "Language"
    architecture: str = "sequential"
    settings: dict[str, Any] | None = None
    vocab_size: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_hidden_layers: int | None = None
    max_position_embeddings: int | None = None
    use_cache: bool = True
    tie_word_embeddings: bool = False  # one tensor serves both ends: there is nothing to tie
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.settings = dict(self.settings or {})
        if self.id2label is None and "num_labels" not in kwargs and "classes" in self.settings:
            kwargs["num_labels"] = self.settings["classes"]
        if self.vocab_size is None:
            self.vocab_size = self.settings.get("vocabulary")
        super().__post_init__(**kwargs)
        model = settings_from_record(self.kind, self.settings)
        self.is_encoder_decoder = hasattr(model, "decoder_depth")
        self.hidden_size, self.num_attention_heads = model.width, model.heads
        self.max_position_embeddings = getattr(model, "length", None)
        if self.num_hidden_layers is None:
            slots, cached = count_slots(self.architecture, model)
            self.num_hidden_layers, self.use_cache = slots or model.depth, self.use_cache and cached

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = "AutoConfig") -> None:
        """Do nothing: transformers would copy the file of this class beside the weights, instead of the loader."""

    def model_settings(self) -> Model:
        """The settings that the model is built from: ours, with what transformers has changed."""
        values = dict(self.settings or {})
        for theirs, ours in SIZES.items():
            if ours in values and getattr(self, theirs, None) is not None:
                values[ours] = getattr(self, theirs)
        return settings_from_record(self.kind, values)

    @classmethod
    def of(cls, model: OdeumModel, **more: Any) -> OdeumConfig:
        """The configuration of a model."""
        return cls(
            kind=type(model.settings).__name__,
            architecture=spell(model.architecture),
            settings=settings_record(model.settings),
            **more,
        )


def count_slots(architecture: str, settings: Model) -> tuple[int, bool]:
    """How many slots a decoding pass visits, counted without numbers; and whether there may be a cache at all."""
    with shapes_only(), torch.no_grad():
        model = assemble(parse(architecture), settings)
        slots, other = SlotCounter(), SlotCounter()
        ids = torch.zeros(1, 1, dtype=torch.long)
        if not cacheable(model):
            return 0, False
        if isinstance(model, LanguageModel):
            model.hidden(ids, cache=slots)
        elif isinstance(model, TranslationModel):
            x, memory = torch.empty(1, 1, settings.width), torch.empty(1, 1, settings.width)
            rotary = model.positions.rotary(ids)
            sources = Source(causal=True, cache=slots, rotary=rotary), Source(memory=memory, cache=other)
            model.decoder(x, Context(*sources))
    return max(slots.cursor, other.cursor), True


LOADER = '''"""Loads this folder by `from_pretrained(…, trust_remote_code=True)`; needs `pip install odeum[hf]`."""

from odeum.hf import *  # noqa: F403
'''


def write_loader(directory: str | Path) -> None:
    """Write the module that `auto_map` in the configuration names, so that odeum.hf need not be imported first."""
    (Path(directory) / "modeling_odeum.py").write_text(LOADER, encoding="utf-8")


class SlotCounter(Cache):
    """A cache that counts its slots in one pass."""

    def advance(self, positions: int) -> None:
        self.length += positions


def class_of(kind: str) -> Any:
    """The class of `odeum.hf` that wraps models with these settings, given by the settings' name.

    Raises OdeumError if the settings are not known, or their model names no such class.
    """
    known = kind_of_settings(kind)
    wrapper = None if known is None else resolve(known.model_class.hf_class)
    if wrapper is None:
        raise OdeumError(f"no class of odeum.hf wraps {kind} models; name one in `hf_class` of the model's class")
    return wrapper
