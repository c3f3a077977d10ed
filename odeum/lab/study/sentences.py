"""Sentences of a report: headline, notes on how it was measured, warnings. None is stronger than the verdicts."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odeum.lab.study.findings import Findings, Row
from odeum.lab.study.judge import BETTER, STOPPED, VERDICTS, WORSE, Seeds
from odeum.lab.study.metric import METRICS
from odeum.lab.study.prose import Scale, count, duration, interval_note, listing, more, percent, ratio, verdict
from odeum.lab.study.runs import without_local_paths, without_option
from odeum.lab.study.sizes import default_sizes
from odeum.lab.study.statistics import ERROR, median, outliers
from odeum.lab.study.tuning import FEWEST, SEED
from odeum.lab.train.rundir import integer
from odeum.lab.train.settings import MAY_CHANGE

NOTICEABLE = 0.03
"""numbers of parameters within 3 % are called about the same"""
MOST_SUGGESTED = 30
"""more additional seeds than this are not suggested"""
LOWER = 4.0
"""factor by which a tuned default is lowered where runs diverged"""
CLEARLY = 1.25
"""factor from which one metric separates rows better than another"""
SLOWER = 0.1
"""step times within 10 %, or whose range includes 1, are a tie"""


def headline(rows: Sequence[Row], data: str, match: str | None = None) -> str:
    """One or two sentences: the decision and its cost."""
    done = [row for row in rows if row.score]
    scale = Scale.of(rows)
    if not done and any(row.diverged for row in rows):
        return f"Every run on {data} diverged, so nothing can be said; a smaller learning rate may help."
    if not done:
        return f"No run on {data} has finished yet, so nothing can be said."
    base = next((row for row in rows if row.is_baseline), None)
    if base is None:
        return _ranking(rows, data, scale)
    others = [row for row in done if not row.is_baseline]
    if base.diverged:
        seeds = f"seed{'' if len(base.diverged) == 1 else 's'} {', '.join(map(str, base.diverged))}"
        return (
            f"No verdict on {data}: the baseline `{base.architecture}` diverged with {seeds}, so nothing can be "
            "compared with it. A smaller learning rate may help."
        )
    if not base.score:
        return f"The baseline `{base.architecture}` has no finished run on {data}, so there is nothing to compare with."
    if not others:
        score = f"{scale.value(base.score)} {base.metric}"
        return f"Only `{base.architecture}` has finished on {data}, with {score}: nothing to compare it with yet."
    judged = [row for row in others if row.verdict in VERDICTS]
    if not judged:
        return _too_few(done, base, data, scale)
    still = [row for row in judged if row.verdict == "undecided"]
    if better := _better(judged):
        also = listing([row.architecture for row in better[1:]])
        ties = f" {also} {'is' if len(better) == 2 else 'are'} better than `{base.architecture}` too." if also else ""
        left = f" Undecided: {listing([row.architecture for row in still])}." if still else ""
        return _worth_it(better[0], base, data, scale, match) + ties + left + _behind(judged)
    if equal := [row for row in judged if row.verdict == "practically equal"]:
        return _equal(equal, judged, base, data, match) + _behind(judged)
    if still:
        return _open(still, base, data, scale, match) + _behind(judged)
    stay = f"Keep `{base.architecture}` on {data}:"
    left = [row.architecture for row in rows if row not in judged and not row.is_baseline]
    unsaid = f" No verdict yet on {listing(left)}." if left else ""
    if stopped := [row.architecture for row in judged if row.verdict == STOPPED]:
        return f"{stay} {listing(stopped)} {'was' if len(stopped) == 1 else 'were'} not shown to be better.{unsaid}" + (
            _behind(judged)
        )
    if left:
        worse = f"{listing([row.architecture for row in judged])} {'is' if len(judged) == 1 else 'are'} worse"
        return f"{stay} {worse}.{unsaid}"
    return f"{stay} {'the' if len(judged) == 1 else 'every'} other architecture is worse."


def conclusion(findings: Findings) -> str:
    """The headline, whether settings were tuned, and the next command with its estimated time."""
    return " ".join(filter(None, decision(findings)))


def decision(findings: Findings) -> tuple[str, str]:
    """The headline, and what follows it: whether settings were tuned, and the next command."""
    study = findings.study
    untuned = study.baseline is not None and study.tuning is None and any(row.judged for row in findings.rows)
    tuned = "Settings were not tuned per architecture." if untuned else ""
    following = " ".join(filter(None, (tuned, _next(findings))))
    return headline(findings.rows, study.data, study.match), following


def _next(findings: Findings) -> str:
    """Advice on the next runs, with their estimated training time."""
    study, rows = findings.study, findings.rows
    if not study.command:
        return ""
    if re.search(r" --sizes\b", study.command):
        return "The report of all sizes has the next command."
    same = without_option(study.command, "seeds")
    anew = f"{without_local_paths(same)} --out NEW"
    seeds = max((len(row.seeds) for row in rows), default=0)
    each = math.fsum(row.seconds or 0.0 for row in rows)
    if study.tuning is None:
        further = f"{anew} --seeds {seeds} --tune {FEWEST}", (FEWEST + seeds) * each
    else:
        larger, factor = _larger(findings, anew)
        further = f"{larger} --seeds {seeds}", factor * (study.tuning.tuning.runs + seeds) * each
    more_of = [row.answer.more for row in rows if row.answer and row.answer.word == "undecided" and row.answer.more]
    planned = study.seeds is not None and study.seeds.auto
    better = _better([row for row in rows if row.judged])
    command, cost = "", 0.0
    if any(row.unfinished or not row.seeds for row in rows):
        known = [row.seconds for row in rows if row.seconds]
        lacking = sum(len(row.unfinished) or (0 if row.seeds else seeds) for row in rows)
        command, cost = study.command, lacking * math.fsum(known) / max(len(known), 1)
    elif any(row.diverged for row in rows):
        command, cost = at_lower_rates(findings, anew, seeds), (FEWEST + seeds) * each
    elif len(rows) == 1:
        other = "parallel" if rows[0].architecture != "parallel" else "sequential"
        names = f"{rows[0].architecture},{other}"
        command, cost = f"{_with_architectures(same, names)} --seeds {max(seeds, 3)}", max(seeds, 3) * 2 * each
    elif seeds == 1:
        command, cost = f"{same} --seeds 3", 2 * each
    elif len(better) > 1:
        names = ",".join(row.architecture for row in better)
        cost = seeds * math.fsum(row.seconds or 0.0 for row in better)
        command = f"{_with_architectures(anew, names)} --seeds {seeds}"
    elif study.baseline is None:
        command, cost = (f"{same} --seeds {2 * seeds}", seeds * each) if not planned else further
    elif more_of and not planned and min(more_of) <= MOST_SUGGESTED:
        command, cost = f"{same} --seeds {seeds + min(more_of)}", min(more_of) * each
    else:
        command, cost = further
    return f"Next: `{command}` ({f'about {duration(cost)} of training' if cost else 'its time is not known yet'})."


def _larger(findings: Findings, anew: str) -> tuple[str, float]:
    """The command at three sizes, or at twice the size of a model too small for that, and its cost over this one's."""
    study, whole = findings.study, anew
    for name in ("budget", "train.budget", "train.macs"):
        anew = without_option(anew, name)
    limited = anew != whole
    for name in ("match", "step_times", "step-times"):
        anew = without_option(anew, name)
    if study.ranked and (best := [row.architecture for row in findings.rows if row.group][:1]):
        anew = f"{without_option(anew, 'baseline')} --baseline {shlex.quote(*best)}"
    if limited:  # a ladder trains each size in proportion to its parameters, so its length is in steps
        steps = next((row.steps for row in findings.rows if row.architecture == study.reference and row.steps), None)
        anew += "" if steps is None else f" --train.steps {steps:.0f}"
    model = next((run.info["model"] for run in findings.results.runs if isinstance(run.info.get("model"), dict)), {})
    width, depth, heads = (integer(model.get(name)) or 0 for name in ("width", "depth", "heads"))
    if not width or not depth or (heads and default_sizes(3, width, depth, heads)):
        return f"{anew} --sizes 3", 3
    anew = without_option(without_option(anew, "model.width"), "model.depth")
    return f"{anew} --model.width {2 * width} --model.depth {2 * depth}", 8


