"""What the reader must know before believing a table: what was equal, what was not, what the numbers leave out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odeum.lab.study.intervals import ERROR
from odeum.lab.study.metric import METRICS
from odeum.lab.study.outliers import far_runs
from odeum.lab.study.prose import Scale, count, duration, interval_note, listing, percent
from odeum.lab.study.records import ComparisonRecord
from odeum.lab.study.row import Row
from odeum.lab.study.seeds import Seeds
from odeum.lab.train.settings import MAY_CHANGE

MATCH_NOTES = {
    "steps": "Every architecture took the same number of optimizer steps on the same batches; "
    "a step may cost more in one than in another",
    "time": "Every architecture trained for the same time by the measured cost of a step; faster ones took more steps",
    "macs": "Every architecture spent the same number of multiply–adds on training; cheaper ones took more steps",
    "params": "The models were sized to about the same number of parameters and took the same number of steps",
}

MEASURES: dict[str, tuple[str, float, Callable[[Row], float | None]]] = {
    "steps": ("numbers of steps", 0.01, lambda row: row.steps),
    "time": ("training times", 0.1, lambda row: row.seconds),
    "macs": ("multiply–adds of training", 0.05, lambda row: row.training_macs),
    "params": ("numbers of parameters", 0.1, lambda row: row.parameters),
}
"""What each match holds equal, and the share by which it may miss."""

DIFFERS_BY_MATCH = frozenset({"steps", "macs", "epochs", "budget"})
"""Settings that differ by design where time or multiply–adds are held equal."""


def notes(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """Sentences, the most important first."""
    out = [*_equal(comparison, rows), *data_notes(comparison), *_verdicts(comparison, rows)]
    luck, rest = "the luck of initial weights and batch order", "the choice of the data, its split, or the recipe"
    if comparison.overlap:
        luck, rest = (
            f"{luck} and of the split, which is another one in each seed",
            "the choice of the data or the recipe",
        )
        out.append(
            "Training parts of different splits overlap, so the intervals are wider than those of independent seeds "
            f"(Nadeau and Bengio: the variance of a mean has {comparison.overlap:.2f} beside 1/n)."
        )
    out.append(f"± is the sample standard deviation over seeds: {luck}. It does not cover {rest}.")
    out.append("One recipe was used for all and tuned for none; another recipe may change the order.")
    out += _times(comparison)
    if known := next((row.beside["majority_accuracy"] for row in rows if "majority_accuracy" in row.beside), None):
        out.append(
            f"Always saying the most frequent class of the training has an accuracy of {100 * known.mean:.1f} %."
        )
    if rows and rows[0].split == "valid":
        out.append("There is no test result for every run, so architectures are judged on the validation part.")
    return [*out, *hidden_note(comparison)]


def cut_note(rows: Sequence[Row]) -> list[str]:
    """Says that intervals were cut to what the metric can be, where they were."""
    cut = [row for row in rows if row.ends and row.difference and row.ends != (row.difference.low, row.difference.high)]
    if not cut:
        return []
    return [
        f"The intervals of {listing([row.architecture for row in cut])} are cut to what is possible; the verdicts "
        "are read off the whole ones."
    ]


def hidden_note(comparison: ComparisonRecord) -> list[str]:
    """Names the architectures of other comparisons in the same directory."""
    if not comparison.hidden:
        return []
    return [
        f"Runs of other comparisons in this folder are not shown: {listing(list(comparison.hidden))}; "
        f"`odeum report {comparison.directory} --all` shows them."
    ]


def _times(comparison: ComparisonRecord) -> list[str]:
    """Where step times come from."""
    how = "Step time is the median step, as a ratio to the baseline within each seed, on the device used"
    if comparison.pace is not None:
        how = (
            "Step times were measured before the runs, all architectures in turns in one process on the device used; "
            "where the middle half of the turns lies on both sides of 1 it is a tie, written as 1. Training times are "
            "numbers of steps × these, whatever the clock said of runs that went on beside others"
        )
    out = [f"{how}; multiply–adds are counted for one example, forward."]
    infos = (run.info for run in comparison.runs)
    if any("steps chosen by" in str(info.get("scheme")) for info in infos) and comparison.pace is not None:
        out.append(
            "An adaptive solver takes more evaluations as its weights grow, so its steps became dearer in training "
            "than they were measured."
        )
    return out


def data_notes(comparison: ComparisonRecord) -> list[str]:
    """What the runs say about their data and scores: images that were cropped, a smaller test, how BLEU was counted."""
    told = [(run.result or {}).get("notes") for run in comparison.runs]
    found = [note for notes in told if isinstance(notes, list) for note in notes if isinstance(note, str)]
    return [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(found) if note]


def warnings(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """What makes this comparison less than it seems; empty if all is well."""
    out = [f"{sentence}." for sentence in comparison.left_out]
    for row in rows:
        if row.unfinished:
            out.append(f"`{row.architecture}` is unfinished ({'; '.join(row.unfinished)}); only finished runs count.")
        elif not row.seeds:
            out.append(f"`{row.architecture}` has no run yet.")
        if row.diverged:
            seeds = ", ".join(map(str, row.diverged))
            out.append(f"`{row.architecture}` diverged with seed {seeds}; its mean is over the other seeds.")
    out += [*_unlearned(comparison, rows), *_far(comparison, rows)]
    if comparison.looked:
        seen = " and ".join(map(str, comparison.looked))
        out.append(
            f"Seeds were added after the results of {seen} had been seen; the verdicts promise less than they say "
            "(--seeds auto plans its looks beforehand)."
        )
    out += _unequal(comparison.match, rows)
    most = max((len(row.seeds) for row in rows if row.is_baseline), default=0)
    uneven = [row.architecture for row in rows if row.difference and row.difference.n < max(len(row.seeds), most)]
    if uneven and not (comparison.seeds and comparison.seeds.auto):
        out.append(f"{listing(uneven)} and the baseline do not share all seeds; differences use the shared ones.")
    runs = [run.info for run in comparison.runs if run.result is not None]
    for key, what in (("fingerprint", "data"), ("device", "device")):
        split = key == "fingerprint" and comparison.overlap > 0  # then it is another one in each seed
        found = {(info.get("seed") if split else None, str(info.get(key))) for info in runs}
        if len(found) > len({seed for seed, _ in found}):
            out.append(f"The runs do not all have the same {what}, so they are not one experiment.")
    for key, value in differing([info.get("training") for info in runs]).items():
        if key in DIFFERS_BY_MATCH and comparison.match in ("time", "macs"):
            continue
        out.append(f"The recipe was not the same in all runs: {key} is {' or '.join(value)}.")
    return out


def differing(settings: Iterable[Any]) -> dict[str, list[str]]:
    """The keys in which dictionaries differ, with the values found."""
    dicts = [item for item in settings if isinstance(item, dict)]
    keys = dict.fromkeys(key for item in dicts for key in item if key not in MAY_CHANGE)
    found = {key: list(dict.fromkeys(str(item.get(key, "absent")) for item in dicts)) for key in keys}
    return {key: values for key, values in found.items() if len(values) > 1}


def _equal(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """What was held equal, beside what was measured."""
    if comparison.match is None:
        return ["What was held equal between the architectures is not recorded (no comparison.json)."]
    claim = MATCH_NOTES.get(comparison.match, f"The architectures were matched by {comparison.match}")
    steps = _span([row.steps for row in rows], lambda x: f"{x:.0f}")
    time = _span([row.seconds for row in rows], duration)
    macs = _span([row.training_macs for row in rows], count)
    measured = [f"{value} {what}" for value, what in ((steps, "steps"), (time, "of training"), (macs, "multiply–adds"))]
    told = ", ".join(text for text in measured if not text.startswith(" "))
    return [f"{claim} (measured: {told})." if told else f"{claim}."]


def _unequal(match: str | None, rows: Sequence[Row]) -> list[str]:
    """Early stopping or a coarse budget can break the promise of equality."""
    name, share, get = MEASURES.get(match or "", ("", 0.0, lambda row: None))
    values = [x for row in rows if row.seeds and (x := get(row))]
    if not values or max(values) <= (1 + share) * min(values):
        return []
    return [f"The {name} should have been equal, but the largest is {max(values) / min(values):.2f}× the smallest."]


def _span(values: Sequence[float | None], write: Any) -> str:
    found = [x for x in values if x is not None]
    if not found:
        return ""
    low, high = write(min(found)), write(max(found))
    return low if low == high else f"{low} to {high}"


def _verdicts(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """What the words mean, and what they promise."""
    margin = comparison.facts.spell_margin(comparison.margin)
    if comparison.baseline is None:
        out = [
            "Architectures that share a letter could not be told apart: the intervals of all pairs, paired by seed, "
            f"hold together at {percent(1 - ERROR)}."
        ]
    else:
        out = [
            interval_note(rows),
            f"Verdicts are read off the intervals, with a margin of {margin} said before the run: “practically equal” "
            "lies within it altogether, “better” or “worse” leaves out zero, “open” does neither. The number of seeds "
            "that would decide an open one supposes that difference and spread stay what they are.",
        ]
    if comparison.seeds and comparison.seeds.auto:
        out.append(_looks(comparison.seeds, rows))
    if not any(row.judged or row.group for row in rows):
        out.append("With one seed nothing can be told from luck; three seeds or more allow a verdict.")
    if other := next((row.other[0] for row in rows if row.other), None):
        out.append(
            f"{other.capitalize()} is shown with its interval, but was not declared to decide: it has no verdict."
        )
    return out


def _looks(seeds: Seeds, rows: Sequence[Row]) -> str:
    """When results were looked at, and who got no more seeds from then on."""
    most = max((len(row.seeds) for row in rows), default=0)
    made = [str(look.seeds) for look in seeds.looks if look.seeds <= most]
    told = f"after {' and '.join(filter(None, [', '.join(made[:-1]), made[-1]]))}" if made else "not yet"
    early: dict[int, list[str]] = {}
    for row in rows:
        if row.answer and row.answer.look and row.answer.look < seeds.limit:
            early.setdefault(row.answer.look, []).append(row.architecture)
    stopped = "; ".join(f"{listing(names)} after {look} seeds" for look, names in sorted(early.items()))
    ended = f": {stopped}" if stopped else ""
    return (
        f"Results were looked at {told} of at most {seeds.limit} seeds, as planned; an architecture that was decided "
        f"got no more{ended}. The error of {percent(ERROR)} is spent over all looks together."
    )


def _unlearned(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """Architectures that have not learned are alike, and that says nothing of their layers."""
    scores = [row.score for row in rows if row.score]
    if not comparison.higher_is_better or not scores or comparison.metric not in METRICS:
        return []
    shares = [row.beside["majority_accuracy"].mean for row in rows if "majority_accuracy" in row.beside]
    judged_by_it = comparison.metric == "accuracy" and bool(shares)
    least = max(shares) if judged_by_it else 0.0
    if any(score.mean >= least + comparison.margin.size(score.mean) for score in scores):
        return []
    chance = (
        f"always saying the most frequent class ({percent(least)})" if judged_by_it else "having learned nothing (0)"
    )
    margin = comparison.facts.spell_margin(comparison.margin)
    return [
        f"No architecture is {margin} above {chance}: they have not learned yet, and a verdict says nothing of "
        "their layers. Train for longer."
    ]


def _far(comparison: ComparisonRecord, rows: Sequence[Row]) -> list[str]:
    """Runs that no interval of a few seeds can bear."""
    scores, scale = comparison.scores(comparison.metric), Scale.of(rows)
    return [
        f"Seed {seed} of `{name}` is far off its other seeds ({scale.number(scores[name][seed])}{scale.unit}): where "
        "runs collapse now and then, a few seeds cannot tell how often, and the intervals promise less than they say."
        for name, seed in far_runs(scores)
    ]
