"""Dutta et al. 2021, TransEvolve (arXiv 2109.15142): its own tables could not be read, only the claims of its abstract.

The claims: on WMT14 En-Fr better than Transformer-base by 1.4 BLEU with 10 % fewer parameters, elsewhere comparable; on
all encoder-only tasks better than the Transformer, with half of the parameters and three times the training speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from odeum.lab.papers.base import PaperTable, Setting, TableRow
from odeum.lab.papers.zhong2022_scales import PAIR_SCALES, sized
from odeum.lab.study.judge import Claim, CostClaim
from odeum.lab.study.metric import POINT, Margin
from odeum.lab.train.settings import Training
from odeum.models.settings import Classification, Translation

VARIANTS = {
    "full-1": "transevolve:full-1",
    "full-2": "transevolve:full-2",
    "random-1": "transevolve:random-1",
    "random-1-published": "transevolve:random-1,rotation=published",
    "random-2": "transevolve:random-2",
}
BASELINES = {"linear": "sequential:attention=linear-attention", "synthesizer": "sequential:attention=synthesizer"}
"""stand for the abstract's "several strong baselines", whose list could not be read"""
TRANSFORMER = "the Transformer is pre-norm, as TransEvolve's layers are: one thing differs"


def _variants(
    setting: str, prefix: str = "", baselines: Mapping[str, str] = MappingProxyType({}), **model: object
) -> tuple[TableRow, ...]:
    """The Transformer, every variant of TransEvolve, and the controls that the paper lacks."""

    def row(name: str, architecture: str, control: bool = False, about: str = "", **changes: object) -> TableRow:
        return TableRow(f"{prefix}{name}", architecture, setting, {**model, **changes}, control=control, about=about)

    return (
        row("transformer", "sequential", about=TRANSFORMER),
        *(row(name, architecture) for name, architecture in VARIANTS.items()),
        *(row(name, architecture) for name, architecture in baselines.items()),
        row("full-1-parallel", "transevolve:full-1,method=euler", True),
        row("full-1-rk4", "transevolve:full-1,method=rk4", True),
        TableRow(
            f"{prefix}transformer-narrow",
            "sequential",
            setting,
            dict(model),
            feedforward=0.7,
            control=True,
            about="about as many parameters in its layers as full-1",
        ),
    )


def _costs(prefix: str, data: str) -> tuple[CostClaim, ...]:
    """Half of the parameters, and three times the speed of training; the abstract does not say of which variant."""
    name, beside = f"{prefix}random-1", f"{prefix}transformer"
    return (
        CostClaim(f"random-1 has half of the parameters on {data}", name, beside, "parameters", 0.5),
        CostClaim(f"random-1 trains three times as fast on {data}", name, beside, "step", 1 / 3),
        CostClaim(f"full-1 trains three times as fast on {data}", f"{prefix}full-1", beside, "step", 1 / 3),
    )


def _text(width: int, heads: int, dropout: float, **facts: int) -> Classification:
    return Classification(width=width, heads=heads, depth=6, activation="relu", dropout=dropout, **facts)  # ty: ignore


_RECIPE = Training(
    steps=700, batch_size=32, learning_rate=4e-3, warmup=0.1, weight_decay=0.05, evaluate_every=350, precision="fp32"
)
_PUBLISHED = Training(
    epochs=10, batch_size=64, learning_rate=5e-4, schedule="inverse-sqrt", warmup=4000, weight_decay=0.0, beta2=0.999
)
_OPEN = (
    "rate, warm-up, batch, length and epochs are no part of the published code: ours",
    "256 wide, 8 heads, 6 layers, dropout 0.1 are the published code's",
)
TEXTS = {
    "laptop": {
        "imdb": Setting(
            data="imdb",
            options={"vocabulary": 8000, "length": 256, "test_examples": 10_000},
            model=_text(64, 4, 0.1, vocabulary=8000, length=256, classes=2),
            training=_RECIPE,
            regime="IMDB: one pass over 22,500 texts",
            ours=("64 wide instead of 256; IMDB's first 256 words, 700 steps of 32, 10,000 of the test texts",),
        ),
        "ag_news": Setting(
            data="ag_news",
            options={"vocabulary": 8000, "length": 64},
            model=_text(64, 4, 0.1, vocabulary=8000, length=64, classes=4),
            training=replace(_RECIPE, steps=1120, evaluate_every=560),
            regime="AG News: two passes over 17,991 texts",
            ours=("20,000 of AG News' 120,000 training texts, the first 64 words, 1120 steps of 32",),
        ),
    },
    "paper": {
        "imdb": Setting(
            data="imdb",
            options={"vocabulary": 20_002, "length": 512},
            model=_text(256, 8, 0.1, vocabulary=20_002, length=512, classes=2),
            training=_PUBLISHED,
            steps_an_epoch=352,
            ours=_OPEN,
        ),
        "ag_news": Setting(
            data="ag_news",
            options={"vocabulary": 30_522, "length": 128, "tokens": "bpe"},
            model=_text(256, 8, 0.1, vocabulary=30_522, length=128, classes=4),
            training=_PUBLISHED,
            steps_an_epoch=1687,
            ours=(*_OPEN, "a BPE of our own with as many tokens as the code's word pieces"),
        ),
    },
}

