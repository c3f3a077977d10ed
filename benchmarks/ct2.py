"""CTranslate2, a C++ engine for decoding, with the weights of a model of transformers; where it is installed.

Models here have random weights and no texts: tokens are the decimal numbers of the vocabulary.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from turns import installed


class NumberTokenizer:
    """What the converter asks of a tokenizer."""

    bos_token, eos_token, unk_token, pad_token = "1", "2", "3", "0"

    def __init__(self, size: int) -> None:
        self.size = size

    def get_vocab(self) -> dict[str, int]:
        """The last one is Marian's padding, which the converter leaves out."""
        return {**{str(number): number for number in range(self.size - 1)}, "<pad>": self.size - 1}


def _converted(model: torch.nn.Module, directory: str, size: int) -> str:
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        def load_tokenizer(self, *given: Any, **options: Any) -> NumberTokenizer:
            return NumberTokenizer(size)

        def load_model(self, *given: Any, **options: Any) -> torch.nn.Module:
            loaded = super().load_model(*given, **options)
            rope = getattr(loaded.config, "rope_parameters", None)
            if rope and not hasattr(loaded.config, "rotary_pct"):  # names until transformers 5
                loaded.config.rotary_pct = rope.get("partial_rotary_factor", 1.0)
                loaded.embed_out = loaded.lm_head
            return loaded

    source, out = Path(directory, "source"), Path(directory, "converted")
    model.save_pretrained(source)  # ty: ignore[call-non-callable]
    Converter(str(source)).convert(str(out))
    return str(out)


def _words(ids: Tensor) -> list[list[str]]:
    return [[str(number) for number in row] for row in ids.tolist()]  # the last one of the vocabulary is not used


def greedy(model: torch.nn.Module, prompt: Tensor, tokens: int, size: int) -> Callable[[], object] | None:
    """Greedy continuation of the prompt by so many tokens; None where CTranslate2 is not installed."""
    if not installed("ctranslate2"):
        return None
    import ctranslate2

    with tempfile.TemporaryDirectory() as directory:
        engine = ctranslate2.Generator(_converted(model, directory, size), compute_type="float32", intra_threads=1)
    words = _words(prompt)
    options = {"max_length": tokens, "min_length": tokens, "end_token": [], "include_prompt_in_result": False}

    def run() -> object:
        answers = engine.generate_batch(words, **options)
        assert all(len(answer.sequences_ids[0]) == tokens for answer in answers)
        return answers

    return run


def beams(model: torch.nn.Module, sources: Tensor, beam: int, tokens: int, size: int) -> Callable[[], object] | None:
    """Beam search for so many tokens; None where CTranslate2 is not installed."""
    if not installed("ctranslate2"):
        return None
    import ctranslate2

    with tempfile.TemporaryDirectory() as directory:
        engine = ctranslate2.Translator(_converted(model, directory, size), compute_type="float32", intra_threads=1)
    words = _words(sources)

    def run() -> object:
        return engine.translate_batch(
            words, beam_size=beam, max_decoding_length=tokens, min_decoding_length=tokens, length_penalty=0.6
        )

    return run