def at_lower_rates(findings: Findings, anew: str, seeds: int) -> str:
    """The command with tuned rates; where they were tuned, around a lower default."""
    tuning = findings.study.tuning
    if tuning is None:
        return f"{anew} --seeds {seeds} --tune {FEWEST}"
    rate = dict(zip(tuning.tuning.settings, tuning.tuning.defaults, strict=True)).get("learning_rate")
    rates = [(run.info.get("training") or {}).get("learning_rate") for run in findings.results.runs]
    rate = rate or min((x for x in rates if isinstance(x, int | float)), default=None)
    lower = "" if rate is None else f" --train.learning_rate {rate / LOWER:.3g}"
    return f"{without_option(anew, 'train.learning_rate')} --seeds {seeds}{lower}"


def _with_architectures(command: str, names: str) -> str:
    """The command with other architectures; the first is the baseline."""
    rest = without_option(without_option(command, "architectures"), "baseline")
    return f"{rest} --architectures {shlex.quote(names)}"


def _better(judged: Sequence[Row]) -> list[Row]:
    """The rows that are better, the best first."""
    return sorted((row for row in judged if row.verdict in BETTER), key=_rank_of_gain)


def _rank_of_gain(row: Row) -> tuple[bool, float]:
    """Sort key: the strongest verdict first, then the largest improvement."""
    mean = row.difference.mean if row.difference else 0.0
    return row.verdict != BETTER[0], -mean if row.higher_is_better else mean


