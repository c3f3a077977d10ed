"""A paper's table as data, without torch: rows, published figures, claims about pairs of rows, at two scales.

A row at a scale is a `RunSpec` but for its seed. Its `key`, a short hash of what differs from the defaults, is how a
result is found again: two tables with the same run share it, and a changed recipe needs new runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from odeum.errors import OdeumError, choose
from odeum.lab.study.design import Study, StudyRow
from odeum.lab.study.findings import Findings, judged
from odeum.lab.study.judge import Claim, CostClaim, Seeds
from odeum.lab.study.metric import Margin, Metric, metric_named
from odeum.lab.study.runs import Store
from odeum.lab.study.tuning import Tuning
from odeum.lab.tasks import DATA_SETS
from odeum.lab.train.settings import Training
from odeum.lab.train.spec import RunSpec
from odeum.models.settings import Model
from odeum.registry.spelling import parse

SCALES = ("laptop", "paper")
LAPTOP = SCALES[0]
THREE_LOOKS = Seeds(12, auto=True)
"""after 3, 6 and 12 seeds"""
RATES = 4
"""learning rates per row, a factor of 2 apart around the setting's own"""


@dataclass(frozen=True)
class Setting:
    """The settings that rows on one data set share at one scale."""

    data: str
    """a named set"""
    model: Model
    """model settings, including those that the data decides, so that costs are known without reading it"""
    training: Training
    options: Mapping[str, Any] = field(default_factory=dict)
    """options of the data"""
    regime: str = ""
    """regime of the training, which determines the effects that can show"""
    ours: tuple[str, ...] = ()
    """choices of ours, with reasons, where the paper leaves something open or is larger"""
    steps_an_epoch: int = 0
    """steps per epoch at this batch size, for estimates of a training in epochs"""


