"""One readable loop: from a task and a few words to a run directory that can be continued, used and reported."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odeum.errors import Diverged
from odeum.lab.train.checkpoints import Checkpoints
from odeum.lab.train.distributed.world import join
from odeum.lab.train.interrupt import Interrupted
from odeum.lab.train.job import Job, holds, macs_per_step, open_run, plan_run, refuse_another
from odeum.lab.train.loop import Trainer
from odeum.lab.train.progress import Listener, Progress
from odeum.lab.train.settings import Training
from odeum.models.saved import check_run_files
from odeum.storage import lock_directory, make_directory, open_directory

__all__ = ["Interrupted", "Job", "holds", "macs_per_step", "refuse_another", "train", "with_changes"]


def train(
    job: Job,
    progress: Listener | None = None,
    *,
    opened: Callable[[], None] | None = None,
    record_divergence: bool = False,
) -> dict[str, Any]:
    """Train, or continue, or find it done; returns the result, in every process the same.

    `opened` is called in the first process once the folder has been taken as this run's and there is work to do.
    `record_divergence` makes a run that diverges a result: it would diverge again.
    """
    world = join(job.training)
    progress = progress or Progress(job.title)
    progress.quiet = progress.quiet or not world.main
    with world.watching(), contextlib.ExitStack() as held:
        plan = plan_run(job, world)
        if world.main:  # alone before anything is read or written
            make_directory(job.directory)
            folder = held.enter_context(lock_directory(job.directory))
        world.wait()
        if not world.main:
            folder = held.enter_context(open_directory(job.directory))
        run = open_run(job, world, plan)
        folder.bind(job.folder.run().get("run_id"))
        check_run_files(job.directory)
        if not world.agree(job.folder.finished):
            if world.main and opened is not None:
                opened()
            try:
                with contextlib.closing(Trainer(job, world, run, progress)) as trainer:
                    trainer.run()
            except Diverged as error:
                if record_divergence and world.main:
                    lost = {job.task.metric: math.nan, "loss": math.nan}
                    job.folder.write_result({"failed": str(error), "valid": lost, "test": lost})
                raise
            world.wait()
        result = job.folder.result()
        if world.main and "failed" not in result:
            Checkpoints(job.directory, job.training.keep).finish()  # of a run that was killed when it was done
        folder.check()
    return result


def with_changes(settings: Any, changes: dict[str, Any]) -> Any:
    """A settings dataclass with what the user said put in; an end that is said overrules the default end."""
    if isinstance(settings, Training) and set(changes) & {"steps", "budget", "macs", "epochs"}:
        settings = replace(settings, steps=None, budget=None, macs=None)
    return replace(settings, **changes)