def _behind(judged: Sequence[Row]) -> str:
    """The rows that are worse, and after how many seeds that was decided."""
    behind: dict[str, list[str]] = {}
    for row in judged:
        if row.verdict in WORSE:
            behind.setdefault(verdict(row).replace("(", "(after "), []).append(row.architecture)
    return "".join(f" {listing(names)} {'is' if len(names) == 1 else 'are'} {word}." for word, names in behind.items())


def _ranking(rows: Sequence[Row], data: str, scale: Scale) -> str:
    ranked = [row for row in rows if row.group]
    if not ranked:
        return f"No ranking on {data} yet: two seeds or more of two architectures allow one."
    best = ranked[0]
    assert best.score is not None
    leaders = [row for row in ranked if set(row.group) & set(best.group)]
    behind = [row.architecture for row in ranked if row not in leaders]
    score = f"{best.split} {best.metric} {scale.value(best.score)}"
    left = [row.architecture for row in rows if not row.group]
    unsaid = f" No verdict yet on {listing(left)}." if left else ""
    if len(leaders) == 1:
        others = listing(behind) if left else "all others"
        return f"`{best.architecture}` leads on {data} ({score}), ahead of {others}.{unsaid}"
    tail = (
        f"; {listing(behind)} {'is' if len(behind) == 1 else 'are'} worse than `{best.architecture}`" if behind else ""
    )
    names = listing([row.architecture for row in leaders if row is not best])
    return f"`{best.architecture}` leads on {data} ({score}), but cannot be told apart from {names}{tail}.{unsaid}"


