"""Surgery of a trained model: screen edits of its depth on one half of the examples, confirm the best on the other.

The evaluation examples are split once, by a hash of their content, so equal examples lie in one half and count once.
Windows of one document stay together and count as one in the error of a mean. One half screens: by block influence,
then by measured loss. The best of each cost class are confirmed on the other half, with intervals of the mean
difference paired by example. All candidates confirmed at one look are a family, and
look k at the same half spends ERROR / 2^k of the error, so all looks together stay within ERROR however often the
command runs. Measurements and looks are kept in RUN/surgery, so an interrupted surgery continues and a repeated one
returns the same answer.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from odeum.errors import OdeumError, notice
from odeum.fields.base import Context
from odeum.flow import Stack
from odeum.inspection import seen_positions
from odeum.lab.study.inspecting import taken_sample
from odeum.lab.study.judge import BETTER, Verdict, verdict_of
from odeum.lab.study.metric import Margin
from odeum.lab.study.statistics import ERROR, Difference, Ratio, is_measurement, paired_mean, paired_ratio, t_quantile
from odeum.lab.tasks import Task
from odeum.lab.tasks.base import Groups
from odeum.lab.tasks.evidence import EXAMPLES, Evidence, read_losses
from odeum.lab.tasks.run import Run
from odeum.models.saved import weights_entry
from odeum.storage import (
    Damaged,
    append_line,
    checksum,
    lock_directory,
    make_directory,
    read_bytes,
    read_json,
    read_lines,
    write_json,
)
from odeum.surgery import KINDS, Cost, Edit, Kind, apply, cost_of, edits, over_time, stacks_of

FEWEST = 8
"""examples that each half needs"""
SCREENED = 512
"""examples that screen, at most"""
MEASURED = 6
"""candidates of each kind and length that are measured: those with the lowest influence"""
MOST_CONFIRMED = 12
"""candidates that one look confirms, at most"""
SAMPLED, MOST_STATES = 32, 1024
"""examples and token states that block influence is measured on"""
FEWEST_CHANGED = 4.0
"""effective number of examples, (Σ d²)² / Σ d⁴, below which their mean change has no interval"""
ROUNDING = 1e-5
"""spread of changes that are rounding errors, as a share of the loss"""
TURNS, TIMED = 7, 8
"""turns in which times are measured, and examples of the pass that is timed"""
BASE = "as trained"
FOLDER = "surgery"
"""in the folder of the run: measurements and looks"""
SURGERY_EXAMPLES, HEALED_EXAMPLES = "examples.json", "judged.json"
"""keys of the examples that a surgery splits, and of those that judge a healed model"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """A confirmed edit compared with the model as trained."""

    edit: Edit | None
    """none: the model as it was trained"""
    cost: Cost
    scores: dict[str, float]
    """of the confirming half"""
    loss: float
    """mean over the confirming examples"""
    screened: float
    """mean over the screening examples"""
    change: Difference | None = None
    """of the loss against the model as it was trained, paired by example"""
    verdict: Verdict | None = None
    margin: float = 0.0
    """in the unit of the loss"""
    time: Ratio | None = None
    """of a forward pass, relative to the model as trained"""
    look: int = 0
    """at which it was confirmed"""
    unit: str = "examples"
    """unit of the interval: examples, or independent groups of them"""

    @property
    def label(self) -> str:
        return BASE if self.edit is None else self.edit.label

    @property
    def loses_nothing(self) -> bool:
        """Whether the interval shows that the loss grows by less than the margin."""
        return self.change is not None and self.change.high is not None and self.change.high < self.margin

    @property
    def gains(self) -> bool:
        """Whether the interval shows a smaller loss."""
        return self.verdict is not None and self.verdict.word in BETTER


@dataclass(frozen=True)
class Screened:
    """A candidate that was measured on the screening half."""

    edit: Edit
    cost: Cost
    influence: float
    loss: float


@dataclass(frozen=True)
class Result:
    """The result of a surgery."""

    rows: list[Row]
    """the model as it was trained, then the confirmed edits from the fewest evaluations on"""
    screened: list[Screened]
    refused: dict[str, str]
    candidates: int
    examples: tuple[int, int]
    """that screened and that confirmed"""
    looks: int
    """at the confirming half, with this one"""
    groups: tuple[int, int] | None = None
    """in which these examples lie, such as documents (none: each example is independent)"""
    unit: str = "examples"
    """unit of the intervals: examples, or the kind of group"""


class Store:
    """Measurements of one model on one set of examples, in a folder; each is written whole, so a kill loses one."""

    def __init__(self, directory: Path, elsewhere: int = 0) -> None:
        self.directory, self.elsewhere = directory, elsewhere
        """folder; looks at other sets that hold some of the same examples"""

    def path(self, half: str, key: str) -> Path:
        return self.directory / half / checksum(key.encode())[:20]

    def read(self, half: str, key: str) -> tuple[dict[str, float], Tensor] | None:
        """Scores and losses; none if they were not measured, or the files are damaged."""
        place = self.path(half, key)
        try:
            if not (place / "scores.json").exists():
                return None
            scores, losses = read_json(place / "scores.json"), read_losses(place)
            if "losses" in scores and checksum(read_bytes(place / EXAMPLES)) != scores["losses"]:
                return None
        except Damaged:
            return None
        return None if losses is None else (scores["scores"], losses.double())

    def write(self, half: str, key: str, scores: dict[str, float], evidence: Evidence) -> None:
        place = self.path(half, key)
        make_directory(place)
        Evidence(evidence.losses).save(place)
        losses = checksum(read_bytes(place / EXAMPLES))
        write_json(place / "scores.json", {"key": key, "scores": scores, "losses": losses})

    def looks(self) -> list[tuple[int, list[str]]]:
        """The number of each look and the keys that it confirmed.

        A damaged line counts as a look that confirmed nothing, with a notice.
        """
        path = self.directory / "looks.jsonl"
        if not path.exists():
            return []
        lines = [line for _, line in read_lines(path)]
        if damaged := sum(isinstance(line, Damaged) for line in lines):
            notice(f"{damaged} of {len(lines)} looks in '{path}' cannot be read; each still counts as a look")
        out: list[tuple[int, list[str]]] = []
        for line in lines:
            after = out[-1][0] + 1 if out else 1 + self.elsewhere
            known = not isinstance(line, Damaged)
            out.append((line.get("number", after), list(line["edits"])) if known else (after, []))
        return out

    def look(self, keys: Sequence[str]) -> dict[str, tuple[int, float]]:
        """The look and the error of each key. Keys of no earlier look are recorded as a new one, before it begins."""
        looks = self.looks()
        known = by_look(looks)
        if new := [key for key in dict.fromkeys(keys) if key not in known]:
            number = 1 + max(looks[-1][0] if looks else 0, len(looks) + self.elsewhere)
            append_line(self.directory / "looks.jsonl", {"edits": new, "number": number})
            known = by_look(self.looks())
        return {key: known[key] for key in keys}


def by_look(looks: Iterable[tuple[int, Sequence[str]]]) -> dict[str, tuple[int, float]]:
    """The look that confirmed each key first, and the key's part of the error."""
    out: dict[str, tuple[int, float]] = {}
    for number, keys in looks:
        for key in keys:
            out.setdefault(key, (number, look_error(number) / len(keys)))
    return out


