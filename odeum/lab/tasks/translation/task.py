"""Translation of sentence pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, notice
from odeum.interop.ctranslate2 import CTranslate2
from odeum.kernels.matmul import by_mkl
from odeum.lab.data import pairs
from odeum.lab.data.ragged import Ragged, by_tokens, cut_by_tokens
from odeum.lab.data.splits import refuse_fold
from odeum.lab.data.table_files import Columns
from odeum.lab.data.understanding import Origins, repeated, sample, shortened
from odeum.lab.tasks.base import Batch, Task, evaluating, generator, move, perplexity
from odeum.lab.tasks.checks import note_repeated, note_small_test
from odeum.lab.tasks.evidence import Evidence
from odeum.lab.tasks.kind import DATA_SETS, Data
from odeum.lab.tasks.translation import TranslationData
from odeum.lab.train.settings import Training
from odeum.models.base import IGNORE
from odeum.models.settings import PRESETS, Model, Translation
from odeum.storage import expanded
from odeum.tokens import Bpe, Tokens, load_tokens

# sized for a laptop: Multi30k above 20 BLEU in 20 minutes
RECIPES: dict[str, Training] = {
    "other": Training(
        epochs=20,
        batch_size=2048,
        schedule="inverse-sqrt",
        warmup=0.1,
        weight_decay=0.01,
        label_smoothing=0.1,
        average=5,
    ),
}
SMOOTHING = 0.1  # of the reported "loss", whatever a model was trained with
PAD, START, END = 0, 1, 2
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
TARGET_TOKENS_AT_ONCE = 2048  # padded target tokens of an evaluation at once
BEAM_CHUNK = 2048  # padded source tokens of a search at once

PairSplit = tuple[Ragged, Ragged]


class TranslationTask(Task):
    """Pairs of sentences in one joint vocabulary."""

    metric: ClassVar[str] = "bleu"
    higher_is_better: ClassVar[bool] = True
    columns: Columns = (0,)
    quick: int = 500
    options: TranslationData

    def __init__(
        self,
        name: str,
        options: TranslationData,
        tokens: Tokens,
        languages: tuple[str, str],
        texts: dict[str, pairs.Pairs] | None = None,
        source: Sequence[str] = (),
    ) -> None:
        super().__init__(name, options, source)
        self.tokens, self.languages, self.length = tokens, languages, options.length
        self.texts = texts or {}
        self.bleu_signature: str | None = None
        self.parts: dict[str, PairSplit] = {}
        for part, (sources, targets) in self.texts.items():
            self.parts[part] = self._encode_pairs(sources, targets, whole=part == "train")

    @classmethod
    def open(cls, data: str | Path, *more: str | Path, options: TranslationData) -> TranslationTask:
        known = str(data) in DATA_SETS
        origins: Origins = {}
        paths = [expanded(p) for p in (data, *more)]
        if known:
            refuse_fold(options.fold)
            texts, languages = pairs.named_pairs(str(data), options.test)
        else:
            texts, languages = pairs.read_pairs(paths, options.fold, origins)
        sources, targets = texts["train"]
        characters = sum(map(len, sources)) + sum(map(len, targets))
        size = min(options.vocabulary, max(500, characters // 50))
        tokens = Bpe.learn([*sources, *targets], size, first=SPECIAL, prefix_space=True)
        name = str(data) if known else paths[0].resolve().name
        task = cls(name, options, tokens, languages, texts, [str(p) for p in (data, *more)])
        task.origins = origins
        task.examples = tuple(
            f"{shortened(a, 50)} → {shortened(b, 50)}" for a, b in sample(list(zip(sources, targets, strict=True)))
        )
        note_repeated(task, repeated({part: zip(*sides, strict=True) for part, sides in texts.items()}))
        note_small_test(task)
        return task

    def _encode_pairs(self, sources: list[str], targets: list[str], whole: bool) -> PairSplit:
        """Ids that end in END; pairs too long for the model are left out (`whole`) or cut."""
        most = self.length - 1
        encode_all = self.tokens.encode_all
        pairs = list(zip(encode_all(sources, most + 1), encode_all(targets, most + 1), strict=True))
        if whole:
            short = [(s, t) for s, t in pairs if len(s) <= most and len(t) <= most]
            if lost := len(pairs) - len(short):
                notice(f"training pairs of more than {most} tokens were left out: {lost}")
            if not short:
                raise OdeumError(f"all {len(pairs)} training pairs have more than {most} tokens; raise length")
            pairs = short
        return Ragged([*s[:most], END] for s, _ in pairs), Ragged([*t[:most], END] for _, t in pairs)

    @property
    def has_data(self) -> bool:
        return bool(self.parts)

    def sizes(self) -> dict[str, int]:
        return {part: len(targets) for part, (_, targets) in self.parts.items()}

    def about(self) -> list[str]:
        return [f"{self.languages[0]} → {self.languages[1]}", f"vocabulary {self.tokens.size}"]

    def facts(self) -> dict[str, Any]:
        return {"vocabulary": self.tokens.size, "length": self.length}

    def model(self) -> Translation:
        base = PRESETS["translation_small"]
        assert isinstance(base, Translation)
        return dataclasses.replace(base, depth=3, dropout=0.1, **self.facts())

    def training(self) -> Training:
        return self.with_default_rate(RECIPES.get(self.name, RECIPES["other"]), self.model())

    def identity(self) -> Iterator[Tensor | str]:
        yield self.tokens.to_json()
        for sources, targets in self.parts.values():
            yield from (sources.flat, sources.lengths, targets.flat, targets.lengths)

    def plan(self, epoch: int, batch_size: int, seed: int) -> list[Tensor]:
        """Batches of a number of target tokens, from sentences of similar length."""
        sources, targets = self.parts["train"]
        return by_tokens(targets.lengths, sources.lengths, batch_size, generator(seed, epoch))

    def examples_per_step(self, batch_size: int, model: Model) -> float:
        """A batch has a number of tokens."""
        assert isinstance(model, Translation)
        return batch_size / model.length

    def collate(self, rows: Tensor, random: torch.Generator) -> Batch:
        return self._batch(self.parts["train"], rows)

    def _batch(self, part: PairSplit, rows: Tensor) -> Batch:
        ids, mask = part[0].padded(rows, PAD)
        target, mask_of_target = part[1].padded(rows, PAD)
        start = torch.full((len(rows), 1), START)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "decoder_input_ids": torch.cat([start, torch.where(target == END, PAD, target)[:, :-1]], 1),
            "labels": torch.where(mask_of_target.bool(), target, IGNORE),
        }

    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """Label-smoothed and plain loss per token, BLEU and chrF of the test part, and each sentence's plain loss."""
        self.require_data(split)
        part = self.parts[split]
        lengths = part[1].lengths[:limit]
        each = torch.zeros(len(lengths))
        plain = flat = 0.0
        with evaluating(model, device) as place:
            for rows in cut_by_tokens(lengths, lengths.argsort(stable=True), TARGET_TOKENS_AT_ONCE):
                batch = move(self._batch(part, rows), place)
                labels = batch.pop("labels")
                chances = model(**batch).logits.float().log_softmax(-1)[labels != IGNORE]
                chosen = chances.gather(1, labels[labels != IGNORE][:, None])
                plain -= chosen.sum().item()
                flat -= chances.mean(-1).sum().item()
                sums = [-row.sum() for row in chosen[:, 0].split(lengths[rows].tolist())]
                each[rows] = torch.stack(sums).cpu() / lengths[rows]
        count = int(lengths.sum())
        smoothed = ((1 - SMOOTHING) * plain + SMOOTHING * flat) / count
        scores = {"loss": smoothed, "plain_loss": plain / count, "perplexity": perplexity(plain / count)}
        scores |= self._bleu(model, split, device, limit) if split == "test" else {}
        return scores, Evidence(each)

    def _bleu(self, model: nn.Module, split: str, device: Any, limit: int | None) -> dict[str, float]:
        from sacrebleu.metrics import BLEU, CHRF

        sources, targets = (side[:limit] for side in self.texts[split])
        answers = self.predict(model, sources, device=device)
        bleu, chrf = BLEU(), CHRF()
        scores = {
            "bleu": bleu.corpus_score(answers, [targets]).score,
            "chrf": chrf.corpus_score(answers, [targets]).score,
        }
        self.bleu_signature = str(bleu.get_signature())
        self.note(f"BLEU is sacreBLEU's, {self.bleu_signature}")
        return scores

    def sample(self, count: int, split: str = "test") -> Batch:
        self.require_data(split)
        part = self.parts[split]
        batch = self._batch(part, torch.arange(min(count, len(part[0]))))
        return {key: value for key, value in batch.items() if key != "labels"}

    def as_batch(self, model: nn.Module, inputs: Sequence[Any]) -> Batch:
        """Source texts, and for the decoder the translations that the model itself makes of them."""
        if not (lines := [line for line in inputs if line.strip()]):
            raise OdeumError("there is no text to translate; give at least one")
        part = self._encode_pairs(lines, self.predict(model, lines), whole=False)
        batch = self._batch(part, torch.arange(len(lines)))
        return {key: value for key, value in batch.items() if key != "labels"}

    def input_batches(self, inputs: Iterable[str]) -> Iterator[Batch]:
        ids = Ragged([*row, END] for row in self.tokens.encode_all((line.strip() for line in inputs), self.length - 1))
        for rows in torch.arange(len(ids)).split(32):
            x, mask = ids.padded(rows, PAD)
            yield {"input_ids": x, "attention_mask": mask}

    def predict(
        self,
        model: Any,
        inputs: Iterable[str],
        beam: int | None = None,
        length_penalty: float | None = None,
        device: Any = None,
        **_: Any,
    ) -> list[str]:
        """One translation per line, in order; empty lines stay empty."""
        from odeum.decode import beam_search

        lines = list(inputs)
        most = self.length - 1
        full = [i for i, line in enumerate(lines) if line.strip()]
        encoded = list(self.tokens.encode_all((lines[i].strip() for i in full), most + 1))
        if cut := sum(len(ids) > most for ids in encoded):
            notice(f"lines of more than {most} tokens were cut: {cut}")
        sources = [[*row[:most], END] for row in encoded]
        answers = [""] * len(lines)
        width = self.options.beam if beam is None else beam
        penalty = self.options.length_penalty if length_penalty is None else length_penalty
        if isinstance(model, CTranslate2):
            for row, answer in zip(full, model.translate(sources, width, penalty), strict=True):
                answers[row] = self.tokens.decode(answer).strip()
            return answers
        ids = Ragged(sources)
        with evaluating(model, device) as place, by_mkl():
            for rows in cut_by_tokens(ids.lengths, ids.lengths.argsort(stable=True), BEAM_CHUNK * 4 // max(1, width)):
                x, mask = (item.to(place) for item in ids.padded(rows, PAD))
                translations = beam_search(model, x, mask, beam=width, length_penalty=penalty)
                for row, answer in zip(rows.tolist(), translations, strict=True):
                    answers[full[row]] = self.tokens.decode(answer).strip()
        return answers

    def record(self) -> dict[str, Any]:
        return {"languages": list(self.languages)}

    def files(self) -> dict[str, bytes]:
        return self.tokens.files()

    @classmethod
    def restore(cls, name: str, options: Data, record: dict[str, Any], directory: Path) -> TranslationTask:
        assert isinstance(options, TranslationData)
        source, target = record["languages"]
        return cls(name, options, load_tokens(directory), (source, target))
