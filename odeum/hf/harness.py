"""lm-evaluation-harness on saved runs, as its model `odeum`:

    python -m odeum.hf.harness run --model odeum --model_args pretrained=DIR --tasks TASK --device cpu

DIR is written by `odeum export RUN DIR --to hf`; everything else is as in `lm_eval`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from transformers import AutoTokenizer

import odeum.hf
from odeum.errors import OdeumError

try:
    _registry: Any = import_module("lm_eval.api.registry")
    _theirs: Any = import_module("lm_eval.models.huggingface")
except ImportError:
    raise OdeumError("odeum.hf.harness needs lm-evaluation-harness; `pip install lm_eval`") from None

__all__ = ["HarnessModel"]


class HarnessModel(_theirs.HFLM):
    """A causal model whose texts begin as those of `odeum predict` do."""

    def __init__(self, pretrained: str, tokenizer: str | None = None, **options: Any) -> None:
        loaded: Any = AutoTokenizer.from_pretrained(tokenizer or pretrained)
        if loaded.pad_token_id is None:
            loaded.pad_token_id = 0  # of those that the model has, any: it is hidden wherever it fills up a row
        super().__init__(pretrained=pretrained, tokenizer=loaded, **options)

    @property
    def prefix_token_id(self) -> int:
        """The first token of a text without context."""
        custom = self.custom_prefix_token_id
        return self.config.bos_token_id if custom is None else custom

    def tok_decode(self, tokens: Any, *rest: Any, **options: Any) -> Any:
        """The token that ends a text; the harness needs one even for a model of lines, which has none."""
        return None if tokens is None else super().tok_decode(tokens, *rest, **options)

    def loglikelihood_rolling(self, *requests: Any, **options: Any) -> Any:
        """The harness itself puts the first token before each text; the tokenizer must not do it once more."""
        before, self.add_bos_token = self.add_bos_token, False
        try:
            return super().loglikelihood_rolling(*requests, **options)
        finally:
            self.add_bos_token = before


_registry.register_model(odeum.hf.OdeumConfig.model_type)(HarnessModel)

if __name__ == "__main__":
    import_module("lm_eval.__main__").cli_evaluate()
