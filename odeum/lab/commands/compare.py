"""`odeum compare DATA`: train and compare architectures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odeum.errors import OdeumError, choose, notice
from odeum.lab.commands.options import Parser, architecture_names, known_architectures, model_names
from odeum.lab.commands.report import show_comparison, show_failures, show_ladder
from odeum.lab.commands.request import (
    at_default_rate,
    command_line,
    folder_name,
    gives_rate,
    open_request,
    print_config,
    rate_origin,
    read_request,
    refuse_processes,
    tell_before,
)
from odeum.lab.study.design import NO_BASELINE, Factor, Study, cells, check_study, recorded_paces, rows_of
from odeum.lab.study.grid import FORMATS
from odeum.lab.study.judge import Seeds
from odeum.lab.study.sizes import Size, check_ladder, folder_of, parse_sizes, scaled_training, write_ladder
from odeum.lab.study.tuning import Tuning, TuningResults, parse_settings
from odeum.lab.train.distributed.ranks import exit_code, is_main, print_error
from odeum.registry.names import Architecture
from odeum.registry.spelling import parse, spell, split_spellings

if TYPE_CHECKING:
    from odeum.lab.study.execute import Comparison
    from odeum.lab.study.pace import Pace
    from odeum.lab.train.settings import Training
    from odeum.models.settings import Model

RELATIVE_SPREAD = 0.1
"""supposed standard deviation of a difference, over the baseline's slope, for the detectable trend of a dry run"""
DEFAULT = "sequential,parallel,rk4,macaron,transevolve"


