"""`odeum import SOURCE --out RUN`: a pretrained model of another library as a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError
from odeum.lab.commands.options import Parser
from odeum.lab.commands.request import command_line

if TYPE_CHECKING:
    from odeum.interop.loading import Imported
    from odeum.lab.tasks import Task


def run(argv: list[str]) -> int:
    parser = Parser(
        "import",
        "Read a pretrained model (GPT-2, GPT-NeoX, GPT-J, Llama and variants, Gemma, Phi, OLMo, OPT, BERT, RoBERTa, "
        "DistilBERT, ALBERT, ViT, DeiT, DINOv2, CLIP's vision model) and write it as a run. "
        "If transformers is installed, its logits are compared with those of transformers first.",
    )
    parser.add_argument("source", type=str, help="a directory, a .safetensors or .bin file, or a name on the hub")
    parser.option("out", "run directory (default: runs/NAME)")
    parser.option("family", "model family, such as gpt2 (default: recognised)")
    parser.option("tokens", "form of vocab.txt: wordpiece, symbols or numbers")
    given = parser.read(argv)

    from odeum.lab.train.origin import write_run
    from odeum.registry.spelling import spell
    from odeum.storage import new_directory, out_directory

    out = out_directory(given.get("out"), Path("runs") / Path(given["source"]).name)
    with new_directory(out) as part:
        imported, task, notes = _read(given)
        compared = _compared(imported)
        origin = {"imported": str(given["source"]), "family": imported.family, "config": imported.source.config}
        write_run(part, imported.model, task, origin, command_line())
    settings = imported.model.settings
    sizes = f"width {settings.width}, {settings.heads} heads, depth {settings.depth}"
    print(f"{imported.family}: {spell(imported.model.architecture)}, {sizes}")
    for note in notes:
        print(f"note: {note}")
    print(compared)
    print(f"run: {out}")
    return 0


def _read(given: dict[str, Any]) -> tuple[Imported, Task, list[str]]:
    """The model, its task, and notes for the user."""
    from odeum.interop import read_pretrained
    from odeum.interop.reading import convert_errors
    from odeum.lab.data.pretrained_tokens import read_pretrained_tokens

    imported = read_pretrained(given["source"], given.get("family"))
    notes = list(imported.notes)
    vocabulary = getattr(imported.model.settings, "vocabulary", None)
    tokens = (
        None if vocabulary is None else read_pretrained_tokens(imported.source.folder, vocabulary, given.get("tokens"))
    )
    notes += [] if tokens is None else tokens.notes
    with convert_errors(f"the files beside the weights of '{imported.source.name}' cannot be read"):
        return imported, _task(imported, tokens, notes), notes


def _task(imported: Imported, tokens: Any, notes: list[str]) -> Task:
    """The task of an imported model, with its tokenizer, class names or image normalisation; it can predict."""
    from odeum.lab.data.pretrained_tokens import text_ends
    from odeum.lab.tasks.classification import ClassificationData
    from odeum.lab.tasks.classification.task import ClassificationTask
    from odeum.lab.tasks.images import ImageData
    from odeum.lab.tasks.images.task import ImageTask
    from odeum.lab.tasks.language import LanguageData
    from odeum.lab.tasks.language.task import LanguageTask
    from odeum.lab.tasks.masked import MaskedData
    from odeum.lab.tasks.masked.task import MaskedTask, Special
    from odeum.models.settings import Classification, Language, Vision
    from odeum.tokens import Delimited, Framed

    settings: Any = imported.model.settings
    name, config = imported.source.name, imported.source.config
    if isinstance(settings, Language):
        cut = Delimited(tokens.tokens, *text_ends(imported.source.folder, config, tokens.tokens))
        return LanguageTask(name, LanguageData(length=max(8, settings.length)), cut, settings.length)
    labels = _labels(config.get("id2label") or {})
    classes = [labels.get(i, f"class {i}") for i in range(getattr(settings, "classes", 0))]
    if isinstance(settings, Classification):
        ends = tokens.special.get("first"), tokens.special.get("last")
        cut = tokens.tokens if None in ends else Framed(tokens.tokens, *ends)
        return ClassificationTask(name, ClassificationData(), cut, classes, settings.length)
    if isinstance(settings, Vision):
        mean, std = _normalisation(imported, settings.channels)
        return ImageTask(
            name, ImageData(size=settings.image_size, fit="squash"), classes, settings.image_size, mean, std
        )
    if "mask" not in tokens.special:
        notes.append("no token is called [MASK] or <mask>; token 0 is used as the mask token")
    special = Special(**{"mask": 0, **tokens.special})
    return MaskedTask(
        name, MaskedData(tokens="symbols", length=max(8, settings.length)), tokens.tokens, settings.length, special
    )


def _labels(named: Any) -> dict[int, str]:
    """Class names by number, from a configuration."""
    if not isinstance(named, dict) or not all(str(key).isdecimal() for key in named):
        raise OdeumError(f"id2label of the configuration must map class numbers to names, not be {named!r:.60}")
    return {int(key): str(value) for key, value in named.items()}


def _normalisation(imported: Imported, channels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation for the normalisation of images; 0.5 each without a file."""
    from odeum.storage import read_json

    path = None if imported.source.folder is None else imported.source.folder / "preprocessor_config.json"
    record = read_json(path) if path is not None and path.exists() else {}
    looks = [record.get(key, [0.5] * channels) for key in ("image_mean", "image_std")]
    for key, values in zip(("image_mean", "image_std"), looks, strict=True):
        numbers = isinstance(values, list) and all(isinstance(x, int | float) and math.isfinite(x) for x in values)
        if not numbers or len(values) != channels or (key == "image_std" and not all(values)):
            raise OdeumError(f"{key} of '{path}' must be {channels} numbers, not {values!r:.60}")
    return looks[0], looks[1]


def _compared(imported: Imported) -> str:
    """A message about the difference from transformers; raises `OdeumError` for a large one."""
    try:
        from odeum.hf.comparing import difference
    except OdeumError:
        return "not compared: transformers is not installed (`pip install odeum[hf]`)"
    value = difference(imported)
    if value is None:
        return "not compared: transformers does not know this source by its configuration"
    if not value <= 1e-3:
        raise OdeumError(
            f"the logits differ from those of transformers by {value:.1e}, so the import of this model is incomplete; "
            "nothing was written"
        )
    return f"compared: logits differ from those of transformers by at most {value:.1e}"
