"""What is chosen before the rows are trained, on validation parts alone: how noisy a scale is, and learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odeum.lab.papers.base import PaperTable, Setting, TableRow
from odeum.lab.papers.dutta2021 import LONG_TEXTS, TEXTS
from odeum.lab.papers.zhong2022_scales import IMAGE_SCALES, LARGER, PAIR_SCALES, SMALL_IMAGES, TEXT_SCALES
from odeum.lab.study.metric import POINT, Margin

SWEPT_RATES = (5e-4, 1e-3, 2e-3, 4e-3)


def _sweep(
    name: str,
    what: str,
    metric: str,
    settings: Mapping[str, Setting],
    names: Mapping[str, str],
    rates: Sequence[float] = SWEPT_RATES,
    **model: Any,
) -> PaperTable:
    """Every rate for the baseline, and for the layer that is set beside it where that is one."""
    return PaperTable(
        name=name,
        title=f"Learning rates of {what}, on the validation part alone",
        metric=metric,
        split="valid",
        margin=POINT if metric == "accuracy" else Margin(0.01, relative=True),
        rows=tuple(
            TableRow(
                f"{setting}-{label}-{rate:g}" if len(settings) > 1 else f"{label}-{rate:g}",
                architecture,
                setting,
                model,
                training={"learning_rate": rate},
                control=True,
            )
            for setting in settings
            for rate in rates
            for label, architecture in names.items()
        ),
        claims=(),
        scales={"laptop": settings},
        notes=("The rate that is best for the baseline, the sequential layer, is the recipe's, of every row.",),
    )


PARALLEL_LAYER = {"sequential": "sequential", "parallel": "parallel"}
HIGHER_RATES = (4e-3, 8e-3, 1.6e-2)
SWEEPS = (
    PaperTable(
        name="zhong2022/pilot",
        title="The noise of the images: four seeds of the baseline, on the validation part alone",
        metric="accuracy",
        split="valid",
        margin=POINT,
        rows=(
            TableRow("sequential", "sequential", "images", control=True),
            TableRow("sequential-32", "sequential", "larger", control=True),
        ),
        claims=(),
        scales={"laptop": {"images": SMALL_IMAGES, "larger": LARGER}},
    ),
    _sweep("zhong2022/rates", "the images", "accuracy", IMAGE_SCALES["laptop"], PARALLEL_LAYER),
    _sweep(
        "zhong2022/rates-pairs", "translation", "loss", PAIR_SCALES["laptop"], PARALLEL_LAYER, HIGHER_RATES, dropout=0.1
    ),
    _sweep(
        "zhong2022/rates-text",
        "language modelling",
        "perplexity",
        TEXT_SCALES["laptop"],
        PARALLEL_LAYER,
        (*SWEPT_RATES[1:3], *HIGHER_RATES, 3.2e-2),
    ),
    _sweep(
        "dutta2021/rates",
        "the texts",
        "accuracy",
        {**TEXTS["laptop"], "listops": LONG_TEXTS["laptop"]["listops"]},
        {"transformer": "sequential"},
        (*SWEPT_RATES[1:], 8e-3),
    ),
)