def run(argv: list[str]) -> int:
    parser = Parser(
        "compare",
        "Train architectures under one recipe, with the same seeds and batches, and report which is better. Existing "
        "runs are not repeated. Each data set has its own defaults, see --print_config. "
        f"--model NAME starts from one of: {model_names()}.",
    )
    parser.option(
        "architectures",
        f"comma-separated architectures; the first is the baseline; known: {architecture_names()}",
        default=DEFAULT,
    )
    parser.option(
        "seeds", "runs per architecture; auto: until decided, at most 12 (auto:24: at most 24)", int | str, default=3
    )
    parser.option(
        "margin",
        "smallest relevant difference: 0.5 (points of accuracy, BLEU …) or 2 % of the baseline (default: 1 point, "
        "0.5 BLEU, 0.01 of a loss, 1 % of a perplexity)",
    )
    parser.option("judge", "quantity to decide by: a metric, loss, or auto with --tune (default: the main metric)")
    parser.option(
        "vary", "what seeds vary: seed (weights and batches) or split (also the held-out examples)", default="seed"
    )
    parser.option("match", "cost held equal: time, steps, macs or params (default: measured time)")
    parser.option("step-times", "comparison whose measured step times are reused (default: measure)")
    parser.option("tune", "tuning runs per architecture, at log-spaced learning rates (default: no tuning)", int)
    parser.option(
        "tune-over", "settings that --tune varies, such as learning_rate,weight_decay (default: learning_rate)"
    )
    parser.option("sizes", "several model sizes: a number, or 64x4,96x6,128x8 (width x depth)", int | str)
    parser.option("budget", "training time per run: 90s, 10m, 2h (default: epochs)")
    parser.option("baseline", "reference architecture, or none for all pairs (default: the first)")
    parser.option("out", "directory of runs and report (default: runs/compare-DATA-SETTINGS)")
    parser.option("overwrite", "replace existing runs", bool)
    parser.shared("jobs", "on", "quiet", "format", "track", "dry-run", "print-config")
    request = read_request(parser, argv)
    given = request.given
    form = choose(given.get("format", "text"), FORMATS, "format")
    if given.get("budget"):
        given["train"] = {**given.get("train", {}), "budget": given["budget"]}
    names = split_spellings(known_architectures(given.get("architectures", DEFAULT)))
    architectures = {name: parse(name) for name in names}
    _tell_twins(architectures, names)
    seeds = Seeds.parse(given.get("seeds", 3))
    baseline = given.get("baseline")
    baseline = baseline if baseline in (None, NO_BASELINE) else known_architectures(baseline)
    first = None if baseline in (None, NO_BASELINE) else architectures.get(baseline) or parse(baseline)
    match = given.get("match") or "time"
    times = Path(given["step_times"]) if given.get("step_times") else None

    from odeum.lab.commands.board import Board
    from odeum.lab.study.execute import Comparison, compare, forecast_comparison
    from odeum.lab.study.metric import metric_named
    from odeum.lab.train.interrupt import Interrupted
    from odeum.lab.train.job import Job
    from odeum.registry.plugins import named_plugins
    from odeum.storage import out_directory

    check_study(match, names, given.get("vary", "seed"))
    if given.get("tune_over") and given.get("tune") is None:
        raise OdeumError(f"--tune-over {given['tune_over']} needs a number of tuning runs, such as --tune 3")
    task, model, training = open_request(request)
    _tuning(given, model, training)  # a setting that the kind lacks is refused before anything is measured
    if given.get("sizes") is not None:
        check_ladder(given.get("match"), baseline != NO_BASELINE, training)
        parse_sizes(str(given["sizes"]), model)
    if given.get("print_config"):
        chosen = {"architectures": ",".join(names), "baseline": baseline, "match": match}
        chosen |= {"seeds": given.get("seeds", 3), "margin": given.get("margin"), "judge": given.get("judge")}
        chosen |= {"tune": given.get("tune"), "tune_over": given.get("tune_over"), "sizes": given.get("sizes")}
        print_config(request, task, model, training, chosen)
        return 0
    folder = f"compare-{folder_name(task, model, training)}{'-sizes' if given.get('sizes') is not None else ''}"
    directory = out_directory(given.get("out"), Path("runs") / folder)
    metric = metric_named(task.metric, task.higher_is_better)
    ladder_wanted, root = given.get("sizes") is not None, directory
    factors = [Factor.architecture(list(architectures.values()))]

    def pace_of(directory: Path) -> Mapping[str, Pace] | None:
        """The step times that are reused; a ladder's are those of each size."""
        if times is None or (ladder_wanted and directory == root):
            return None
        return recorded_paces(times / directory.name if ladder_wanted else times)

    def comparison_of(model: Model, training: Training, directory: Path) -> Comparison:
        if not gives_rate(request):  # each size of a ladder has its own
            training = at_default_rate(task, training, model)
        any_of_them = next(iter(architectures.values()))
        made: dict[str, Any] = {
            "command": command_line(),
            "plugins": named_plugins(),
            "rate_from": rate_origin(request, task),
        }
        base = Job.on(task, model, any_of_them, training, **made)
        rows = rows_of(cells(base, factors))
        reference = rows[0].label if first is None else spell(first)
        if reference not in (labels := [row.label for row in rows]):
            raise OdeumError(f"the baseline '{reference}' must be one of the architectures: {', '.join(labels)}")
        study = Study(
            data=task.name,
            rows=rows,
            metric=metric,
            margin=metric.margin,
            seeds=seeds,
            baseline=None if baseline == NO_BASELINE else reference,
            match=match,
            budget=training.budget,
            command=command_line(),
            vary=given.get("vary", "seed"),
            tuning=_tuning(given, model, training),
            pace=pace_of(directory),
        )
        return Comparison(
            study,
            base,
            factors,
            directory,
            judge=given.get("judge"),
            margin=given.get("margin"),
            jobs=str(given.get("jobs", "auto")),
            on=given.get("on"),
            overwrite=given.get("overwrite", False),
        )

    job = comparison_of(model, training, directory)
    ladder = _ladder(str(given["sizes"]), job, comparison_of) if given.get("sizes") is not None else {}
    if given.get("dry_run"):
        refuse_processes()
        if ladder:
            tell_ladder(ladder)
        else:
            tell_before(task, forecast_comparison(job))
        return 0
    quiet = bool(given.get("quiet")) or not is_main()
    failures: list[str] = []
    if ladder and is_main():
        write_ladder(directory, {size: _epochs(each) for size, each in ladder.items()}, task.name, command_line())
    try:
        for each in [*ladder.values()] or [job]:
            with Board(metric.name, metric.share, quiet=quiet) as board:
                failures = compare(
                    each,
                    board,
                    after_look=None if quiet else lambda each=each: _show(each.directory),
                    before=None if quiet else lambda cost: tell_before(task, cost),
                )
            if failures:
                break
    except Interrupted as stop:
        print_error(stop)
        return exit_code(stop.code)
    if not is_main():
        return 0
    try:
        if ladder:
            show_ladder(directory, form)
        else:
            show_comparison(directory, form, trained=True)
    finally:  # also if there is nothing to show, because tuning failed
        code = show_failures(failures)
    return code