def look_error(number: int) -> float:
    """The part of the error that look `number` spends: over any number of looks they add up to at most ERROR."""
    return ERROR / 2**number


@contextlib.contextmanager
def opened(run: Path, name: str, keys: Sequence[str], record: str = SURGERY_EXAMPLES) -> Generator[Store]:
    """The store of that name in the folder of a run, locked; stores keep the keys of their examples in `record`.

    Looks at other sets with some of the same examples, by the same weights, count as looks at this one, so that adding
    examples until a verdict falls does not spend the error anew.
    """
    directory = run / FOLDER / name
    try:
        make_directory(directory)
    except OdeumError as error:
        raise OdeumError(
            f"surgery keeps its measurements in '{directory}', which cannot be written; copy the run to a folder of "
            "your own"
        ) from error
    with lock_directory(directory):
        elsewhere, own, weights = 0, set(keys), _weights(run)
        for path in sorted((run / FOLDER).glob(f"*/{record}")):
            theirs = _record(path)
            if path.parent != directory and theirs["weights"] == weights and not own.isdisjoint(theirs["keys"]):
                elsewhere += len(Store(path.parent).looks())
        yield Store(directory, elsewhere)


def _weights(run: Path) -> str | None:
    """The checksum of a run's weights; None without any."""
    with contextlib.suppress(OdeumError):
        return str(weights_entry(run)["weights"])
    return None


