"""Texts with a class each, and sequences that are generated in their manner."""

from __future__ import annotations

from odeum.kinds.base import Kind, like
from odeum.kinds.images import TOP
from odeum.settings.data import ClassificationData, ListOpsData
from odeum.settings.model import Classification

CLASSIFICATION = Kind(
    name="classification",
    about="texts, one class each",
    input="text",
    target="class",
    options=ClassificationData,
    settings=Classification,
    model="odeum.models.classification:ClassificationModel",
    task="odeum.lab.tasks.classification:ClassificationTask",
    decided=("classes", "vocabulary", "length"),
    presets={
        "classification_small": Classification(width=64, heads=4, depth=4, activation="relu"),
        "classification_base": Classification(width=256, heads=8, depth=6, activation="relu", dropout=0.1),
    },
    sets=("imdb", "imdb-bytes", "ag_news"),
    predict_options=(TOP,),
    recognises="odeum.lab.data.sniffing:holds_labelled_texts",
)

LISTOPS = like(
    CLASSIFICATION,
    "listops",
    about="nested operations on digits, one class each, generated",
    options=ListOpsData,
    task="odeum.lab.tasks.listops:ListOpsTask",
    sets=("listops",),
)