def _ladder(
    text: str, whole: Comparison, comparison_of: Callable[[Model, Training, Path], Comparison]
) -> dict[Size, Comparison]:
    """The comparison of each size, from small to large."""
    from odeum.models.description import describe

    base = whole.base
    reference = cells(base, whole.factors)[whole.study.reference].architecture
    steps = base.training.steps or round(base.training.epochs * base.task.steps_per_epoch(base.training.batch_size))

    def parameters(model: Model) -> int:
        return describe(reference, model, detail=False)["parameters"]

    out, all_of_it = {}, parameters(base.model)
    for size in parse_sizes(text, base.model):
        model = size.of(base.model)
        training = scaled_training(base.training, steps, parameters(model) / all_of_it)
        out[size] = comparison_of(model, training, folder_of(whole.directory, size))
    return out


def _epochs(rung: Comparison) -> float:
    """Passes of the baseline of one size over the training data."""
    training = rung.base.training
    return (training.steps or 0) / rung.base.task.steps_per_epoch(training.batch_size)


def tell_ladder(ladder: Mapping[Size, Comparison]) -> None:
    """The cost of each size, and the trend that would be detectable."""
    import math

    from odeum.lab.study.execute import forecast_comparison
    from odeum.lab.study.ladder import detectable_change
    from odeum.lab.train.progress import clock_time

    whole, costs = 0.0, []
    for size, job in ladder.items():
        cost = forecast_comparison(job)
        steps = job.base.training.steps or 0
        whole += cost.seconds + (cost.tuning.seconds if cost.tuning else 0.0)
        costs.append(cost.baseline)
        about = f"size {size}: {steps} steps of the baseline, {_epochs(job):.3g} epochs"
        print(about, *(f"  {line}" for line in cost.lines()), sep="\n", file=sys.stderr)
    print(f"all sizes: about {clock_time(whole)}", file=sys.stderr)
    seeds, rows = next((job.seeds.limit, len(job.study.rows) - 1) for job in ladder.values())
    logs = [math.log(cost) for cost in costs]
    change = detectable_change(RELATIVE_SPREAD, [1.0] * len(logs), logs, seeds, rows) if min(costs) > 0 else None
    if change is None:
        print("trend: one seed per size shows no trend; use --seeds 3 or more", file=sys.stderr)
    else:
        print(
            f"trend: 80 % power to detect a gain that changes by a factor of {math.exp(change):.2f} over the ladder, "
            f"if the standard deviation of a difference over seeds is {RELATIVE_SPREAD:g} of the baseline's "
            "improvement per e-fold of cost",
            file=sys.stderr,
        )


def _tuning(given: Mapping[str, Any], model: Any, training: Any) -> TuningResults | None:
    """The tuning that `--tune` and `--tune-over` request, around the settings of the recipe."""
    if given.get("tune") is None:
        return None
    settings = parse_settings(given.get("tune_over") or "learning_rate")
    defaults = []
    for name in settings:
        settings_of = training if hasattr(training, name) else model
        if not hasattr(settings_of, name):
            raise OdeumError(f"--tune-over {name}: the model of this kind has no {name}; leave it out")
        defaults.append(float(getattr(settings_of, name)))
    return TuningResults(Tuning(settings, tuple(defaults), given["tune"]))


def _tell_twins(architectures: Mapping[str, Architecture], names: Sequence[str]) -> None:
    """Print a notice for two spellings of one architecture, which are one row."""
    first: dict[str, str] = {}
    for name in names:
        spelling = spell(architectures[name])
        if spelling in first:
            same = "is named twice" if name == first[spelling] else f"is the same architecture as {first[spelling]}"
            notice(f"{name} {same}; the table has one row for both")
        first.setdefault(spelling, name)


def _show(directory: Path) -> None:
    """Print the table so far, before the remaining seeds."""
    from odeum.lab.study.findings import judged
    from odeum.lab.study.runs import read
    from odeum.lab.study.tables import table

    if is_main():
        print(f"\n{table(judged(read(directory)).rows)}", file=sys.stderr)
