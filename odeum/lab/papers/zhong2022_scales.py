"""The settings of Zhong et al.'s tables at two scales; what the paper leaves open is ours, with the reason."""

from __future__ import annotations

from dataclasses import replace

from odeum.lab.papers.base import Setting
from odeum.lab.train.settings import Training
from odeum.models.settings import Language, Translation, Vision

AUGMENTED = Setting(
    data="cifar100",
    options={"augment": "light"},
    model=Vision(
        width=48,
        heads=3,
        depth=12,
        image_size=32,
        patch_size=8,
        channels=3,
        classes=100,
        pooling="mean",
        stem="convolution",
    ),
    training=Training(steps=5624, batch_size=64, learning_rate=2e-3, warmup=0.1, evaluate_every=1406, precision="fp32"),
    regime="with augmentation (45,000 images, shifted and flipped, 8 passes)",
    ours=(
        "CIFAR-100 at its own 32 × 32 in patches of 8, a convolutional stem, mean pooling",
        "12 layers as in the paper, 48 wide instead of 192",
    ),
)
OVERFITTING = replace(
    AUGMENTED,
    options={"augment": "none", "train_examples": 10_000},
    training=replace(AUGMENTED.training, steps=2340, evaluate_every=585),
    regime="overfitting (10,000 images without augmentation, 15 passes)",
)


def sized(setting: Setting, width: int, heads: int) -> Setting:
    """The setting at another width, for the ladder."""
    hidden = setting.model.hidden
    changes = {} if hidden is None else {"hidden": hidden * width // setting.model.width}
    model = replace(setting.model, width=width, heads=heads, **changes)
    return replace(setting, model=model, ours=(f"{width} wide, otherwise as at {setting.model.width} wide",))


IMAGE_SCALES = {
    "laptop": {"images": AUGMENTED},
    "paper": {
        "images": Setting(
            data="cifar100",
            options={"size": 224, "augment": "deit"},
            model=Vision(width=192, heads=3, depth=12, image_size=224, patch_size=16, channels=3, classes=100),
            training=Training(
                epochs=300,
                batch_size=512,
                learning_rate=5e-4,
                warmup=5 / 300,
                weight_decay=0.05,
                beta2=0.999,
                clip=0.0,
                label_smoothing=0.1,
            ),
            ours=(
                "the paper gives no recipe for the images: these are DeiT's published defaults (300 epochs, AdamW, "
                "5e-4 for 512 images, cosine, 5 epochs of warm-up, smoothing 0.1, RandAugment, mixup, cutmix, erasing)",
                "no stochastic depth and no averaged weights, which DeiT has: the paper's best rows drop nothing",
                "224 × 224 in patches of 16 with a class token: what the paper's column of parameters needs",
            ),
            steps_an_epoch=88,
        )
    },
}


OVERFITTING_SCALES = {"laptop": {"images": OVERFITTING}, "paper": IMAGE_SCALES["paper"]}

PAIR_SCALES = {
    "laptop": {
        "pairs": Setting(
            data="multi30k-en-de",
            options={"vocabulary": 2000, "length": 48, "beam": 1},
            model=Translation(width=64, heads=2, depth=6, hidden=256, activation="relu", vocabulary=2000, length=48),
            training=Training(
                steps=1800,
                batch_size=1536,
                learning_rate=8e-3,
                warmup=0.2,
                weight_decay=0.01,
                label_smoothing=0.1,
                evaluate_every=900,
                precision="fp32",
            ),
            regime="little overfitting (28,861 pairs, about 5 passes)",
            ours=(
                "Multi30k for WMT14, half of the paper's small widths (64 for 128, 256 for 512), 6 + 6 layers as there",
                "1800 steps of about 1536 target tokens with a cosine schedule, greedy search",
            ),
        )
    },
    "paper": {
        "pairs": Setting(
            data="wmt14-en-de",
            options={"vocabulary": 32_768, "length": 256, "beam": 4},
            model=Translation(
                width=128, heads=2, depth=6, hidden=512, activation="relu", vocabulary=32_768, length=256
            ),
            training=Training(
                epochs=30,
                batch_size=25_000,
                learning_rate=7e-4,
                schedule="inverse-sqrt",
                warmup=4000,
                weight_decay=0.0,
                beta2=0.98,
                clip=0.0,
                label_smoothing=0.1,
            ),
            ours=(
                "30 epochs and the widths are the paper's; the rest are fairseq's published defaults for WMT14",
                "a joint vocabulary of 32,768 BPE tokens: the paper does not give one",
                "pre-norm layers, as in our images; fairseq's default is post-norm, which the parallel layer cannot be",
            ),
            steps_an_epoch=5000,
        )
    },
}


TEXT_SCALES = {
    "laptop": {
        "text": Setting(
            data="wikitext2",
            options={"tokens": "bpe", "vocabulary": 8000, "length": 128, "context": 32},
            model=Language(width=48, heads=2, depth=6, hidden=192, activation="relu", vocabulary=8000, length=128),
            training=Training(
                steps=1668,
                batch_size=32,
                learning_rate=8e-3,
                warmup=0.1,
                weight_decay=0.1,
                evaluate_every=834,
                precision="fp32",
            ),
            regime="no overfitting (2.7 million tokens, 2.5 passes)",
            ours=(
                "WikiText-2 for WikiText-103, with 8000 BPE tokens for its words: a perplexity of another unit",
                "48 wide for the paper's 128, 6 layers as in fairseq's small model, 1668 steps of 32 windows of 128",
            ),
        )
    },
    "paper": {
        "text": Setting(
            data="wikitext103",
            options={"tokens": "words", "length": 512},
            model=Language(
                width=128,
                heads=2,
                depth=6,
                hidden=512,
                activation="relu",
                vocabulary=267_744,
                length=512,
                embedding="adaptive",
                cutoffs=(20_000, 60_000),
            ),
            training=Training(
                steps=50_000,
                batch_size=128,
                learning_rate=5e-4,
                schedule="inverse-sqrt",
                warmup=4000,
                weight_decay=0.01,
                clip=0.0,
            ),
            ours=(
                "widths are the paper's; steps, batch and rate are fairseq's published language-model example",
                "the adaptive embedding of Baevski and Auli, cut at 20,000 and 60,000 words, as they publish it",
            ),
        )
    },
}