TEXT_CLASSES = PaperTable(
    name="dutta2021/classification",
    title="TransEvolve and the Transformer on IMDB and AG News",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=(*_variants("imdb", "imdb-", BASELINES), *_variants("ag_news", "ag-", BASELINES)),
    claims=tuple(
        Claim(f"{name} beats {text} on {data}", f"{prefix}{name}", f"{prefix}{other}")
        for prefix, data in (("ag-", "AG News"), ("imdb-", "IMDB"))
        for name, other, text in (
            ("full-1", "transformer", "the Transformer"),
            ("random-1", "transformer", "the Transformer"),
            ("full-1", "linear", "linear attention"),
            ("full-1", "synthesizer", "the Synthesizer"),
        )
    ),
    costs=(*_costs("ag-", "AG News"), *_costs("imdb-", "IMDB")),
    scales=TEXTS,
)

LONG_TEXTS = {
    "laptop": {
        "listops": Setting(
            data="listops",
            options={"min_length": 500, "max_length": 600, "count": 10_000},
            model=_text(64, 4, 0.0, vocabulary=17, length=600, classes=10),
            training=Training(
                steps=600, batch_size=16, learning_rate=2e-3, warmup=0.1, evaluate_every=300, precision="fp32"
            ),
            regime="ListOps: one pass over 10,000 expressions",
            ours=("expressions of 500 to 600 tokens instead of 500 to 2000, 64 wide instead of 256, 600 steps of 16",),
        ),
        "bytes": Setting(
            data="imdb-bytes",
            options={"length": 1000, "test_examples": 5000},
            model=_text(64, 4, 0.1, vocabulary=257, length=1000, classes=2),
            training=Training(
                steps=400, batch_size=8, learning_rate=2e-3, warmup=0.1, evaluate_every=200, precision="fp32"
            ),
            regime="bytes of IMDB: 3,200 texts, each seen once",
            ours=("the first 1000 bytes, 64 wide instead of 256, 400 steps of 8, 5000 of the test texts",),
        ),
    },
    "paper": {
        "listops": Setting(
            data="listops",
            options={"long": True},
            model=_text(256, 8, 0.1, vocabulary=17, length=2000, classes=10),
            training=_PUBLISHED,
            steps_an_epoch=1500,
            ours=(*_OPEN, "Long Range Arena's generator; the code's own files cannot be made from what is published"),
        ),
        "bytes": Setting(
            data="imdb-bytes",
            options={"length": 4096},
            model=_text(256, 8, 0.1, vocabulary=257, length=4096, classes=2),
            training=_PUBLISHED,
            steps_an_epoch=352,
            ours=_OPEN,
        ),
    },
}
LONG_SEQUENCES = PaperTable(
    name="dutta2021/long",
    title="TransEvolve and the Transformer on long sequences: ListOps and the bytes of IMDB",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=(*_variants("listops", "listops-"), *_variants("bytes", "bytes-")),
    claims=tuple(
        Claim(f"{name} beats the Transformer on {data}", f"{prefix}{name}", f"{prefix}transformer")
        for prefix, data in (("listops-", "ListOps"), ("bytes-", "IMDB's bytes"))
        for name in ("full-1", "random-1")
    ),
    costs=(*_costs("listops-", "ListOps"), *_costs("bytes-", "IMDB's bytes")),
    scales=LONG_TEXTS,
)

LENGTHS = (512, 1024, 2048, 4096)
TOKENS_AT_ONCE = 4096


