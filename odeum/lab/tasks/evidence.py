"""Test losses of single examples, saved with a run so that later analyses need no new training."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from odeum.storage import Damaged, read_bytes, write_bytes, write_json

EXAMPLES, CONFUSION = "examples.npz", "confusion.json"
MOST_CLASSES = 100
"""most classes of a saved confusion matrix"""


@dataclass(frozen=True)
class Evidence:
    """Losses of single examples, in an order that is the same for every model on the same data."""

    losses: Tensor
    confusion: Tensor | None = None
    """counts by true class (rows) and predicted class (none: there are no classes)"""
    classes: tuple[str, ...] = ()

    def save(self, directory: Path) -> None:
        """Write examples.npz and, of a few classes, confusion.json."""
        import numpy as np

        content = io.BytesIO()
        np.savez_compressed(content, losses=self.losses.float().numpy())
        write_bytes(directory / EXAMPLES, content.getvalue())
        if self.confusion is not None and len(self.classes) <= MOST_CLASSES:
            counts = self.confusion.tolist()
            write_json(directory / CONFUSION, {"classes": list(self.classes), "counts": counts})


def read_losses(directory: Path) -> Tensor | None:
    """The saved losses of a run; None if it has none."""
    path = directory / EXAMPLES
    if not path.exists():
        return None
    import numpy as np

    try:
        with np.load(io.BytesIO(read_bytes(path)), allow_pickle=False) as arrays:
            losses = torch.from_numpy(arrays["losses"])
    except (OSError, ValueError, LookupError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        raise Damaged(f"'{path}' is damaged: it holds no losses") from None
    if losses.ndim != 1 or not losses.is_floating_point():
        raise Damaged(f"'{path}' is damaged: it holds no losses")
    return losses


def class_scores(confusion: Tensor) -> dict[str, float]:
    """Macro-F1 (of classes that occur or were predicted) and balanced accuracy (mean recall of those that occur)."""
    hits, true, predicted = confusion.diag().double(), confusion.sum(1).double(), confusion.sum(0).double()
    seen = true + predicted > 0
    f1 = 2 * hits[seen] / (true + predicted)[seen]
    return {"macro_f1": float(f1.mean()), "balanced_accuracy": float((hits / true)[true > 0].mean())}
