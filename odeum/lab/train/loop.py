"""The training loop and its state."""

from __future__ import annotations

import contextlib
import math
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from odeum.errors import CutOff, Diverged, OdeumError
from odeum.integrators.energy import Energy, kinetic_energy
from odeum.integrators.implicit import RESIDUAL_LIMIT, fixed_point_residual
from odeum.integrators.reversing import reconstruction_drift
from odeum.lab.train.batches import divide, refuse_hidden_draws, seed_generators, step_seed
from odeum.lab.train.checkpoints import DEFAULT_KEEP, Checkpoints
from odeum.lab.train.clock import clock_of, pinned
from odeum.lab.train.distributed.world import World, uses_bfloat16
from odeum.lab.train.interrupt import Interrupted, graceful_stop
from odeum.lab.train.job import Job, initial_model, macs_per_step
from odeum.lab.train.memory import MemoryWatch, peak_memory, reset_peak_memory
from odeum.lab.train.metrics import Metrics
from odeum.lab.train.optimization import Average, TrainingEnd, learning_rate, make_optimizer, set_deterministic
from odeum.lab.train.progress import Listener, clock_time
from odeum.lab.train.resume import adopt_state, last_intact_state, unreadable_state
from odeum.lab.train.settings import seconds_of
from odeum.lab.train.state import collect, restore
from odeum.lab.train.tracking import trackers_of
from odeum.looping import Looped, set_progress
from odeum.models.saved import save_model, weights_entry
from odeum.models.tensors import not_finite
from odeum.registry.spelling import spell
from odeum.storage import read_json, sync_together

STATE = ("step", "seconds", "best", "worse", "snapshots", "evaluated", "step_times")
"""attributes stored in state.json, beside the tensors"""
REPEATED_SECONDS = 1.0
"""most training since the last checkpoint that is repeated, to the same bits, if the final evaluation is killed"""


