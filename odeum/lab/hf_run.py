"""Convert a run to a model of transformers, in memory or in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError
from odeum.hf.card import model_card
from odeum.hf.configuration import class_of
from odeum.hf.image_processor import OdeumImageProcessor
from odeum.hf.tokenizer import make_tokenizer, put_first
from odeum.interop.ctranslate2 import write_ctranslate2
from odeum.interop.gguf import bpe_vocabulary, character_vocabulary, write_gguf
from odeum.interop.native import ELSEWHERE, Native, largest_difference, write_native
from odeum.lab.tasks import KINDS, Task, load_task
from odeum.lab.tasks.image_base import ImageInputTask
from odeum.lab.tasks.language.task import LanguageTask
from odeum.models.base import OdeumModel
from odeum.models.saved import load_model
from odeum.tokens import Listed, Tokens

if TYPE_CHECKING:
    from transformers import GenerationConfig

CLASS_TOKEN = "<class>"
"""first token of each text for classifiers that read a class token"""


def from_run(run: str | Path) -> Any:
    """The model of a run for transformers, with class names, special tokens and model card."""
    directory = Path(run)
    model, task = load_model(directory), load_task(directory)
    assert isinstance(model, OdeumModel)
    out = class_of(type(model.settings).__name__).wrap(model, **_config(task))
    if out.can_generate():
        out.generation_config = _generation(out, task)
    out.card = model_card(directory)
    return out


def save(run: str | Path, directory: str | Path, **options: Any) -> Path:
    """Write a directory for `from_pretrained`: model, tokenizer or image processor, and card.

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
    if isinstance(task, ImageInputTask):
        OdeumImageProcessor(task.size, task.mean, task.std, task.options.fit).save_pretrained(out)
    return out


def _target(task: Task) -> str:
    """The target of the kind of a task."""
    return KINDS[task.kind].target


def save_native(run: str | Path, directory: Path) -> tuple[str, float, tuple[str, ...]]:
    """Write a run as a native class of transformers, with tokenizer or image processor; loads without Odeum.

    Returns the class, the largest difference of a logit on random input, and notes for the user.
    """
    model, task = load_model(run), load_task(run)
    assert isinstance(model, OdeumModel)
    written, native = write_native(model, directory, **_config(task))
    difference = largest_difference(model, written, native)
    if written.can_generate():
        generation = _generation(from_run(run), task)
        generation.save_pretrained(directory)
    notes = list(native.notes)
    if native.copies:
        notes.append(_copied(native))
    tokens = getattr(task, "tokens", None)
    if isinstance(tokens, Tokens):
        special = getattr(task, "special", None)
        tokenizer = make_tokenizer(tokens, _target(task), model.settings.length, special)  # ty: ignore[missing-attribute]
        if native.name.startswith("MegatronBert"):
            put_first(tokenizer, CLASS_TOKEN)
        tokenizer.save_pretrained(directory)
    if isinstance(task, ImageInputTask):
        from transformers import ViTImageProcessor

        size = {"height": task.size, "width": task.size}
        ViTImageProcessor(size=size, image_mean=list(task.mean), image_std=list(task.std)).save_pretrained(directory)
        notes.append(
            "its image processor resizes without cropping, so only square images are processed as by `odeum predict`"
        )
        if len(task.mean) == 1:
            notes.append("it expects grayscale images (mode 'L' of Pillow)")
    return native.name, difference, tuple(notes)


def save_ctranslate2(run: str | Path, directory: Path) -> None:
    """Write a language or translation run for the CTranslate2 engine, with a tokenizer of transformers beside it."""
    model, task = load_model(run), load_task(run)
    assert isinstance(model, OdeumModel)
    tokens = getattr(task, "tokens", None)
    if not isinstance(tokens, Tokens):
        raise OdeumError(
            f"CTranslate2 supports language and translation models, but '{run}' does not read text; {ELSEWHERE}"
        )
    tokenizer = make_tokenizer(tokens, _target(task), model.settings.length)  # ty: ignore[missing-attribute]
    names = [str(tokenizer.convert_ids_to_tokens(number)) for number in range(tokens.size)]
    start, end = (1, 2) if _target(task) == "translation" else (tokens.start, next(iter(tokens.ends), tokens.start))
    unknown = tokenizer.unk_token or names[0]
    write_ctranslate2(model, directory, names, unknown=unknown, start=names[start or 0], end=names[end or 0])
    tokenizer.save_pretrained(directory / "tokenizer")


def save_gguf(run: str | Path, directory: Path) -> tuple[str, tuple[str, ...]]:
    """Write a language run as model.gguf for llama.cpp, with a tokenizer of transformers beside it.

    Returns llama.cpp's name for the architecture, and what a user should know.
    """
    model, task = load_model(run), load_task(run)
    assert isinstance(model, OdeumModel)
    tokens, notes = getattr(task, "tokens", None), []
    if not isinstance(tokens, Tokens):
        raise OdeumError(f"llama.cpp supports language models, but '{run}' does not read text; {ELSEWHERE}")
    made = make_tokenizer(tokens, _target(task), model.settings.length)  # ty: ignore[missing-attribute]
    if isinstance(tokens, Listed) and tokens.kind == "characters":
        vocabulary = character_vocabulary(tokens.entries)
        notes.append("llama.cpp drops characters that are not in the vocabulary")
    else:
        vocabulary = bpe_vocabulary(made.backend_tokenizer, tokens.size)
    ends = tokens.start, next(iter(tokens.ends), None)
    native = write_gguf(model, directory / "model.gguf", Path(run).name, vocabulary, *ends)
    if vocabulary is None:
        notes.append("llama.cpp cannot tokenize text as this run does; pass it token ids from the directory tokenizer/")
    if model.settings.activation == "gelu":
        notes.append("llama.cpp computes GELU by its tanh formula in half precision")
    if model.settings.positions != "rotary":  # ty: ignore[missing-attribute]
        length = model.settings.length  # ty: ignore[missing-attribute]
        notes.append(
            f"set the context of llama.cpp to at most {length} tokens; it does not check for the end of the "
            "position table"
        )
    if native.copies:
        notes.append(_copied(native))
    made.save_pretrained(directory / "tokenizer")
    return native.name, tuple(notes)


def _copied(native: Native) -> str:
    return f"shared layers are written out, which adds {4 * native.copies / 1e6:.1f} MB"


def _config(task: Task) -> dict[str, Any]:
    """Further entries of the configuration: class names and ids of special tokens."""
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
    """Greedy by default; padding and start tokens are suppressed in translations, as in `odeum.decode`."""
    from transformers import GenerationConfig

    settings: dict[str, Any] = {"use_cache": model.config.use_cache}
    if _target(task) == "next token":
        settings |= {key: getattr(model.config, key) for key in ("bos_token_id", "eos_token_id")}
    if _target(task) == "translation":
        special = {key: getattr(model.config, key) for key in ("pad_token_id", "bos_token_id", "eos_token_id")}
        settings |= {**special, "decoder_start_token_id": 1, "suppress_tokens": [0, 1]}
        # options of beam search are omitted: transformers does not save them without a number of beams
        settings["max_length"] = model.odeum.settings.length
    return GenerationConfig(**settings)