def _too_few(done: Sequence[Row], base: Row, data: str, scale: Scale) -> str:
    if any(row.diverged for row in done):
        return f"No verdict on {data}: runs diverged (their {base.metric} is not a finite number)."
    if any(row.verdict.startswith("cut off") for row in done):
        return f"No verdict on {data}: runs reached their time limit; a longer --train.limit continues them."
    if not any(row.difference for row in done):
        return f"No verdict on {data}: no architecture shares a seed with the baseline `{base.architecture}`."
    if any(row.verdict.startswith("same") for row in done):
        return f"No verdict on {data}: the difference to `{base.architecture}` is the same in every seed."
    key = (lambda row: row.score.mean) if base.higher_is_better else (lambda row: -row.score.mean)
    best = max(done, key=key)
    score = f"{best.split} {best.metric} {scale.value(best.score)}" if best.score else ""
    ties = [row.architecture for row in done if row.score and best.score and row.score.mean == best.score.mean]
    if len(ties) > 1:
        return (
            f"One seed cannot tell which layer is worth it on {data}. {listing(ties)} have equal scores ({score}); "
            "three seeds or more allow a verdict."
        )
    versus = f" against {scale.value(base.score)} of `{base.architecture}`" if best is not base and base.score else ""
    return (
        f"One seed cannot tell which layer is worth it on {data}. `{best.architecture}` came out ahead "
        f"({score}{versus}); three seeds or more allow a verdict."
    )


def _worth_it(best: Row, base: Row, data: str, scale: Scale, match: str | None) -> str:
    difference = best.difference
    assert difference is not None and best.ends is not None and best.score is not None
    ends = sorted(map(abs, best.ends))
    way = "higher" if difference.mean > 0 else "lower"
    # Better at a higher cost is not yet a reason to use it.
    dearer = best.seconds is not None and base.seconds is not None and best.seconds > (1 + SLOWER) * base.seconds
    start = f"`{best.architecture}` is better on {data}" if dearer else f"Use `{best.architecture}` on {data}"
    small = "" if best.verdict == BETTER[0] else f", possibly by less than the margin of {best.margin_text}"
    return (
        f"{start}{small}: its {best.split} {best.metric} of "
        f"{scale.value(best.score)} is {scale.number(abs(difference.mean))}{scale.points} {way} than that of "
        f"`{base.architecture}` (interval {scale.number(ends[0])} to {scale.number(ends[1])}), "
        f"{_cost(best, base, match)}."
    )


def _equal(equal: Sequence[Row], judged: Sequence[Row], base: Row, data: str, match: str | None) -> str:
    """The headline for practically equal rows: the cost decides."""
    within = f"within {equal[0].margin_text}{', for the same training time' if match == 'time' else ''}"
    for name, cost in (("step time", _time), ("parameters", _size)):
        if saving := [(value, row) for row in equal if (value := cost(row, base)) is not None and value < 1]:
            value, row = min(saving, key=lambda pair: pair[0])
            return (
                f"Use `{row.architecture}` on {data}: it is practically equal to `{base.architecture}` "
                f"({within}) and needs {ratio(value)} its {name}."
            )
    names = [row.architecture for row in equal]
    still = [row.architecture for row in judged if row.verdict == "undecided"]
    tail = (
        f" {listing(still)} {'is' if len(still) == 1 else 'are'} undecided; more seeds would decide." if still else ""
    )
    are = "is" if len(names) == 1 else "are"
    return (
        f"Keep `{base.architecture}` on {data}: {listing(names)} {are} practically equal to it "
        f"({within}) and no cheaper.{tail}"
    )


def _open(still: Sequence[Row], base: Row, data: str, scale: Scale, match: str | None) -> str:
    """The headline if no row is shown to be better."""
    start = f"Undecided on {data} between {listing([base.architecture, *(row.architecture for row in still)])}"
    costs = (("parameters", _size),) if match == "time" else (("step time", _time), ("parameters", _size))
    for name, cost in costs:
        if saving := [(value, row) for row in still if (value := cost(row, base)) is not None and value < 1]:
            value, row = min(saving, key=lambda pair: pair[0])
            return (
                f"{start}. `{row.architecture}` needs {ratio(value)} the {name} of `{base.architecture}`, but whether "
                f"it is as good is undecided{_bound(row, scale)}: {more(row)} would decide."
            )
    nearest = min(still, key=lambda row: (row.answer.more if row.answer else None) or math.inf)
    who = f" of `{nearest.architecture}`" if len(still) > 1 else ""
    return f"{start}: {more(nearest)}{who} would decide."


