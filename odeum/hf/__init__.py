"""Odeum's models for transformers: `import odeum.hf`, and the Auto classes know them.

    AutoModelForCausalLM.from_pretrained(DIR).generate(…)      DIR is written by odeum.hf.save(RUN, DIR)

Everything that takes a transformers model takes these: generate, pipeline, Trainer, peft, the hub.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError

try:
    import transformers

    transformers.PreTrainedModel  # noqa: B018 (transformers loads it, and what it needs, when asked)
except ImportError as error:
    if find_spec("transformers") is None:
        raise OdeumError("odeum.hf needs transformers; `pip install odeum[hf]`") from None
    reason: BaseException = error
    while reason.__cause__ is not None:
        reason = reason.__cause__
    raise OdeumError(
        f"transformers is installed but cannot be imported ({reason}); another package, such as torchvision, may be "
        "built for another version of torch"
    ) from None

from odeum.hf.base import OdeumBaseModel
from odeum.hf.card import model_card
from odeum.hf.causal import OdeumForCausalLM
from odeum.hf.classifiers import OdeumForImageClassification, OdeumForMaskedLM, OdeumForSequenceClassification
from odeum.hf.configuration import OdeumConfig
from odeum.hf.image_processor import OdeumImageProcessor
from odeum.hf.seq2seq import OdeumForSeq2SeqLM
from odeum.hf.tokenizer import make_tokenizer

if TYPE_CHECKING:
    from odeum.lab.hf_run import from_run, save

__all__ = [
    "OdeumBaseModel",
    "OdeumConfig",
    "OdeumForCausalLM",
    "OdeumForImageClassification",
    "OdeumForMaskedLM",
    "OdeumForSeq2SeqLM",
    "OdeumForSequenceClassification",
    "OdeumImageProcessor",
    "from_run",
    "make_tokenizer",
    "model_card",
    "save",
]

transformers.AutoConfig.register("odeum", OdeumConfig, exist_ok=True)
for _class in (
    OdeumBaseModel,
    OdeumForCausalLM,
    OdeumForImageClassification,
    OdeumForMaskedLM,
    OdeumForSeq2SeqLM,
    OdeumForSequenceClassification,
):
    getattr(transformers, _class.auto_model).register(OdeumConfig, _class, exist_ok=True)
transformers.AutoImageProcessor.register(OdeumConfig, image_processor_classes={"pil": OdeumImageProcessor})


def __getattr__(name: str) -> Any:
    """Resolve the two names that read a run directory, and so need the lab, on first use."""
    if name in ("from_run", "save"):
        return getattr(import_module("odeum.lab.hf_run"), name)
    raise AttributeError(f"module 'odeum.hf' has no attribute '{name}'")
