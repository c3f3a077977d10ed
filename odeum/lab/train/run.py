"""`train`: trains a job into a run folder that can be continued, loaded and reported."""

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
from odeum.lab.train.job import Job, check_same_run, holds, macs_per_step, open_run, plan_run
from odeum.lab.train.loop import Trainer
from odeum.lab.train.progress import Listener, Progress
from odeum.lab.train.settings import Training
from odeum.models.saved import check_run_files
from odeum.storage import lock_directory, make_directory, open_directory

__all__ = ["Interrupted", "Job", "check_same_run", "holds", "macs_per_step", "train", "with_changes"]


def train(
    job: Job,
    progress: Listener | None = None,
    *,
    opened: Callable[[], None] | None = None,
    record_divergence: bool = False,
) -> dict[str, Any]:
    """Train a job, or continue it, or read its result if it is finished. Returns the result in every process.

    `opened` is called in the first process once the folder is open and there is work to do.
    `record_divergence` writes a result for a run that diverges, since it would diverge again.
    """
    world = join(job.training)
    progress = progress or Progress(job.title)
    progress.quiet = progress.quiet or not world.main
    with world.watching(), contextlib.ExitStack() as locks:
        plan = plan_run(job, world)
        if world.main:  # exclusive before anything is read or written
            make_directory(job.directory)
            folder = locks.enter_context(lock_directory(job.directory))
        world.wait()
        if not world.main:
            folder = locks.enter_context(open_directory(job.directory))
        run = open_run(job, world, plan)
        folder.bind(job.folder.run().get("run_id"))
        check_run_files(job.directory)
        if not world.broadcast(job.folder.finished):
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
            Checkpoints(job.directory, job.training.keep).finish()  # if it was killed after its result was written
        folder.check()
    return result


def with_changes(settings: Any, changes: dict[str, Any]) -> Any:
    """Returns settings with the user's changes; a given end of training replaces the default one."""
    if isinstance(settings, Training) and set(changes) & {"steps", "budget", "macs", "epochs"}:
        settings = replace(settings, steps=None, budget=None, macs=None)
    return replace(settings, **changes)
