"""`odeum train` beside the shortest loop that makes the same steps: the same weights at the end, to the bit.

    script/bench loop            # a few minutes; writes benchmarks/results/loop.json

Model, batches, order, rates and optimizer are the same. Ours adds what makes it a run: seeds a step, the clock, metrics
and states that are written on the way. Evaluation and the last state, once a run, are left out. The ratio is the bare
loop's time over ours. cifar100 and wikitext2 are measured where their data is: ODEUM_DATA says where.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from turns import record

from odeum.lab.launch.worker import Reporting
from odeum.lab.tasks import open_task
from odeum.lab.train.batches import seed_generators, step_seed
from odeum.lab.train.distributed.world import World
from odeum.lab.train.job import Job, plan_run
from odeum.lab.train.loop import Trainer
from odeum.lab.train.optimization import learning_rate, make_optimizer
from odeum.models import OdeumModel, build
from odeum.registry.spelling import parse

STEPS = {"digits": 150, "cifar100": 6, "wikitext2": 6}
ROUNDS = 5
CPU = torch.device("cpu")


class Measured(Trainer):
    """A run that ends after the first steps, before what happens once a run."""

    count: int

    def batches(self) -> Iterator[dict[str, Tensor]]:
        return itertools.islice(super().batches(), self.count)

    def _evaluation_due(self) -> bool:
        return False

    def _save(self) -> None:
        if self.step < self.count:
            super()._save()

    def _finish(self) -> None:
        pass


def ours(job: Job, world: World, plan: dict[str, Any], count: int) -> tuple[float, list[Tensor]]:
    """CPU seconds, and the weights at the end."""
    with tempfile.TemporaryDirectory() as directory:
        job = replace(job, directory=Path(directory))
        trainer = Measured(job, world, plan, Reporting(lambda event: None))
        trainer.count = count
        start = time.process_time()
        trainer.run()
        return time.process_time() - start, trainer.weights


def bare(job: Job, count: int) -> tuple[float, list[Tensor]]:
    """The same steps; what is random in them is seeded as a run seeds it, since the weights are compared."""
    torch.manual_seed(job.seed)
    model = build(job.architecture, job.model)
    assert isinstance(model, OdeumModel)
    model.label_smoothing = job.training.label_smoothing
    optimizer, training = make_optimizer(model, job.training), job.training
    weights = list(model.parameters())
    epoch = len(job.task.plan(0, training.batch_size, job.seed))
    steps = training.steps or round(training.epochs * epoch)
    start, step = time.process_time(), 0
    for number in itertools.count():
        for batch in job.task.batches(number, training.batch_size, job.seed):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(training, step, step / steps)
            seed_generators(step_seed(job.seed, step, 0), CPU)
            model(**batch, **model.in_training).loss.backward()
            if training.clip:
                nn.utils.clip_grad_norm_(weights, training.clip, foreach=True)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == count:
                return time.process_time() - start, weights
    raise AssertionError


def main() -> None:
    torch.set_num_threads(1)
    world, found, skipped = World(CPU), {}, {}
    for name, count in STEPS.items():
        if name != "digits" and "ODEUM_DATA" not in os.environ:
            skipped[name] = "ODEUM_DATA does not say where its data is"
            print(f"{name}: left out, {skipped[name]}")
            continue
        task = open_task(name)
        training = replace(task.training(), ema=0.0, average=0, accumulate=1, precision="fp32")
        job = Job.on(task, task.model(), parse("sequential"), training, 0, Path("."), threads=1)
        plan = plan_run(job, world)
        times = []
        for turn in range(ROUNDS + 1):
            (mine, a), (theirs, b) = ours(job, world, plan, count), bare(job, count)
            if not all(map(torch.equal, a, b)):
                raise SystemExit(f"{name}: the loops do not make the same steps")
            times += [(mine, theirs)] if turn else []
        ratio = statistics.median(theirs / mine for mine, theirs in times)
        milliseconds = 1e3 * statistics.median(mine for mine, _ in times) / count
        found[name] = {"ms a step": milliseconds, "bare loop / odeum train": ratio}
        print(f"{name:12} {milliseconds:8.2f} ms a step   × {ratio:.3f}")
    record("loop", {"ratios": found, "steps": STEPS, "rounds": ROUNDS, "skipped": skipped, "seed": 0})


if __name__ == "__main__":
    main()