@dataclass(frozen=True)
class TableRow:
    """One line of a table."""

    name: str
    """name in --rows and claims"""
    architecture: str
    setting: str
    """the name of a setting, at every scale"""
    model: Mapping[str, Any] = field(default_factory=dict)
    """model settings that differ from the setting's"""
    training: Mapping[str, Any] = field(default_factory=dict)
    """training settings that differ from the setting's"""
    length: float = 1.0
    """length of the training as a share of the setting's"""
    feedforward: float = 1.0
    """width of the feed-forward, as a share of the setting's"""
    paper: Mapping[str, float] = field(default_factory=dict)
    """the published figures by metric, as this metric is counted here (accuracy: 0.6602)"""
    control: bool = False
    """a row that the paper lacks"""
    about: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of a paper."""

    name: str
    title: str
    metric: str
    """name of the metric that decides"""
    split: Literal["valid", "test"]
    margin: Margin
    """smallest relevant difference, declared before the runs"""
    rows: tuple[TableRow, ...]
    claims: tuple[Claim, ...]
    scales: Mapping[str, Mapping[str, Setting]]
    """settings by scale and name"""
    costs: tuple[CostClaim, ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    """(part, metric) pairs that are shown and not judged"""
    seeds: Seeds = THREE_LOOKS
    """when the claims are judged"""
    tune: int = RATES
    """learning rates that each row of a claim tries at the scale of a laptop, before widening (0: none)"""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if len({*names}) < len(names):
            raise OdeumError(f"two rows of {self.name} have one name: {', '.join(names)}")
        for claim in (*self.claims, *self.costs):
            for name in (claim.first, claim.second):
                choose(name, names, f"row of {self.name}")
        pairs = [claim.pair for claim in self.claims]
        if len({*pairs}) < len(pairs):
            raise OdeumError(f"two claims of {self.name} are about one pair of rows")
        for row in self.rows:
            for settings in self.scales.values():
                choose(row.setting, settings, f"setting of the row '{row.name}'")

    @property
    def judged(self) -> Metric:
        return metric_named(self.metric)

    @property
    def claimed(self) -> set[str]:
        """The rows that carry a claim."""
        return {name for claim in self.claims for name in claim.pair}

    def row(self, name: str) -> TableRow:
        return {row.name: row for row in self.rows}[
            choose(name, [row.name for row in self.rows], f"row of {self.name}")
        ]

    def select(self, rows: str | None) -> tuple[TableRow, ...]:
        """Rows by `claims`, `all` or comma-separated names; rows with a claim come first.

        A name that is not a row selects those that begin or end with it: `sequential` selects sequential-0 and
        sequential-0.1, `transformer` selects imdb-transformer and ag-transformer; otherwise those of that architecture.
        """
        known, claimed = [row.name for row in self.rows], self.claimed
        ordered = sorted(self.rows, key=lambda row: row.name not in claimed)
        if rows is None or rows == "all":
            return tuple(ordered)
        if rows == "claims":
            return tuple(row for row in ordered if row.name in claimed)
        names = [name.strip() for name in rows.split(",") if name.strip()]
        if not names:
            raise OdeumError(f"--rows '{rows}' names no row; use claims, all, or some of {', '.join(known)}")
        rows_named = [row for name in names for row in self._like(name)]
        return tuple({row.name: row for row in rows_named}.values())

    def _like(self, name: str) -> list[TableRow]:
        if any(row.name == name for row in self.rows):
            return [self.row(name)]
        near = [row for row in self.rows if row.name.startswith(f"{name}-") or row.name.endswith(f"-{name}")]
        return near or [row for row in self.rows if row.architecture == name] or [self.row(name)]

    def spec(self, row: TableRow, scale: str) -> RunSpec:
        """The specification of a row's runs at this scale; seed and folder are filled in when it is trained."""
        setting = self.scales[choose(scale, self.scales, f"scale of {self.name}")][row.setting]
        training = setting.training
        if row.length != 1.0:
            steps = None if training.steps is None else max(1, round(row.length * training.steps))
            training = replace(training, steps=steps, epochs=row.length * training.epochs)
        model = setting.model
        if row.feedforward != 1.0:
            model = replace(model, hidden=round(row.feedforward * (model.hidden or 4 * model.width)))
        return RunSpec(
            source=(setting.data,),
            kind=DATA_SETS[setting.data],
            options=setting.options,
            model=replace(model, **row.model),
            architecture=parse(row.architecture),
            training=replace(training, **row.training),
        )

    def specs(self, scale: str, rows: Sequence[TableRow] | None = None) -> dict[str, RunSpec]:
        """The spec of each row, by name."""
        return {row.name: self.spec(row, scale) for row in (self.rows if rows is None else rows)}

    def study(self, scale: str) -> Study:
        """The table at this scale as a study."""
        specs = self.specs(scale)
        settings = self.scales[scale].values()
        regimes = dict.fromkeys(setting.regime for setting in settings if setting.regime)
        ours = dict.fromkeys(note for setting in settings for note in setting.ours)
        tuned = self.claimed if self.tune and scale == LAPTOP else ()
        return Study(
            data=self.title,
            rows=tuple(
                StudyRow(row.name, specs[row.name].name, row.paper, row.control, specs[row.name].key)
                for row in self.rows
            ),
            metric=self.judged,
            margin=self.margin,
            seeds=self.seeds,
            claims=self.claims,
            costs=self.costs,
            split=self.split,
            beside=self.beside,
            title=self.title,
            name=self.name,
            scale=scale,
            notes=(
                *(f"Regime: {regime}." for regime in regimes),
                *self.notes,
                *(f"Ours: {note}." for note in ours),
            ),
            tunings={
                name: Tuning(("learning_rate",), (specs[name].training.learning_rate,), self.tune)
                for name in specs
                if name in tuned
            },
        )

    def findings(self, scale: str, store: Store) -> Findings:
        """The table as the kept runs have it."""
        return judged(store.results(self.study(scale), self.specs(scale)))
