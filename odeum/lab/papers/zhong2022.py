"""Zhong et al. 2022, "A Neural ODE Interpretation of Transformer Layers" (arXiv 2212.06011): Tables 1 to 4, Figure 2.

Figures are those of the paper's tables. What the paper leaves open is named in `ours` of each setting.
"""

from __future__ import annotations

from odeum.lab.papers.base import PaperTable, TableRow
from odeum.lab.papers.zhong2022_scales import (
    AUGMENTED,
    IMAGE_SCALES,
    OVERFITTING_SCALES,
    PAIR_SCALES,
    TEXT_SCALES,
    sized,
)
from odeum.lab.study.judge import Claim
from odeum.lab.study.metric import POINT, Margin

PERCENT = Margin(0.01, relative=True)
SHARED = (6, 4, 3, 2, 1)
"""numbers of independent layers of 12, beside all of them"""
LOSS = (("test", "loss"),)


def _images(name: str, architecture: str, paper: float | None = None, **more: object) -> TableRow:
    figures = {} if paper is None else {"accuracy": paper / 100}
    return TableRow(name, architecture, "images", paper=figures, **more)  # ty: ignore[invalid-argument-type]


TABLE1 = PaperTable(
    name="zhong2022/table1",
    title="Table 1: the parallel layer, sharing of weights and RK4 on CIFAR-100",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=(
        _images("sequential", "sequential", 66.02),
        _images("parallel", "parallel", 70.92),
        *(
            _images(f"parallel-{count}", f"parallel:independent={count}", figure)
            for count, figure in zip(SHARED, (67.42, 66.40, 63.68, 61.05, 53.33), strict=True)
        ),
        _images("rk4", "rk4", 72.66),
        *(_images(f"sequential-{n}", f"sequential:independent={n}", control=True) for n in SHARED),
        _images(
            "rk4-equal-macs", "rk4", length=0.25, control=True, about="a quarter of the steps: the same multiply–adds"
        ),
        _images("rk4-3-layers", "rk4", model={"depth": 3}, control=True, about="3 layers × 4 evaluations"),
        _images("parallel-6-cycle", "parallel:independent=6,sharing=cycle", control=True),
        _images("continuous", "continuous:rtol=1e-2,atol=1e-2", control=True, about="a black-box solver, one field"),
        _images("rk4-1", "rk4:independent=1", control=True, about="one field, 48 evaluations at fixed steps"),
    ),
    claims=(
        Claim("the parallel layer beats the sequential one", "parallel", "sequential"),
        Claim("RK4 beats Euler", "rk4", "parallel"),
        Claim("the parallel layer with half of the weights beats the sequential one", "parallel-6", "sequential"),
        Claim("the parallel layer with a third of the weights still beats it", "parallel-4", "sequential"),
        Claim("half of the weights cost accuracy", "parallel", "parallel-6"),
        Claim("one layer's weights twelve times cost more", "parallel-6", "parallel-1"),
    ),
    scales=IMAGE_SCALES,
    beside=LOSS,
)

DROPOUT, DEPTH = {"dropout": 0.1}, {"stochastic_depth": 0.1}
TABLE2 = PaperTable(
    name="zhong2022/table2",
    title="Table 2: dropout and stochastic depth",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=(
        _images("parallel", "parallel", 70.92),
        _images("parallel-dropout", "parallel", 59.81, model=DROPOUT),
        _images("parallel-depth", "parallel", 71.49, model=DEPTH),
        _images("parallel-1", "parallel:independent=1", 53.33),
        _images("parallel-1-dropout", "parallel:independent=1", 40.71, model=DROPOUT),
        _images("parallel-1-depth", "parallel:independent=1", 27.57, model=DEPTH),
        _images("sequential", "sequential", control=True),
        _images("sequential-dropout", "sequential", model=DROPOUT, control=True),
        _images("sequential-depth", "sequential", model=DEPTH, control=True),
        _images("sequential-1", "sequential:independent=1", control=True),
        _images("sequential-1-dropout", "sequential:independent=1", model=DROPOUT, control=True),
        _images("sequential-1-depth", "sequential:independent=1", model=DEPTH, control=True),
    ),
    claims=(
        Claim("dropout harms the parallel layer", "parallel", "parallel-dropout"),
        Claim("stochastic depth does not harm 12 independent layers", "parallel-depth", "parallel", "comparable"),
        Claim("dropout harms one shared layer", "parallel-1", "parallel-1-dropout"),
        Claim("stochastic depth harms one shared layer", "parallel-1", "parallel-1-depth"),
    ),
    scales=OVERFITTING_SCALES,
    beside=LOSS,
    notes=("The paper does not give the two rates: 0.1 is ours, DeiT's default of stochastic depth.",),
)

