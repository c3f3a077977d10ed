"""From a run of Odeum to a model of transformers, in memory or in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from odeum.errors import OdeumError
from odeum.hf.card import model_card
from odeum.hf.configuration import class_of
from odeum.hf.image_processor import OdeumImageProcessor
from odeum.hf.tokenizer import make_tokenizer
from odeum.lab.tasks import KINDS, Task, load_task
from odeum.lab.tasks.image_base import PictureTask
from odeum.lab.tasks.language.task import LanguageTask
from odeum.models.base import OdeumModel
from odeum.models.saved import load_model
from odeum.tokens import Tokens


def from_run(run: str | Path) -> Any:
    """The model of a run as one of transformers, with the names of its classes, its special tokens and its card."""
    directory = Path(run)
    model, task = load_model(directory), load_task(directory)
    assert isinstance(model, OdeumModel)
    out = class_of(type(model.settings).__name__).wrap(model, **_config(task))
    if out.can_generate():
        out.generation_config = _generation(out, task)
    out.card = model_card(directory)
    return out


def save(run: str | Path, directory: str | Path, **options: Any) -> Path:
    """Write what `from_pretrained` reads: model, tokenizer or image processor, and card.

    `options` are those of `save_pretrained`, such as max_shard_size.
    """
    out = Path(directory)
    if out.exists() and not out.is_dir():
        raise OdeumError(f"'{out}' is a file; give a directory")
    model, task = from_run(run), load_task(run)
    model.save_pretrained(out, **options)
    tokens = getattr(task, "tokens", None)
    if isinstance(tokens, Tokens):
        special = getattr(task, "special", None)
        make_tokenizer(tokens, _target(task), model.odeum.settings.length, special).save_pretrained(out)
    if isinstance(task, PictureTask):
        OdeumImageProcessor(task.size, task.mean, task.std, task.options.fit).save_pretrained(out)
    return out


def _target(task: Task) -> str:
    """What the task predicts: kinds that are like another one share it."""
    return KINDS[task.kind].target


def _config(task: Task) -> dict[str, Any]:
    """What the configuration says besides the model: classes by name, special tokens by number."""
    if classes := getattr(task, "classes", None):
        names = {i: str(name) for i, name in enumerate(classes)}
        return {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    if _target(task) == "translation":
        return {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    if _target(task) == "number":
        return {"num_labels": 1, "problem_type": "regression"}
    if isinstance(task, LanguageTask):
        return {"bos_token_id": task.tokens.start, "eos_token_id": task.tokens.ends or None}
    return {}


def _generation(model: Any, task: Task) -> GenerationConfig:
    """Greedy unless asked otherwise; a translation never holds padding or a start, as in `odeum.decode`."""
    settings: dict[str, Any] = {"use_cache": model.config.use_cache}
    if _target(task) == "next token":
        settings |= {key: getattr(model.config, key) for key in ("bos_token_id", "eos_token_id")}
    if _target(task) == "translation":
        special = {key: getattr(model.config, key) for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
        settings |= {**special, "decoder_start_token_id": 1, "suppress_tokens": [0, 1]}
        # what beams alone read is left out: transformers saves no such flags without a number of beams
        settings["max_length"] = model.odeum.settings.length
    return GenerationConfig(**settings)