def _bound(row: Row, scale: Scale) -> str:
    """The worst case that the interval allows."""
    if row.ends is None:
        return ""
    end, way = (row.ends[0], "lower") if row.higher_is_better else (row.ends[1], "higher")
    return f" (at worst {scale.number(abs(end))}{scale.points} {way})"


def _cost(row: Row, base: Row, match: str | None) -> str:
    """The cost of the better row, apart from the quantity that is held equal."""
    size = _size(row, base)
    if match == "time":
        return "for the same training time" + ("" if size is None else f" with {ratio(size)} the parameters")
    known = (("the time per step", _time(row, base)), ("the parameters", size))
    differing = [f"{ratio(value)} {name}" for name, value in known if value is not None]
    return "at " + " and ".join(differing) if differing else "at about the same time per step and parameters"


def _time(row: Row, base: Row) -> float | None:
    """The ratio of step times; none where it is a tie."""
    return row.step.middle if row.step and row.step.differs(SLOWER) else None


def _size(row: Row, base: Row) -> float | None:
    value = row.parameters / base.parameters if row.parameters and base.parameters else 1.0
    return value if abs(value - 1) > NOTICEABLE else None


# notes and warnings

MATCH_NOTES = {
    "steps": "Every architecture took the same number of optimizer steps on the same batches; "
    "a step may cost more in one than in another",
    "time": "Every architecture trained for the same time by the measured cost of a step; faster ones took more steps",
    "macs": "Every architecture spent the same number of MACs on training; cheaper ones took more steps",
    "params": "The models were sized to about the same number of parameters and took the same number of steps",
}

MEASURES: dict[str, tuple[str, float, Callable[[Row], float | None]]] = {
    "steps": ("numbers of steps", 0.01, lambda row: row.steps),
    "time": ("training times", 0.1, lambda row: row.seconds),
    "macs": ("training MACs", 0.05, lambda row: row.training_macs),
    "params": ("numbers of parameters", 0.1, lambda row: row.parameters),
}
"""The quantity that each match holds equal, its tolerance, and how it is read off a row."""

DIFFERS_BY_MATCH = frozenset({"steps", "macs", "epochs", "budget", "warmup"})
"""Settings that differ by design where time or MACs are held equal."""


def notes(findings: Findings) -> list[str]:
    """Notes on method and interpretation, the most important first."""
    study, rows = findings.study, findings.rows
    out = [*_held_equal(findings), *data_notes(findings), *_verdicts(findings)]
    source, rest = (
        "the variation from initial weights and batch order",
        "the choice of the data, its split, or the recipe",
    )
    if study.overlap:
        source, rest = (
            f"{source} and from the split, which differs between seeds",
            "the choice of the data or the recipe",
        )
        out.append(
            "Training parts of different splits overlap, so the intervals are wider than those of independent seeds "
            f"(Nadeau and Bengio: the variance of a mean has {study.overlap:.2f} beside 1/n)."
        )
    out.append(f"± is the sample standard deviation over seeds: {source}. It does not cover {rest}.")
    out += _tuned(findings)
    out += _times(findings)
    if known := next((row.beside["majority_accuracy"] for row in rows if "majority_accuracy" in row.beside), None):
        out.append(f"Always predicting the most frequent training class has an accuracy of {100 * known.mean:.1f} %.")
    if rows and rows[0].split == "valid":
        out.append("There is no test result for every run, so architectures are judged on the validation part.")
    return [*out, *hidden_note(findings)]


def _tuned(findings: Findings) -> list[str]:
    """A note on how the settings of each row were chosen and what the intervals then cover."""
    results = findings.study.tuning
    if results is None:
        return ["One recipe was used for all architectures, without tuning; another recipe may change the order."]
    tuning, study = results.tuning, findings.study
    settings = " and ".join(name.replace("_", " ") for name in tuning.settings)
    widened = f" (up to {tuning.cap} where the best value lay at an end)" if tuning.cap > tuning.runs else ""
    out = [
        f"The {settings} of each architecture was chosen by {tuning.runs} tuning runs{widened} with seed {SEED}, which "
        f"no evaluation uses, by the {study.tuned_by.name} on the validation part, at the length of the evaluation. "
        f"Tuning cost {duration(math.fsum(results.seconds.values()))} in all.",
        "The intervals are conditional on the chosen settings: they do not cover the variation of the tuning.",
    ]
    choices = {label: results.choice(label, study.tuned_by.higher_is_better) for label in study.labels}
    if unresolved := [label for label, choice in choices.items() if choice and not choice.resolved]:
        out.append(
            f"The optimum of {listing(unresolved)} is unresolved: the best value lies at the edge of the tried range, "
            "so another value may be better."
        )
    return out