def _timed(length: int) -> Setting:
    return Setting(
        data="imdb-bytes",
        options={"length": length, "test_examples": 100},
        model=_text(256, 8, 0.1, vocabulary=257, length=length, classes=2),
        training=Training(steps=10, batch_size=TOKENS_AT_ONCE // length, precision="fp32"),
        ours=("rows are timed and not trained: 256 wide, 8 heads, 6 layers, dropout 0.1, as the published code",),
    )


SPEED = PaperTable(
    name="dutta2021/speed",
    title="TransEvolve's time of a training step and parameters at 512 to 4,096 tokens",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=tuple(
        TableRow(f"{name}-{length}", architecture, str(length), control=True)
        for length in LENGTHS
        for name, architecture in (
            ("transformer", "sequential"),
            ("full-1", VARIANTS["full-1"]),
            ("random-1", VARIANTS["random-1"]),
        )
    ),
    claims=(),
    costs=(
        *(
            CostClaim(f"{name} has half of the parameters", f"{name}-512", "transformer-512", "parameters", 0.5)
            for name in ("full-1", "random-1")
        ),
        *(
            CostClaim(
                f"{name} trains three times as fast at {length} tokens",
                f"{name}-{length}",
                f"transformer-{length}",
                "step",
                1 / 3,
            )
            for length in LENGTHS
            for name in ("full-1", "random-1")
        ),
    ),
    scales={"laptop": {str(length): _timed(length) for length in LENGTHS}},
    notes=("The abstract claims three times the speed for all encoder-only tasks and names no length.",),
)

LADDER_SIZES = {"small": (32, 2), "large": (128, 8)}
"""widths and heads beside the 64 and 4 of `dutta2021/classification`"""
LADDER = PaperTable(
    name="dutta2021/ladder",
    title="TransEvolve and the Transformer on AG News at a smaller and a larger size",
    metric="accuracy",
    split="test",
    margin=POINT,
    rows=tuple(
        TableRow(f"{name}-{size}", architecture, size)
        for size in LADDER_SIZES
        for name, architecture in (("transformer", "sequential"), ("full-1", VARIANTS["full-1"]))
    ),
    claims=tuple(
        Claim(f"full-1 beats the Transformer on AG News ({width} wide)", f"full-1-{size}", f"transformer-{size}")
        for size, (width, _) in LADDER_SIZES.items()
    ),
    scales={"laptop": {size: sized(TEXTS["laptop"]["ag_news"], *numbers) for size, numbers in LADDER_SIZES.items()}},
    notes=("The middle size, 64 wide, is in `dutta2021/classification`.",),
)

_SMALL = PAIR_SCALES["laptop"]["pairs"]


def _large(data: str, vocabulary: int) -> Setting:
    return Setting(
        data=data,
        options={"vocabulary": vocabulary, "length": 256, "beam": 4},
        model=Translation(width=512, heads=8, depth=6, hidden=2048, activation="relu", vocabulary=vocabulary),
        training=Training(
            steps=300_000,
            batch_size=25_000,
            learning_rate=5e-4,
            schedule="inverse-sqrt",
            warmup=16_000,
            weight_decay=0.0,
            clip=0.0,
            label_smoothing=0.1,
        ),
        ours=(
            "512, 2048, 8 heads, 6 + 6 layers, dropout 0.1, smoothing 0.1 are the published code's; true rate and "
            "batch are not recorded there",
        ),
    )


TRANSLATIONS = PaperTable(
    name="dutta2021/translation",
    title="TransEvolve and the Transformer on translation",
    metric="loss",
    split="valid",
    margin=Margin(0.01, relative=True),
    rows=(*_variants("en-de", "de-", dropout=0.1), *_variants("en-fr", "fr-", dropout=0.1)),
    claims=(
        Claim("full-1 keeps the Transformer's quality (en-de)", "de-full-1", "de-transformer", "comparable"),
        Claim("random-1 keeps the Transformer's quality (en-de)", "de-random-1", "de-transformer", "comparable"),
        Claim("full-1 beats the Transformer (en-fr)", "fr-full-1", "fr-transformer"),
    ),
    costs=(
        CostClaim("full-1 has 10 % fewer parameters", "de-full-1", "de-transformer", "parameters", 0.9),
        CostClaim("full-1 takes no longer a step", "de-full-1", "de-transformer", "step", 1.0),
        CostClaim("random-1 takes no longer a step", "de-random-1", "de-transformer", "step", 1.0),
    ),
    scales={
        "laptop": {
            "en-de": _SMALL,
            "en-fr": replace(_SMALL, data="multi30k-en-fr"),
        },
        "paper": {"en-de": _large("wmt14-en-de", 33_719), "en-fr": _large("wmt14-en-fr", 31_460)},
    },
    beside=(("test", "bleu"),),
    notes=("The validation loss decides; SacreBLEU, detokenised, on the test part is shown beside it.",),
)
