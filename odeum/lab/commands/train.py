"""`odeum train DATA`: train one model; the same command resumes an interrupted run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from odeum.errors import OdeumError
from odeum.lab.commands.options import Parser, architecture_names, known_architectures, model_names, take
from odeum.lab.commands.request import (
    command_line,
    folder_name,
    open_request,
    print_config,
    rate_origin,
    read_request,
    refuse_processes,
    tell_before,
)
from odeum.lab.train.distributed.ranks import exit_code, is_main, print_error
from odeum.registry.spelling import parse, spell, split_spellings


def run(argv: list[str]) -> int:
    parser = Parser(
        "train",
        "Train one model. Each data set has its own defaults, see --print_config. "
        f"--model NAME starts from one of: {model_names()}.",
    )
    parser.option(
        "architecture",
        f"architecture, such as parallel or rk4:steps=2; known: {architecture_names()}",
        default="sequential",
    )
    parser.option("seed", "seed of weights, batches and augmentation", int, default=0)
    parser.option("out", "run directory (default: runs/DATA-SETTINGS/ARCHITECTURE/seed-N)")
    parser.option("overwrite", "replace an existing run", bool)
    parser.option(
        "resume-from", "resume from RUN/checkpoint/step-N of another run, with other training settings", metavar="STATE"
    )
    parser.option("from", "start from a run: its weights, model, architecture and tokenizer", metavar="RUN")
    parser.shared("track", "dry-run", "print-config")
    begin, argv = _beginning(argv)
    request = read_request(parser, argv)
    if begin is not None:
        request = request._replace(preset=begin.settings)
    usual = "sequential" if begin is None else spell(begin.architecture)
    if len(several := split_spellings(request.given.get("architecture", usual))) > 1:
        raise OdeumError(
            f"--architecture takes one architecture, not {len(several)} ({', '.join(several)}); `odeum compare` takes "
            "several with --architectures"
        )
    architecture = parse(known_architectures(request.given.get("architecture", usual)))

    from odeum.lab.train.interrupt import Interrupted
    from odeum.lab.train.job import Job, check_same_run, initial_model
    from odeum.lab.train.resume import find_state
    from odeum.lab.train.run import train
    from odeum.lab.train.spec import check_seed
    from odeum.storage import check_directory, out_directory, slug

    seed = request.given.get("seed", 0)
    check_seed(seed)
    task, model, training = open_request(request, None if begin is None else begin.directory)
    if request.given.get("print_config"):
        print_config(request, task, model, training, {"architecture": spell(architecture), "seed": seed})
        return 0
    state = None if request.given.get("resume_from") is None else find_state(request.given["resume_from"])
    origin = [] if state is None else [f"from {state.name}"]
    origin += [] if begin is None else [f"from {begin.directory.name}"]
    name = folder_name(task, model, training, *origin)
    inside = Path(slug(spell(architecture))) / f"seed-{seed}"
    directory = out_directory(request.given.get("out"), Path("runs") / name / inside)
    overwrite = request.given.get("overwrite", False)
    source = None if begin is None else begin.directory
    job = Job.on(
        task,
        model,
        architecture,
        training,
        seed,
        directory,
        command=command_line(),
        resume_from=state,
        begin_from=source,
        overwrite=overwrite,
        rate_from=rate_origin(request, task),
    )
    if request.given.get("dry_run"):
        check_directory(directory)
        check_same_run(job)
        from odeum.lab.study.forecast import forecast, run_seconds
        from odeum.lab.study.measuring import measure
        from odeum.lab.train.distributed.world import join

        refuse_processes()
        name = spell(architecture)
        pace = measure({name: job}, name, join(training), lambda steps: run_seconds(job, steps[name]))
        tell_before(task, forecast({(name, seed): job}, pace, 1, overwrite))
        return 0
    if begin is not None:
        job.put_model(initial_model(job))  # weights that have no place in it are refused before there is a directory
    try:
        result = train(job, opened=lambda: print("\n".join(task.understood()), file=sys.stderr))
    except Interrupted as stop:
        print_error(stop)
        return exit_code(stop.code)
    if not is_main():
        return 0
    if failed := result.get("failed"):
        raise OdeumError(f"the run '{directory}' failed before: {failed}; --overwrite tries again")
    for split in ("valid", "test"):
        print(f"{split}: " + ", ".join(f"{name} {value:.4g}" for name, value in result[split].items()))
    for note in result.get("notes", ()):
        print(f"note: {note}")
    print(f"run: {directory}")
    return 0


class Beginning(NamedTuple):
    """The run that a training starts from."""

    directory: Path
    settings: Any
    architecture: Any


def _beginning(argv: list[str]) -> tuple[Beginning | None, list[str]]:
    """Remove `--from RUN` from the arguments; adds the kind of that run."""
    given, argv = take(argv, "--from")
    if given is None:
        return None, argv
    from odeum.models.saved import read_settings
    from odeum.storage import read_json

    directory = Path(given)
    if not (directory / "model.safetensors").exists() or not (directory / "task.json").exists():
        raise OdeumError(f"--from {given} is not a finished run: it has no model.safetensors or no task.json")
    settings, architecture = read_settings(directory)
    kind = str(read_json(directory / "task.json").get("kind"))
    arguments = argv if any(word.startswith("--kind") for word in argv) else [*argv, "--kind", kind]
    return Beginning(directory.resolve(), settings, architecture), arguments
