"""What tasks with classes have alike: what was understood of them, scores beyond accuracy, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from odeum.errors import OdeumError


class Classes:
    """Answers that are classes with their probabilities, the likeliest first."""

    classes: list[str]
    parts: dict[str, Any]

    def about(self) -> list[str]:
        """How many classes, and how far one comes by always saying the most frequent one."""
        share = majority(self.parts["train"][1], self.parts["test"][1])
        return [f"{len(self.classes)} classes", f"majority {100 * share:.0f} %"]

    def shown(self, question: str, answer: Sequence[tuple[str, float]]) -> str:
        return "  ".join(f"{label} {p:.1%}" for label, p in answer)

    def plain(self, answer: Sequence[tuple[str, float]]) -> dict[str, float]:
        return {label: round(p, 6) for label, p in answer}


def majority(train: Tensor, test: Tensor) -> float:
    """The accuracy of always saying the class that is most frequent in training."""
    return float((test == train.bincount().argmax()).float().mean())


def top_classes(logits: Tensor, classes: Sequence[str], top: int) -> list[list[tuple[str, float]]]:
    """For each row the likeliest classes with their probabilities."""
    if top < 1:
        raise OdeumError(f"top should be at least one class, not {top}")
    chances, indices = logits.float().softmax(-1).topk(min(top, len(classes)))
    rows = zip(chances.tolist(), indices.tolist(), strict=True)
    return [[(classes[i], p) for p, i in zip(*row, strict=True)] for row in rows]
