"""Mixin for tasks with classes: metrics and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odeum.errors import OdeumError
from odeum.lab.data.understanding import shortened
from odeum.lab.tasks.checks import note_classes, note_repeated, note_small_test
from odeum.lab.tasks.evidence import Evidence, class_scores

MOST_CLASSES = 12
"""classes that are named before a run"""
ENOUGH = 10
"""fewest classes for which top-5 accuracy is reported"""


class Classes:
    """Metrics of classes, and answers with probabilities, the most likely class first."""

    classes: list[str]
    parts: dict[str, Any]
    scored: Callable[..., Iterator[tuple[Tensor, Tensor]]]
    """yields logits and classes of a part, from the base class of the input"""
    top5: bool = False
    """whether top-5 accuracy is reported, if there are enough classes"""

    def facts(self) -> dict[str, Any]:
        base: Any = super()
        return {**base.facts(), "classes": len(self.classes)}

    def identity(self) -> Iterator[Tensor | str]:
        base: Any = super()
        yield ",".join(self.classes)
        yield from base.identity()

    def about(self) -> list[str]:
        """The number of classes, and the accuracy of predicting the most frequent one."""
        share = majority(self.parts["train"][1], self.parts["test"][1])
        return [f"{len(self.classes)} classes", f"majority {100 * share:.0f} %"]

    def details(self) -> list[str]:
        """The classes with their numbers of training examples."""
        counts = self.parts["train"][1].bincount(minlength=len(self.classes)).tolist()
        named = [f"{shortened(name, 30)} {count}" for name, count in zip(self.classes, counts, strict=True)]
        more = f", … {len(named) - MOST_CLASSES} more" if len(named) > MOST_CLASSES else ""
        return [f"classes (training examples): {', '.join(named[:MOST_CLASSES])}{more}"]

    def check_data(self, repeated: Mapping[str, int]) -> None:
        """Warn of data that may not tell what its reader hopes."""
        task: Any = self
        note_repeated(task, repeated)
        note_classes(task, self.classes, self.parts["train"][1], self.parts["test"][1])
        note_small_test(task)

    def number_as(self, classes: Sequence[str], of: str) -> None:
        """Number the classes of the labels as a model does, by name or by number; `of` names the model in an error."""
        numbers = {name: number for number, name in enumerate(classes)}
        if not set(self.classes) <= numbers.keys() and all(name.isdecimal() for name in self.classes):
            numbers = {str(number): number for number in range(len(classes))}
        if unknown := [name for name in self.classes if name not in numbers]:
            known = ", ".join(map(repr, classes[:5])) + (", …" if len(classes) > 5 else "")
            raise OdeumError(
                f"'{unknown[0]}' is a class of the data but not one of the {len(classes)} classes of '{of}'"
                f"{f' ({known})' if known else ''}; name them as the model does, or by their numbers from 0"
            )
        places = torch.tensor([numbers[name] for name in self.classes])
        self.parts = {part: (inputs, places[labels]) for part, (inputs, labels) in self.parts.items()}
        self.classes = list(classes)

    def examine(
        self, model: nn.Module, split: str, device: Any = None, limit: int | None = None, single: bool = True
    ) -> tuple[dict[str, float], Evidence | None]:
        """Loss, accuracy, macro-F1, balanced accuracy, and the accuracy of predicting the most frequent class."""
        size = len(self.classes)
        loss = right5 = 0.0
        losses, targets, answers = [], [], []
        for logits, target in self.scored(model, split, device, limit):
            loss += F.cross_entropy(logits, target, reduction="sum").item()
            losses.append(F.cross_entropy(logits, target, reduction="none").cpu())
            best = logits.topk(min(5, size)).indices
            right5 += (best == target[:, None]).sum().item()
            answers.append(best[:, 0].cpu())
            targets.append(target.cpu())
        target, answer = torch.cat(targets), torch.cat(answers)
        confusion = torch.bincount(target * size + answer, minlength=size * size).view(size, size)
        count = len(target)
        scores = {"loss": loss / count, "accuracy": int(confusion.diag().sum()) / count}
        scores |= {"top5": right5 / count} if self.top5 and size >= ENOUGH else {}
        scores |= class_scores(confusion) | {"majority_accuracy": majority(self.parts["train"][1], target)}
        return scores, Evidence(torch.cat(losses), confusion, tuple(self.classes))

    def format_answer(self, question: str, answer: Sequence[tuple[str, float]]) -> str:
        return "  ".join(f"{label} {p:.1%}" for label, p in answer)

    def as_json(self, answer: Sequence[tuple[str, float]]) -> dict[str, float]:
        return {label: round(p, 6) for label, p in answer}

    def as_columns(self, answer: Sequence[tuple[str, float]]) -> dict[str, Any]:
        """The most likely class and its probability, then the second, and so on."""
        row: dict[str, Any] = {}
        for rank, (label, p) in enumerate(answer, 1):
            place = "" if rank == 1 else f"_{rank}"
            row |= {f"class{place}": label, f"probability{place}": round(p, 6)}
        return row


def majority(train: Tensor, test: Tensor) -> float:
    """The accuracy of predicting the most frequent training class."""
    return float((test == train.bincount().argmax()).float().mean())


def top_classes(logits: Tensor, classes: Sequence[str], top: int) -> list[list[tuple[str, float]]]:
    """The most likely classes of each row with their probabilities."""
    if top < 1:
        raise OdeumError(f"top must be at least one class, not {top}")
    chances, indices = logits.float().softmax(-1).topk(min(top, len(classes)))
    rows = zip(chances.tolist(), indices.tolist(), strict=True)
    return [[(classes[i], p) for p, i in zip(*row, strict=True)] for row in rows]