def _record(path: Path) -> dict[str, Any]:
    """Weights and keys of a store."""
    with contextlib.suppress(Damaged):
        return {"weights": None, **read_json(path)}
    return {"weights": None, "keys": []}


def halves(keys: Sequence[str], groups: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The rows that screen and that confirm, by hash; of equal examples the first. A group lies in one half."""
    first: dict[str, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    side = dict.fromkeys(first, "")
    if groups is not None:
        members: dict[int, list[str]] = {}
        for key, row in first.items():
            members.setdefault(int(groups[row]), []).append(key)
        for each in members.values():
            side |= dict.fromkeys(each, checksum(" ".join(sorted(each)).encode()))
    rows: list[list[int]] = [[], []]
    for key, row in sorted(first.items()):
        rows[int((side[key] or key)[:8], 16) % 2].append(row)
    return torch.tensor(rows[0][:SCREENED]).sort().values, torch.tensor(rows[1]).sort().values


def paired(losses: Tensor, base: Tensor, error: float, groups: Tensor | None = None) -> Difference:
    """The mean difference of losses on the same examples with its interval at level 1 − error.

    Examples of one group, such as windows of one document, are not independent: then the unit is the group. Its value
    is how far the mean moves without it (jackknife). Groups of unequal size have fewer degrees of freedom,
    (Σ n²)² / Σ n⁴ − 1: those of the variance where a change is common to a group.

    Most examples change little and a few by much, and then Student's interval is too short on one side. So each end is
    that of Student's interval or of the one corrected for skewness (Hall 1992), whichever is further out. Where nearly
    all of the variance comes from fewer than `FEWEST_CHANGED` examples, the ends are infinite.
    """
    values, degrees = losses - base, len(losses) - 1.0
    if not all(map(is_measurement, values.tolist())):
        return Difference(math.nan, None, None, 1 - error, None, len(values), problem="diverged")
    if groups is not None:
        values, degrees = _by_group(values, groups)
    student = paired_mean(values.tolist(), 1 - error)
    assert student is not None and student.low is not None and student.high is not None
    quantile = t_quantile(1 - error / 2, degrees)
    if groups is not None and student.spread:
        half = quantile * student.spread / math.sqrt(len(values))
        student = replace(student, low=student.mean - half, high=student.mean + half, degrees=degrees)
    if not student.spread or student.spread < ROUNDING * float(base.abs().mean()):
        return student
    changed = values - values.mean() if groups is None else values  # one long document may differ most where all change
    if float(changed.square().sum() ** 2 / changed.pow(4).sum()) < FEWEST_CHANGED:
        return replace(student, low=-math.inf, high=math.inf)
    low, high = _corrected(values, student.spread, quantile)
    assert student.low is not None and student.high is not None
    return replace(student, low=min(student.low, low), high=max(student.high, high))


def _by_group(values: Tensor, groups: Tensor) -> tuple[Tensor, float]:
    """A value per group, whose mean is that of all values and whose spread is the jackknife's; degrees of freedom."""
    _, members = groups.unique(return_inverse=True)
    sizes = members.bincount().double()
    sums = torch.zeros_like(sizes).index_add_(0, members, values)
    total, count = float(sizes.sum()), len(sizes)
    without = (values.sum() - sums) / (total - sizes)
    pseudo = count * values.mean() - (count - 1) * without
    degrees = float(sizes.square().sum() ** 2 / sizes.pow(4).sum()) - 1
    return pseudo - pseudo.mean() + values.mean(), max(1.0, degrees)


def _corrected(values: Tensor, spread: float, quantile: float) -> tuple[float, float]:
    """Ends of the interval of the mean whose statistic is corrected for skewness by a monotone cubic."""
    mean, root = float(values.mean()), math.sqrt(len(values))
    skew = float(((values - mean) ** 3).mean()) / spread**3
    if abs(skew) < 1e-6:
        return mean, mean

    def inverse(y: float) -> float:
        return 3 * root / skew * (math.cbrt(1 + skew / root * (y - skew / (6 * root))) - 1)

    return mean - spread / root * inverse(quantile), mean - spread / root * inverse(-quantile)


class Surgery:
    """Candidates of one run, their measurements, and the verdicts on them."""

    def __init__(self, run: Run, task: Task, part: str, store: Store, say: Say = lambda text: None) -> None:
        self.run, self.task, self.part, self.store, self.say = run, task, part, store, say
        self.model: Any = run.model.eval()
        stacks_of(self.model)
        self.keys = task.example_keys(part)
        every = task.example_groups(part)
        screen, confirm = halves(self.keys, None if every is None else every.numbers)
        self.examples = self.units = len(screen), len(confirm)
        self.unit, self.groups = "examples", None
        if every is not None:
            self.unit, self.groups = every.unit, every.numbers[confirm]
            self.units = len(every.numbers[screen].unique()), len(self.groups.unique())
        if min(self.units) < FEWEST:
            raise OdeumError(
                f"surgery needs at least {FEWEST} different {self.unit} in each half, and the {part} part has "
                f"{self.units[0]} and {self.units[1]}; give more data"
            )
        self.tasks = {"screen": task.select(part, screen), "confirm": task.select(part, confirm)}
        write_json(store.directory / SURGERY_EXAMPLES, {"weights": _weights(run.directory), "keys": self.keys})

    def losses(self, half: str, edit: Edit | None) -> tuple[dict[str, float], Tensor]:
        """Scores and losses of an edited model on a half, measured unless they are kept."""
        key = BASE if edit is None else edit.key
        if (stored := self.store.read(half, key)) is None:
            scores, evidence = self.tasks[half].examine(apply(self.model, edit), "valid")
            if evidence is None:
                raise OdeumError(f"a {self.task.kind} task has no losses per example to pair")
            self.store.write(half, key, scores, evidence)
            stored = self.store.read(half, key)
            assert stored is not None
        return stored

    @cached_property
    def influences(self) -> dict[str, list[list[float]]]:
        """Block influence by stack, from the state before layer i to that after layer j."""
        path = self.store.directory / "influence.json"
        with contextlib.suppress(Damaged):
            if path.exists():
                return read_json(path)["influence"]
        task: Any = self.tasks["screen"]
        sample = taken_sample(task, self.model, None, SAMPLED)
        out = {name: influences(self.model, stack, sample) for name, stack in stacks_of(self.model).items()}
        write_json(path, {"influence": out})
        return out

    def influence(self, edit: Edit) -> float:
        """1 − cosine between the states before and after the layers that the edit changes."""
        table = self.influences[edit.stack]
        return table[edit.first][edit.last] if edit.last < len(table) else 0.0

    def screened(self, kinds: Sequence[Kind], layers: tuple[int, int] | None, most: int) -> tuple[list[Screened], Any]:
        """The candidates with the lowest influence, measured; and how many there were, and what was refused."""
        candidates, refused = edits(self.model, kinds, layers)
        groups: dict[Any, list[Edit]] = {}
        for edit in candidates:
            stepping = {place.stepping for place in edit.places}
            groups.setdefault((edit.stack, edit.kind, len(edit.places), *map(str, stepping)), []).append(edit)
        chosen = [edit for group in groups.values() for edit in sorted(group, key=self.influence)[:most]]
        out = []
        begin = time.monotonic()
        for number, edit in enumerate(chosen, 1):
            _, losses = self.losses("screen", edit)
            out.append(Screened(edit, cost_of(apply(self.model, edit)), self.influence(edit), _mean(losses)))
            left = (time.monotonic() - begin) / number * (len(chosen) - number)
            self.say(f"{number}/{len(chosen)} screened: {edit.label}, loss {out[-1].loss:.4g} ({left:.0f} s left)")
        return out, (len(candidates), refused)

    def operate(
        self,
        margin: Margin,
        kinds: Sequence[Kind] = KINDS,
        layers: tuple[int, int] | None = None,
        most: int = MEASURED,
    ) -> Result:
        """Screen, choose, confirm and judge."""
        screened, (count, refused) = self.screened(kinds, layers, most)
        base_cost = cost_of(self.model)
        base_screen = _mean(self.losses("screen", None)[1])
        chosen = best_of_each_class(screened, base_cost, base_screen)
        spent = self.store.look([each.edit.key for each in chosen])
        scores, base = self.losses("confirm", None)
        width = margin.size(_mean(base))
        rows = [Row(None, base_cost, scores, _mean(base), base_screen, margin=width)]
        for number, each in enumerate(chosen, 1):
            scores, losses = self.losses("confirm", each.edit)
            look, error = spent[each.edit.key]
            change = paired(losses, base, error, self.groups)
            verdict = verdict_of(change, width, higher_is_better=False)
            ratio = self._time(each.edit)
            rows.append(
                Row(
                    *(each.edit, each.cost, scores, _mean(losses), each.loss, change, verdict, width, ratio, look),
                    unit=self.unit,
                )
            )
            self.say(f"{number}/{len(chosen)} confirmed: {each.edit.label}, {verdict.word}")
        rows[1:] = sorted(rows[1:], key=lambda row: (row.cost.evaluations, row.cost.parameters, row.loss))
        groups = None if self.groups is None else self.units
        return Result(
            rows, screened, refused, count, self.examples, self.store.looks()[-1][0] if chosen else 0, groups, self.unit
        )

    def _time(self, edit: Edit) -> Ratio | None:
        """The cost of one forward pass, interleaved with the model as trained; measured once."""
        place = self.store.path("confirm", edit.key) / "time.json"
        with contextlib.suppress(Damaged):
            if place.exists():
                return Ratio(*read_json(place)["ratio"])
        task: Any = self.tasks["screen"]
        sample = taken_sample(task, self.model, None, TIMED)
        ratio = time_ratio(apply(self.model, edit), self.model, sample)
        if ratio is not None:
            write_json(place, {"ratio": [ratio.middle, ratio.low, ratio.high]})
        return ratio


def _mean(losses: Tensor) -> float:
    value = float(losses.mean())
    return value if math.isfinite(value) else math.inf


def best_of_each_class(screened: Sequence[Screened], base: Cost, loss: float) -> list[Screened]:
    """The lowest screened loss of each cost; none that costs at least as much as the model and loses; the best few."""
    best: dict[Cost, Screened] = {}
    for each in screened:
        if each.cost not in best or each.loss < best[each.cost].loss:
            best[each.cost] = each
    fair = [each for each in best.values() if each.loss < loss or not base.within(each.cost)]
    fair = [each for each in fair if math.isfinite(each.loss)]
    return sorted(fair, key=lambda each: each.loss)[:MOST_CONFIRMED]


def influences(model: nn.Module, stack: Stack, batch: dict[str, Tensor]) -> list[list[float]]:
    """[i][j]: mean 1 − cosine between a token's states before layer i and after layer j."""
    if over_time(stack):
        return []
    states: list[Tensor] = []

    def after(flow: Any, arguments: tuple[Any, ...], out: Tensor) -> None:
        x, context = arguments[0], arguments[1] or Context()
        seen = seen_positions(x, context)
        for state in (x, out) if not states else (out,):
            tokens = state[seen]
            states.append(tokens[torch.linspace(0, len(tokens) - 1, min(MOST_STATES, len(tokens))).long()].float())

    handles = [flow.register_forward_hook(after) for flow in stack.flows]
    try:
        with torch.no_grad():
            model(**batch)
    finally:
        for handle in handles:
            handle.remove()
    depth = len(states) - 1

    def between(i: int, j: int) -> float:
        return float(1 - nn.functional.cosine_similarity(states[i], states[j + 1], dim=-1).mean())

    return [[between(i, j) if i <= j else 0.0 for j in range(depth)] for i in range(depth)]


def time_ratio(model: nn.Module, base: nn.Module, batch: dict[str, Tensor]) -> Ratio | None:
    """The time of a forward pass relative to that of `base`: median and range over turns; CPU time with one thread."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, dict[int, float]] = {"ours": {}, "base": {}}
    with torch.no_grad():
        for turn in range(-1, TURNS):  # the first allocates memory
            for name, each in (("ours", model), ("base", base)) if turn % 2 else (("base", base), ("ours", model)):
                begin = clock()
                each(**batch)
                if turn >= 0:
                    seconds[name][turn] = clock() - begin
    return paired_ratio(seconds["ours"], seconds["base"])


def store_name(run: Path, keys: Sequence[str], groups: Groups | None = None) -> str:
    """A name of the weights and the examples: another training, or other data, is another surgery."""
    split = "" if groups is None else f" {groups.unit} {groups.numbers.tolist()}"
    return checksum(f"{weights_entry(run)} {' '.join(keys)}{split}".encode())[:16]


def judge_healed(run: Run, healed: Run, task: Task, part: str, margin: Margin) -> tuple[Row, Row]:
    """The run and its edited, healed successor, on examples that no surgery of the run has seen."""
    if healed.task.kind != run.task.kind or healed.task.facts() != run.task.facts():
        raise OdeumError(
            f"'{healed.directory}' does not read the same inputs as '{run.directory}'; heal an edited copy"
        )
    keys = task.example_keys(part)
    seen = _seen_examples(run.directory) | _trained_on(healed)
    rows = [row for key, row in sorted({key: row for row, key in enumerate(keys)}.items()) if key not in seen]
    if len(rows) < FEWEST:
        raise OdeumError(
            f"the verdict on a healed model needs examples of its own: {len(rows)} of the {len(keys)} examples were "
            f"used neither by surgery nor by the healing, and at least {FEWEST} are needed; give other data"
        )
    chosen = torch.tensor(rows).sort().values
    mine, every = task.select(part, chosen), task.example_groups(part)
    groups, unit = (None, "examples") if every is None else (every.numbers[chosen], every.unit)
    if groups is not None and (count := len(groups.unique())) < FEWEST:
        raise OdeumError(
            f"the verdict on a healed model needs at least {FEWEST} {unit} of its own, not {count}; give more data"
        )
    key = str(weights_entry(healed.directory)["weights"])
    name = "healed-" + store_name(run.directory, keys, every)
    judged = [keys[row] for row in chosen.tolist()]
    with opened(run.directory, name, judged, HEALED_EXAMPLES) as store:
        write_json(store.directory / HEALED_EXAMPLES, {"weights": _weights(run.directory), "keys": judged})
        look, error = store.look([key])[key]
        out = []
        base = None
        for each in (run, healed):
            scores, evidence = mine.examine(each.model.eval(), "valid")
            assert evidence is not None
            losses = evidence.losses.double()
            base = losses if base is None else base
            width = margin.size(_mean(base))
            change = None if each is run else paired(losses, base, error, groups)
            verdict = None if change is None else verdict_of(change, width, higher_is_better=False)
            cost = cost_of(each.model)
            row = Row(None, cost, scores, _mean(losses), math.nan, change, verdict, width, None, look, unit)
            out.append(row)
    return out[0], out[1]


def _trained_on(healed: Run) -> set[str]:
    """Examples of the healed model's training part, if its data is still there."""
    try:
        return set(healed._reopened().example_keys("train"))
    except OdeumError as error:
        notice(f"examples that '{healed.directory}' was fine-tuned on cannot be left out: {error}")
        return set()


def _seen_examples(run: Path) -> set[str]:
    """Examples that surgery of this run has screened or confirmed with."""
    out: set[str] = set()
    for path in (run / FOLDER).glob(f"*/{SURGERY_EXAMPLES}"):
        out.update(_record(path)["keys"])
    return out