class Trainer:
    """The training loop of one process. All processes decide alike: by steps, or by the first one's clock."""

    def __init__(self, job: Job, world: World, run: dict[str, Any], progress: Listener) -> None:
        self.job, self.world, self.progress, self.training = job, world, progress, job.training
        self.per_epoch = job.task.steps_per_epoch(self.training.batch_size)
        self.macs_per_step = macs_per_step(job, run)
        self.plan = TrainingEnd(self.training, self.per_epoch, self.macs_per_step)
        self.metrics = Metrics(job.directory, trackers_of(job, run) if world.main else [])
        self.checkpoints = Checkpoints(job.directory, self.training.keep)
        self.clock = clock_of(world.device)
        set_deterministic(self.training.deterministic)
        self.model = initial_model(job).to(world.device)
        self.model.label_smoothing = self.training.label_smoothing
        self.late = [part for part in self.model.modules() if isinstance(part, Looped) and part.late]
        """stacks whose core repeats from a share of training on"""
        self.wrapped = world.wrap(self.model)
        self.called: nn.Module = torch.compile(self.wrapped) if self.training.compile else self.wrapped  # ty: ignore
        self.names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.model, self.training)
        parts = world.local(self.weights)
        self.ema = Average(parts, self.training.ema) if self.training.ema else None
        self.mean = Average(parts, None) if self.training.average else None
        self.step, self.seconds, self.worse, self.snapshots, self.evaluated = 0, 0.0, 0, 0, 0
        self.best: float | None = None
        self.step_times: list[float] = []
        self.examples: list[int] = []
        self.memory = MemoryWatch(world.device)

    # the loop

    def run(self) -> None:
        with graceful_stop() as stop:
            self._resume()
            self.world.wait()
            reset_peak_memory(self.world.device)
            losses: list[Tensor] = []
            logged = saved = time.monotonic()
            saving = 0.0
            for batch in self.batches() if not self._over() else ():
                self.clock.begin()
                losses.append(self.take_step(batch))
                taken = self.clock.end()
                self.examples = [*self.examples[-49:], len(batch["labels"])]
                now = time.monotonic()
                late = now - saved > max(3.0, 50 * saving)
                done, asked, log, save = self._agree(taken, stop.asked > 0, now - logged > 5, late)
                if log:
                    self._log(losses)
                    logged = now
                if done or (self._evaluation_due() and self._evaluate_and_judge()):
                    break
                if self._cut_off():
                    self._write({"split": "limit", "cut_off": self.training.limit}, again=True)
                    self._save()
                    raise CutOff(
                        f"{spell(self.job.architecture)} (seed {self.job.seed}) was cut off at step {self.step} by the "
                        f"limit of {self.training.limit}; a longer --train.limit continues it"
                    )
                if save:
                    saved = time.monotonic()
                    self._save()
                    saving = time.monotonic() - saved
                    saved += saving
                if asked:
                    by = stop.asked or signal.SIGTERM  # 0 if another process received it
                    raise Interrupted(f"stopped at step {self.step}; the same command continues", by)
            # The evaluation can take minutes, and may be interrupted too.
            self._save(write=self._worth_saving(time.monotonic() - saved))
        self._finish()

    def close(self) -> None:
        """Close the trackers, however training ended."""
        self.metrics.close()

    def _over(self) -> bool:
        """Whether training had ended when the checkpoint was saved."""
        return self.fraction >= 1.0 or 0 < self.training.patience <= self.worse

    def _cut_off(self) -> bool:
        return self.training.limit is not None and self.seconds >= seconds_of(self.training.limit, "limit")

    def batches(self) -> Iterator[dict[str, Tensor]]:
        while True:
            epoch, start = divmod(self.step, self.per_epoch)
            batches = self.job.task.batches(epoch, self.training.batch_size, self.job.seed, start)
            yield from pinned(batches, self.world.device)

    def take_step(self, batch: dict[str, Tensor], progress: float | None = None) -> Tensor:
        """Take one optimizer step over a batch. Returns this process's share of the mean loss.

        `progress` is the share of training whose schedule is used (default: what is done).
        """
        if self.late:
            set_progress(self.model, self.fraction if progress is None else progress)
        self.rate = learning_rate(self.training, self.step, self.fraction)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * group.get("scale", 1.0)
        seed_generators(step_seed(self.job.seed, self.step, self.world.rank), self.world.device)
        count = self.training.accumulate
        parts = divide(batch, self.world.size * count, self.model.counted)[self.world.rank * count :][:count]
        if not self.model.training:  # `train()` visits all modules
            self.model.train()
        loss = torch.zeros((), device=self.world.device)
        for i, (part, share) in enumerate(parts):
            part = {key: value.to(self.world.device, non_blocking=True) for key, value in part.items()}
            if self.training.compile and not self.step_times:
                refuse_hidden_draws(self.model, part)
            with self.world.gradient_sync(self.wrapped, last=i == count - 1):
                with self._precision(), self._energy() as energy:
                    out = self.called(**part, **self.model.in_training)
                objective = out.loss if energy is None else out.loss + self.training.kinetic * energy.total
                # Processes average their gradients; the shares make that the mean over the whole batch.
                weight = share * self.world.size
                (objective if weight == 1.0 else objective * weight).backward()
            loss += out.loss.detach() * share
        if self.training.clip:
            self.world.clip(self.weights, self.training.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(self.world.local(self.weights))
        self.step += 1
        return loss

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if not uses_bfloat16(self.training.precision, self.world.device):
            return contextlib.nullcontext()
        return torch.autocast(self.world.device.type, torch.bfloat16)

    @property
    def fraction(self) -> float:
        return self.plan.fraction(self.step, self.seconds)

    def _agree(self, taken: float, asked: bool, log: bool, save: bool) -> tuple[bool, bool, bool, bool]:
        """Share the first process's step time and the requests of all. Returns (done, stop, log, save)."""
        taken, *requests = self.world.add([taken if self.world.main else 0.0, asked, log, save])
        self._count(taken)
        asked, log, save = (request > 0 for request in requests)
        fraction = self.fraction
        if self.mean is not None:
            due = 0.8 + 0.2 * (self.snapshots + 1) / self.training.average
            if fraction >= min(due, 1.0):
                self.mean.update(self.world.local(self.weights))
                self.snapshots += 1
        done = fraction >= 1.0
        every = self.training.checkpoint_every
        save = asked or (self.step % every == 0 if every else save)
        return done, asked, done or log or self.step % max(1, (self.plan.steps or 1000) // 200) == 0, save

    def _count(self, taken: float) -> None:
        """Add a step's duration; 0 means that it is not known yet."""
        if taken:
            self.seconds += taken
            self.step_times.append(taken)

    # logs and evaluations

    def _energy(self) -> contextlib.AbstractContextManager[Energy | None]:
        """Context that measures the kinetic energy of a pass, if the loss includes it."""
        return kinetic_energy(self.model) if self.training.kinetic else contextlib.nullcontext()

    def _log(self, losses: list[Tensor]) -> None:
        """Log the mean loss since the last call, summed over the shares of all processes."""
        loss = self.world.add([float(torch.stack(losses).mean())])[0]
        losses.clear()
        if not math.isfinite(loss):
            raise self._diverged("loss", loss)
        self.progress.update(
            step=self.step,
            fraction=self.fraction,
            seconds=self.seconds,
            loss=loss,
            rate=sum(self.examples) / max(1e-9, sum(self.step_times[-len(self.examples) :])),
            memory=self.memory.recent_peak(),
        )
        repeats = {"repeats": self.late[0].acting} if self.late else {}
        self._write({"split": "train", "loss": loss, "lr": self.rate, **repeats})

    def _diverged(self, what: str, loss: float) -> Diverged:
        return Diverged(
            f"the {what} of {spell(self.job.architecture)} (seed {self.job.seed}) is {loss} at step {self.step}; "
            f"a smaller --train.learning_rate or a longer --train.warmup may help; {self._checkpoint_hint()}"
        )

    def _checkpoint_hint(self) -> str:
        """Names the last checkpoint and how to continue from it with other settings."""
        steps = self.checkpoints.steps()
        how = f"; --resume_from {self.checkpoints.at(steps[-1])} --out NEW continues from it" if steps else ""
        return self.checkpoints.summary() + how

    def _write(self, values: dict[str, Any], again: bool = False) -> None:
        if self.world.main:
            epoch, seconds = round(self.step / self.per_epoch, 4), round(self.seconds, 3)
            macs = self.step * self.macs_per_step
            if again:  # an earlier attempt may have written this line before it was killed
                self.metrics.forget(self.step, values["split"])
            self.metrics.write({"step": self.step, "epoch": epoch, "seconds": seconds, "macs": macs, **values})

    def _evaluation_due(self) -> bool:
        if self.training.evaluate_every:
            return self.step % self.training.evaluate_every == 0
        reached = int(self.fraction * 10)
        due = reached > self.evaluated
        self.evaluated = max(self.evaluated, reached)
        return due

    def _evaluate(self, split: str, limit: int | None = None) -> dict[str, float]:
        """Evaluate in every process, so that none waits and all have the result."""
        model = self.world.unsharded(self.model)
        set_progress(model, self.fraction)
        return self.job.task.evaluate(model, split, device=self.world.device, limit=limit)

    def _evaluate_and_judge(self) -> bool:
        """Evaluate on the validation split. Returns True if patience is exhausted."""
        task = self.job.task
        values = self._evaluate("valid", task.quick)
        self.world.wait()
        self._write({"split": "valid", **values})
        self.progress.metrics(self.step, values)
        if not self.training.patience:
            return False
        known = task.metric in values
        score = values[task.metric] if known else values["loss"]
        score = self.world.broadcast(score if known and task.higher_is_better else -score)
        if self.best is None or score > self.best:
            self.best, self.worse = score, 0
            return False
        self.worse += 1
        return self.worse >= self.training.patience

    # checkpoints

    def _worth_saving(self, seconds: float) -> bool:
        """Whether the state at the end of training is saved, after this many seconds without a checkpoint."""
        explicit = self.training.checkpoint_every or self.training.keep > DEFAULT_KEEP
        return bool(self.world.add([bool(explicit) or seconds > REPEATED_SECONDS])[0])

    def _save(self, write: bool = True) -> None:
        """Check that the state is finite, and write a checkpoint."""
        for taken in self.clock.remaining():
            self._count(self.world.broadcast(taken))
        state = {name: getattr(self, name) for name in STATE} | {
            "step_times": self.step_times[-200:],
            "averaged": [a.count if a else 0 for a in (self.ema, self.mean)],
        }
        tensors = collect(self)
        names = list(tensors)
        broken = not_finite(dict(zip(names, self.world.local([tensors[name] for name in names]), strict=True)))
        if self.world.add([broken is not None])[0]:  # NaN or infinity must not replace a finite checkpoint
            raise self._diverged("state", math.nan)
        if write:
            self.checkpoints.save(self.step, tensors, state, self.world)

    def _resume(self) -> None:
        """Restore the last intact checkpoint, or the one named by `resume_from`; else start from step 0."""
        path = last_intact_state(self.checkpoints, self.world)
        if path is None and (path := self.job.resume_from) is not None:
            adopt_state(path, self.metrics, self.world)
        if path is not None:
            try:
                self._restore(path)
            except (OdeumError, KeyError, TypeError, ValueError) as error:
                raise unreadable_state(path, error) from None
            self.progress.say(f"continues at step {self.step}")
        if self.world.main:
            self.metrics.forget_after(self.step)

    def _restore(self, path: Path) -> None:
        restore(self, path)
        state = read_json(path / "state.json")
        for average, count in zip((self.ema, self.mean), state.pop("averaged"), strict=True):
            if average is not None:
                average.count = count
        for name in STATE:
            setattr(self, name, state[name])

    def _finish(self) -> None:
        set_progress(self.model, 1.0)
        average = self.mean if self.mean is not None and self.mean.count else self.ema
        if average is not None:
            with torch.no_grad():
                for weight, value in zip(self.world.local(self.weights), average.values, strict=True):
                    weight.copy_(value)
        peak = peak_memory(self.world.device)
        self.progress.say(f"trained for {clock_time(self.seconds)}; evaluating")  # which can take minutes
        model = self.world.unsharded(self.model)
        final, predictions = {"valid": self._evaluate("valid")}, None
        if self.job.test:
            final["test"], predictions = self.job.task.examine(model, "test", self.world.device)
        for split, values in final.items():
            if not math.isfinite(values["loss"]):
                raise self._diverged(f"{split} loss", values["loss"])
        self._write({"split": "valid", **final["valid"]}, again=True)
        if self.job.test:
            self.metrics.track({"split": "test", "step": self.step, **final["test"]})
        result = {
            **final,
            "notes": list(self.job.task.notes),
            "steps": self.step,
            "seconds": round(self.seconds, 3),
            "step_seconds": statistics.median(self.step_times),
            "peak_memory": peak,
            "macs": self.step * self.macs_per_step,
        }
        if (drift := reconstruction_drift(self.model)) is not None:
            result["reconstruction_drift"] = drift  # relative, in the last backward pass
        if (residual := fixed_point_residual(model)) is not None:
            result["fixed_point_residual"] = residual  # of the implicit steps, relative, in the last pass
            if residual > RESIDUAL_LIMIT:
                result["notes"].append(
                    f"the equations of implicit steps were missed by {residual:.0%}: take shorter ones"
                )
        weights = self.world.weights(self.model)
        if self.world.main:
            with sync_together():  # before the result that names them
                save_model(self.job.directory, self.model, weights)
                if predictions is not None:
                    predictions.save(self.job.directory)
            # result.json is on disk before the checkpoints are removed
            self.job.folder.write_result({**result, **weights_entry(self.job.directory)})
            self.checkpoints.finish()
