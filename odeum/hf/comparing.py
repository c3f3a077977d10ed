"""Compare an imported model with its source in transformers: the largest difference of a logit."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import torch
import transformers

from odeum.hf.configuration import class_of
from odeum.interop.loading import Imported
from odeum.models.vision import ImageModel

LENGTH = 24


@contextlib.contextmanager
def silence_transformers() -> Generator[None]:
    """Context without the progress bars and log messages of transformers."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def difference(imported: Imported) -> float | None:
    """The largest difference on random input; None if transformers cannot read the source, or the head is new."""
    folder, model = imported.source.folder, imported.model
    config = {
        key: value for key, value in imported.source.config.items() if key not in ("id2label", "label2id", "num_labels")
    }
    if folder is None or imported.family == "timm_vit" or not config or imported.new_head:
        return None
    classes: Any = getattr(model.settings, "classes", None)
    named = {} if classes is None else {"num_labels": classes}
    random = torch.Generator().manual_seed(0)
    try:
        # by the type that the source gives itself: --family may say that a Gemma is a Llama, which it is not
        known_type = config.get("model_type") in transformers.CONFIG_MAPPING
        with silence_transformers():
            called = config if known_type else config | {"model_type": imported.family}
            their_config = transformers.AutoConfig.for_model(**called, **named)
            auto = getattr(transformers, class_of(type(model.settings).__name__).auto_model)
            theirs = auto.from_pretrained(folder, config=their_config, dtype=torch.float32).eval()
    except Exception:  # a source that transformers cannot read is no mistake of the user
        return None
    if isinstance(model, ImageModel):
        side = model.settings.image_size
        x = torch.randn(2, model.settings.channels, side, side, generator=random)
    else:
        settings: Any = model.settings
        x = torch.randint(settings.vocabulary, (2, min(LENGTH, settings.length)), generator=random)
    with torch.no_grad():
        return float((model(x).logits - theirs(x).logits).abs().max())
