"""Masked language modelling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError
from odeum.lab.data import corpora
from odeum.lab.data.ragged import Ragged, by_count, cut_by_tokens
from odeum.lab.data.splits import shuffled
from odeum.lab.tasks.base import Batch, Task, evaluating, generator, move, perplexity
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.kind import Data
from odeum.lab.tasks.masked import MaskedData
from odeum.lab.train.settings import Training
from odeum.models.base import IGNORE
from odeum.models.settings import PRESETS, MaskedLanguage
from odeum.storage import expanded
from odeum.tokens import PAD, UNKNOWN, Bpe, Listed, Tokens, load_tokens

RECIPES = {"other": Training(epochs=20, batch_size=32, learning_rate=1e-3, weight_decay=0.05)}
FOLDS = 7
"""evaluation hides every seventh token at a time, so that each is predicted once from most of the others"""
HIDDEN_AT_ONCE = 8192
KEEP, REPLACED = 0.1, 0.1
"""fractions of the chosen tokens that are kept, or replaced by a random token, in training (Devlin et al. 2019)"""


class Special(NamedTuple):
    """Ids of the special tokens."""

    mask: int
    pad: int = 0
    first: int | None = None
    """token before each text"""
    last: int | None = None
    """token after each text"""


SPECIAL_NAMES = (PAD, UNKNOWN, "<mask>", "<start>", "<end>")
DEFAULT_SPECIAL = Special(mask=2, pad=0, first=3, last=4)


class MaskedTask(Task):
    """Lines of tokens, some of them hidden."""

    metric: ClassVar[str] = "loss"
    higher_is_better: ClassVar[bool] = False
    quick: int = 200
    options: MaskedData

    def __init__(
        self,
        name: str,
        options: MaskedData,
        tokens: Tokens,
        length: int,
        special: Special = DEFAULT_SPECIAL,
        parts: dict[str, Ragged] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.tokens, self.length, self.special, self.parts = tokens, length, special, parts or {}

    @classmethod
    def open(
        cls, data: str | Path, *more: str | Path, options: MaskedData, like: MaskedTask | None = None
    ) -> MaskedTask:
        paths = [expanded(p) for p in (data, *more)]
        corpus = corpora.read_corpus(paths)
        lines = {
            part: [line for text in texts for line in text.splitlines() if line.strip()]
            for part, texts in corpus.items()
        }
        if any(not rows for rows in lines.values()):
            raise OdeumError(
                f"'{data}' holds too few lines of text: at least one is needed to train, validate and test"
            )
        tokens = _learn_tokens(options, lines["train"]) if like is None else like.tokens
        length = options.length if like is None else like.length
        special = DEFAULT_SPECIAL if like is None else like.special
        task = cls(paths[0].resolve().name, options, tokens, length, special, None, [str(p) for p in (data, *more)])
        task.warn_unknown(lines["train"][:100])
        task.parts = {
            part: Ragged(map(task.with_special_tokens, tokens.encode_all(rows, length - 2)))
            for part, rows in lines.items()
        }
        return task

    def with_special_tokens(self, ids: list[int]) -> list[int]:
        """Add the first and last token."""
        first, last = self.special.first, self.special.last
        return [*([] if first is None else [first]), *ids, *([] if last is None else [last])]

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def sizes(self) -> dict[str, int]:
        return {part: len(rows) for part, rows in self.parts.items()}

    def about(self) -> list[str]:
        return [f"vocabulary {self.tokens.size}"]

    def facts(self) -> dict[str, Any]:
        return {"vocabulary": self.tokens.size, "length": self.length}

    def model(self) -> MaskedLanguage:
        base = PRESETS["masked_small"]
        assert isinstance(base, MaskedLanguage)
        return dataclasses.replace(base, **self.facts())

    def training(self) -> Training:
        return RECIPES["other"]

    def identity(self) -> Iterator[Tensor | str]:
        yield self.tokens.to_json()
        for rows in self.parts.values():
            yield from (rows.flat, rows.lengths)

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        return by_count(self.parts["train"].lengths, batch_size, generator(seed, epoch))

    def may_be_hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Positions of tokens that may be hidden: no special tokens, no padding."""
        special = [token for token in self.special if token is not None]
        return mask.bool() & ~torch.isin(ids, torch.tensor(special))

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        ids, mask = self.parts["train"].padded(rows, self.special.pad)
        chosen = self.may_be_hidden(ids, mask) & (torch.rand(ids.shape, generator=random) < self.options.share)
        dice = torch.rand(ids.shape, generator=random)
        others = torch.randint(self.tokens.size, ids.shape, generator=random)
        replacement = torch.where(
            dice < 1 - KEEP - REPLACED, self.special.mask, torch.where(dice < 1 - KEEP, others, ids)
        )
        labels = torch.where(chosen, ids, IGNORE)
        return {"input_ids": torch.where(chosen, replacement, ids), "attention_mask": mask, "labels": labels}

    def folds(self, split: str, limit: int | None = None) -> Iterator[tuple[Tensor, Batch]]:
        """Rows and batches that hide every token of a part once, every seventh of a line at a time."""
        part = self.parts[split]
        looked_at = torch.arange(len(part)) if limit is None or limit >= len(part) else shuffled(len(part))[:limit]
        lengths = part.lengths[looked_at]
        for rows in cut_by_tokens(lengths, lengths.argsort(stable=True), HIDDEN_AT_ONCE):
            ids, mask = part.padded(looked_at[rows], self.special.pad)
            place = self.may_be_hidden(ids, mask).long().cumsum(dim=1)
            for fold in range(FOLDS):
                chosen = self.may_be_hidden(ids, mask) & (place % FOLDS == fold)
                if bool(chosen.any()):
                    labels = torch.where(chosen, ids, IGNORE)
                    hidden = torch.where(chosen, self.special.mask, ids)
                    yield looked_at[rows], {"input_ids": hidden, "attention_mask": mask, "labels": labels}

    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """Mean loss per hidden token, perplexity and accuracy, and the mean loss per hidden token of each line."""
        self.require_data(split)
        losses, counts = (torch.zeros(len(self.parts[split]), dtype=torch.float64) for _ in range(2))
        right = 0.0
        with evaluating(model, device) as place:
            for rows, batch in self.folds(split, limit):
                batch = move(batch, place)
                labels = batch.pop("labels")
                logits = model(**batch).logits.float()
                loss = nn.functional.cross_entropy(
                    logits.transpose(1, 2), labels, ignore_index=IGNORE, reduction="none"
                )
                losses[rows] += loss.sum(dim=1).double().cpu()
                counts[rows] += (labels != IGNORE).sum(dim=1).double().cpu()
                right += ((logits.argmax(-1) == labels) & (labels != IGNORE)).sum().item()
        count = float(counts.sum())
        if not count:
            raise OdeumError(f"the {split} part of '{self.name}' has no token that can be masked")
        mean = float(losses.sum()) / count
        scores = {"loss": mean, "perplexity": perplexity(mean), "accuracy": right / count}
        return scores, Evidence((losses / counts)[counts > 0])

    def sample(self, count: int, split: str = "test") -> Batch:
        """Lines with every seventh token hidden."""
        self.require_data(split)
        _, batch = next(self.folds(split, count), (None, None))
        if batch is None:
            raise OdeumError(f"the {split} part of '{self.name}' has no token that can be masked; give an input")
        return {key: value[:count] for key, value in batch.items() if key != "labels"}

    def input_batches(self, inputs: Iterable[str]) -> Iterator[Batch]:
        """One batch of lines, in which the text of the mask token hides a token."""
        rows = Ragged(map(self._encoded, inputs))
        if len(rows):
            ids, mask = rows.padded(torch.arange(len(rows)), self.special.pad)
            yield {"input_ids": ids, "attention_mask": mask}

    def _encoded(self, line: str) -> list[int]:
        """Token ids of a line with its mask tokens, between the tokens of both ends."""
        pieces = line.split(self.mask_name) if self.mask_name else [line]
        self.warn_unknown([" ".join(pieces)])
        ids = self.tokens.encode(pieces[0])
        for piece in pieces[1:]:
            ids += [self.special.mask, *self.tokens.encode(piece)]
        return self.with_special_tokens(ids)[: self.length]

    @property
    def mask_name(self) -> str:
        """The text of the mask token."""
        return self.tokens.token(self.special.mask)

    def predict(self, model: nn.Module, inputs: Iterable[str], top: int = 3, **_: Any) -> list[list[list[Any]]]:
        """The most likely tokens for each mask of each line, with probabilities."""
        answers = []
        with evaluating(model) as place:
            for line in inputs:
                if self.mask_name not in line:
                    raise OdeumError(f"'{line[:60]}' has no masked token: write {self.mask_name} in its place")
                x = torch.tensor([self._encoded(line)], device=place)
                chances = model(x).logits[0, x[0] == self.special.mask].float().softmax(-1).topk(top)
                answers.append(
                    [
                        [(self.tokens.token(i), p) for i, p in zip(tokens, values, strict=True)]
                        for tokens, values in zip(chances.indices.tolist(), chances.values.tolist(), strict=True)
                    ]
                )
        return answers

    def format_answer(self, question: str, answer: list[list[Any]]) -> str:
        choices = "; ".join(", ".join(f"{token} {chance:.3f}" for token, chance in place) for place in answer)
        return f"{question}\t{choices}"

    def record(self) -> dict[str, Any]:
        return {"length": self.length, "special": self.special._asdict()}

    def files(self) -> dict[str, bytes]:
        return self.tokens.files()

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> MaskedTask:
        assert isinstance(options, MaskedData)
        return cls(name, options, load_tokens(directory), record["length"], Special(**record["special"]))


def _learn_tokens(options: MaskedData, lines: list[str]) -> Tokens:
    """The vocabulary of the training part."""
    if options.tokens == "symbols":
        return Listed.learn("symbols", lines, options.vocabulary, first=SPECIAL_NAMES)
    size = min(options.vocabulary, max(300, sum(map(len, lines)) // 50))
    return Bpe.learn(lines, size, first=SPECIAL_NAMES)