def cut_note(rows: Sequence[Row]) -> list[str]:
    """A note if intervals were clipped to the range of the metric."""
    cut = [row for row in rows if row.ends and row.difference and row.ends != (row.difference.low, row.difference.high)]
    if not cut:
        return []
    return [
        f"The intervals of {listing([row.architecture for row in cut])} are clipped to possible values; verdicts "
        "use the unclipped intervals."
    ]


def hidden_note(findings: Findings) -> list[str]:
    """Names the architectures of other comparisons in the same directory."""
    if not findings.results.hidden:
        return []
    return [
        f"Runs of other comparisons in this folder are not shown: {listing(list(findings.results.hidden))}; "
        f"`odeum report {findings.results.directory} --all` shows them."
    ]


def _times(findings: Findings) -> list[str]:
    """A note on the measurement of step times."""
    study = findings.study
    how = "Step time is the median step, as a ratio to the baseline within each seed, on the device used"
    if study.pace is not None:
        how = (
            "Step times were measured before the runs, all architectures in turns in one process on the device used; "
            "if the middle half of the turns includes 1, it is a tie, written as 1. Training times are numbers of "
            "steps × step times, not wall-clock times, which depend on other processes"
        )
    out = [f"{how}; MACs are those of one example's forward pass."]
    infos = (run.info for run in findings.results.runs)
    if any("steps chosen by" in str(info.get("scheme")) for info in infos) and study.pace is not None:
        out.append(
            "An adaptive solver takes more evaluations as its weights grow, so its steps became slower during "
            "training than measured."
        )
    return out


def data_notes(findings: Findings) -> list[str]:
    """Notes of the runs about their data and scores, such as cropped images or how BLEU was counted."""
    lists = [(run.result or {}).get("notes") for run in findings.results.runs]
    texts = [note for notes in lists if isinstance(notes, list) for note in notes if isinstance(note, str)]
    return [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(texts) if note]


def warnings(findings: Findings) -> list[str]:
    """Reasons to doubt the comparison; empty if there are none."""
    study, rows = findings.study, findings.rows
    out = [f"{sentence}." for sentence in findings.results.problems]
    for row in rows:
        if row.unfinished:
            out.append(f"`{row.architecture}` is unfinished ({'; '.join(row.unfinished)}); only finished runs count.")
        elif not row.seeds:
            out.append(f"`{row.architecture}` has no run yet.")
        if row.diverged:
            seeds = ", ".join(map(str, row.diverged))
            rest = "; its mean is over the other seeds" if len(row.diverged) < len(row.seeds) else ""
            out.append(f"`{row.architecture}` diverged with seed {seeds}{rest}.")
    out += [*_unlearned(findings), *_far(findings)]
    if study.looked:
        seen = " and ".join(map(str, study.looked))
        out.append(
            f"Seeds were added after the results of {seen} had been seen, so the intervals are wider (together at "
            f"{percent(1 - study.error)}): this report and the earlier ones are all right with at least "
            f"{percent(1 - 2 * ERROR + study.error)}. --seeds auto plans its looks in advance and needs no such step."
        )
    out += _unequal(study.match, rows)
    most = max((len(row.seeds) for row in rows if row.is_baseline), default=0)
    uneven = [row.architecture for row in rows if row.difference and row.difference.n < max(len(row.seeds), most)]
    if uneven and not (study.seeds and study.seeds.auto):
        out.append(f"{listing(uneven)} and the baseline do not share all seeds; differences use the shared ones.")
    runs = [run.info for run in findings.results.runs if run.result is not None]
    for key, what in (("fingerprint", "data"), ("device", "device")):
        split = key == "fingerprint" and study.overlap > 0  # then it is another one in each seed
        values = {(info.get("seed") if split else None, str(info.get(key))) for info in runs}
        if len(values) > len({seed for seed, _ in values}):
            out.append(f"The runs do not all have the same {what}, so they are not one experiment.")
    for key, value in differing([info.get("training") for info in runs]).items():
        tuned = study.tuning.tuning.settings if study.tuning else ()
        if key in (*study.factors, *tuned) or (key in DIFFERS_BY_MATCH and study.match in ("time", "macs")):
            continue
        out.append(f"The recipe was not the same in all runs: {key} is {' or '.join(value)}.")
    return out