FIGURE2 = PaperTable(
    name="zhong2022/figure2",
    title="Figure 2: where the norms of the parallel layer stand",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=(
        _images("separate", "parallel", 70.92, about="(a): a norm before each of attention and feed-forward"),
        _images("shared", "parallel:norm=shared", 67.42, about="(b), inferred: one norm before both"),
        _images("post-sum", "parallel:norm=post-sum", 67.03, about="(c), inferred: one norm after the sum"),
        _images("branch", "parallel:norm=branch", control=True, about="a norm after each branch"),
        _images("sequential", "sequential", 66.02, about="DeiT-Ti; against (a) in Table 1"),
        _images("peri", "parallel:norm=peri", control=True, about="a norm before and after each branch"),
    ),
    claims=(
        Claim("one shared norm beats the sequential layer", "shared", "sequential"),
        Claim("a norm after the sum beats the sequential layer", "post-sum", "sequential"),
        Claim("separate norms beat one shared norm", "separate", "shared"),
        Claim("norms inside beat a norm after the sum", "separate", "post-sum"),
    ),
    scales=IMAGE_SCALES,
    beside=LOSS,
    notes=("The drawings of the figure could not be seen: which placement is (b) and which is (c) is inferred.",),
)


def _pairs(architecture: str, dropout: float, loss: float, bleu: float) -> TableRow:
    name = f"{architecture}-{dropout:g}"
    return TableRow(name, architecture, "pairs", {"dropout": dropout}, paper={"loss": loss, "bleu": bleu})


TABLE3 = PaperTable(
    name="zhong2022/table3",
    title="Table 3: translation from English to German",
    metric="loss",
    split="valid",
    margin=PERCENT,
    rows=(
        _pairs("sequential", 0.0, 3.788, 17.1),
        _pairs("parallel", 0.0, 3.626, 17.9),
        _pairs("sequential", 0.1, 3.455, 18.7),
        _pairs("parallel", 0.1, 3.519, 18.5),
    ),
    claims=(
        Claim("without dropout the parallel layer is better", "parallel-0", "sequential-0"),
        Claim("with dropout 0.1 the sequential layer is better", "sequential-0.1", "parallel-0.1"),
        Claim("dropout 0.1 helps the sequential layer", "sequential-0.1", "sequential-0"),
        Claim("dropout 0.1 helps the parallel layer", "parallel-0.1", "parallel-0"),
    ),
    scales=PAIR_SCALES,
    beside=(("test", "bleu"),),
    notes=("The validation loss decides; SacreBLEU, detokenised, on the test part is shown beside it.",),
)


def _text(architecture: str, dropout: float, perplexity: float) -> TableRow:
    name = f"{architecture}-{dropout:g}"
    return TableRow(name, architecture, "text", {"dropout": dropout}, paper={"perplexity": perplexity})


TABLE4 = PaperTable(
    name="zhong2022/table4",
    title="Table 4: language modelling on WikiText",
    metric="perplexity",
    split="test",
    margin=PERCENT,
    rows=(
        _text("sequential", 0.0, 65.07),
        _text("parallel", 0.0, 60.19),
        _text("sequential", 0.1, 72.72),
        _text("parallel", 0.1, 76.21),
        _text("sequential", 0.3, 101.09),
        _text("parallel", 0.3, 113.27),
    ),
    claims=(
        Claim("without dropout the parallel layer is better", "parallel-0", "sequential-0"),
        Claim("with dropout 0.1 the sequential layer is better", "sequential-0.1", "parallel-0.1"),
        Claim("with dropout 0.3 the sequential layer is better", "sequential-0.3", "parallel-0.3"),
        Claim("dropout harms the parallel layer", "parallel-0", "parallel-0.1"),
        Claim("dropout harms the sequential layer", "sequential-0", "sequential-0.1"),
    ),
    scales=TEXT_SCALES,
)

LADDER_SIZES = {"small": (32, 2), "large": (64, 4)}
"""widths and heads beside Table 1's 48 and 3"""
_PAIRS = {
    "the parallel layer beats the sequential one": ("parallel", "sequential"),
    "RK4 beats Euler": ("rk4", "parallel"),
    "the parallel layer with half of the weights beats the sequential one": ("parallel-6", "sequential"),
}
LADDER = PaperTable(
    name="zhong2022/ladder",
    title="Table 1's main claims at a smaller and a larger size",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=tuple(
        TableRow(f"{name}-{size}", architecture, size)
        for size in LADDER_SIZES
        for name, architecture in (
            ("sequential", "sequential"),
            ("parallel", "parallel"),
            ("parallel-6", "parallel:independent=6"),
            ("rk4", "rk4"),
        )
    ),
    claims=tuple(
        Claim(f"{text} ({width} wide)", f"{first}-{size}", f"{second}-{size}")
        for size, (width, _) in LADDER_SIZES.items()
        for text, (first, second) in _PAIRS.items()
    ),
    scales={"laptop": {size: sized(AUGMENTED, *numbers) for size, numbers in LADDER_SIZES.items()}},
    beside=LOSS,
    notes=("The middle size, 48 wide, is Table 1.",),
)