def differing(settings: Iterable[Any]) -> dict[str, list[str]]:
    """The keys in which dictionaries differ, with the values found."""
    dicts = [item for item in settings if isinstance(item, dict)]
    keys = dict.fromkeys(key for item in dicts for key in item if key not in MAY_CHANGE)
    occurring = {key: list(dict.fromkeys(str(item.get(key, "absent")) for item in dicts)) for key in keys}
    return {key: values for key, values in occurring.items() if len(values) > 1}


def _held_equal(findings: Findings) -> list[str]:
    """The quantity that was held equal, with its measured values."""
    study, rows = findings.study, findings.rows
    if study.match is None:
        return ["What was held equal between the architectures is not recorded (no comparison.json)."]
    claim = MATCH_NOTES.get(study.match, f"The architectures were matched by {study.match}")
    steps = _span([row.steps for row in rows], lambda x: f"{x:.0f}")
    time = _span([row.seconds for row in rows], duration)
    macs = _span([row.training_macs for row in rows], count)
    measured = [f"{value} {what}" for value, what in ((steps, "steps"), (time, "of training"), (macs, "MACs"))]
    figures = ", ".join(text for text in measured if not text.startswith(" "))
    return [f"{claim} (measured: {figures})." if figures else f"{claim}."]


def _unequal(match: str | None, rows: Sequence[Row]) -> list[str]:
    """A warning if the quantity that should be equal is not, as after early stopping."""
    name, share, get = MEASURES.get(match or "", ("", 0.0, lambda row: None))
    values = [x for row in rows if row.seeds and (x := get(row))]
    if not values or max(values) <= (1 + share) * min(values):
        return []
    return [f"The {name} should have been equal, but the largest is {max(values) / min(values):.2f}× the smallest."]


def _span(values: Sequence[float | None], write: Any) -> str:
    known = [x for x in values if x is not None]
    if not known:
        return ""
    low, high = write(min(known)), write(max(known))
    return low if low == high else f"{low} to {high}"


def _verdicts(findings: Findings) -> list[str]:
    """The meaning of the verdicts and their error."""
    study, rows = findings.study, findings.rows
    margin = study.metric.spell_margin(study.margin)
    if study.baseline is None:
        out = [
            "Architectures that share a letter could not be told apart: the intervals of all pairs, paired by seed, "
            f"hold together at {percent(1 - study.error)}."
        ]
    else:
        out = [
            interval_note(rows, study.error),
            f"Verdicts follow from the intervals and a margin of {margin}, declared before the runs: “practically "
            "equal” if the whole interval lies within the margin, “better” or “worse” if it excludes zero, “undecided” "
            "otherwise. The estimated number of further seeds assumes that difference and spread stay the same.",
        ]
    if study.seeds and study.seeds.auto:
        out.append(_looks(study.seeds, rows))
    if not any(row.judged or row.group for row in rows):
        out.append("One seed cannot separate an effect from noise; three seeds or more allow a verdict.")
    if other := next((row.other[0] for row in rows if row.other), None):
        out.append(
            f"The {other} is shown with its interval, but does not decide, so it has no verdict."
            f"{_discriminates(findings, other)}"
        )
    if study.signals:
        listed = ", ".join(f"{name} {value:.3g}" for name, value in study.signals.items())
        out.append(
            f"--judge auto chose the {study.metric.name} before the evaluation runs, by signal over noise on the "
            f"tuning runs ({listed})."
        )
    if any(row.pairing is not None for row in rows):
        out.append(
            "Pairing is var(difference) / (var(row) + var(baseline)) over the seeds: 0 if the noise of a seed cancels "
            "in the difference, 1 if pairing gains nothing. A few seeds determine it only roughly."
        )
    return out


def _discriminates(findings: Findings, other: str) -> str:
    """Which of the two metrics separates the rows better, if it is clear."""
    judged, shown = findings.study.metric.name, {}
    for name, differences in (
        (judged, [row.difference for row in findings.rows]),
        (other, [row.other[1] for row in findings.rows if row.other]),
    ):
        shown[name] = median(abs(each.mean) / each.spread for each in differences if each and each.spread) or 0.0
    best, worst = sorted(shown, key=lambda name: -shown[name])
    if not shown[worst] or shown[best] < CLEARLY * shown[worst]:
        return ""
    advice = f" A new comparison with --judge {best} would need fewer seeds." if best != judged else ""
    return (
        f" The {best} discriminates better: the median difference is {shown[best]:.2g} standard deviations over "
        f"seeds, against {shown[worst]:.2g} for the {worst}.{advice}"
    )


def _looks(seeds: Seeds, rows: Sequence[Row]) -> str:
    """The looks that were made, and the rows that stopped at each."""
    most = max((len(row.seeds) for row in rows), default=0)
    made = [str(look.seeds) for look in seeds.looks if look.seeds <= most]
    when = f"after {' and '.join(filter(None, [', '.join(made[:-1]), made[-1]]))}" if made else "not yet"
    early: dict[int, list[str]] = {}
    for row in rows:
        if row.answer and row.answer.look and row.answer.look < seeds.limit:
            early.setdefault(row.answer.look, []).append(row.architecture)
    stopped = "; ".join(f"{listing(names)} after {look} seeds" for look, names in sorted(early.items()))
    ended = f": {stopped}" if stopped else ""
    return (
        f"Results were looked at {when} of at most {seeds.limit} seeds, as planned; an architecture that was decided "
        f"received no further seeds{ended}. The error of {percent(ERROR)} is spent over all looks together."
    )


def _unlearned(findings: Findings) -> list[str]:
    """A warning if no row is better than chance, because verdicts are then meaningless."""
    study, rows = findings.study, findings.rows
    scores = [row.score for row in rows if row.score]
    if not study.metric.higher_is_better or not scores or study.metric.name not in METRICS:
        return []
    shares = [row.beside["majority_accuracy"].mean for row in rows if "majority_accuracy" in row.beside]
    judged_by_it = study.metric.name == "accuracy" and bool(shares)
    least = max(shares) if judged_by_it else 0.0
    if study.metric.share and all(score.mean >= 1.0 for score in scores):
        return ["Every architecture reaches 100 %: the data is too easy to tell them apart."] if len(scores) > 1 else []
    if any(score.mean >= least + study.margin.size(score.mean) for score in scores):
        return []
    chance = (
        f"always predicting the most frequent class ({percent(least)})"
        if judged_by_it
        else "having learned nothing (0)"
    )
    margin = study.metric.spell_margin(study.margin)
    return [
        f"No architecture is {margin} above {chance}: they have not learned yet, and verdicts say nothing about "
        "their layers. Train for longer."
    ]


def _far(findings: Findings) -> list[str]:
    """A warning for each outlier."""
    scores, scale = findings.results.scores(findings.study.metric.name), Scale.of(findings.rows)
    return [
        f"Seed {seed} of `{name}` is an outlier among its seeds ({scale.number(scores[name][seed])}{scale.unit}): if "
        "runs collapse occasionally, a few seeds cannot estimate how often, and intervals are less reliable than "
        "stated."
        for name, seed in outliers(scores)
    ]
