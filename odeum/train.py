"""One readable loop: from a task and a few words to a run directory that can be continued, used and reported."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from odeum.describe import describe
from odeum.distributed import World, join
from odeum.errors import OdeumError
from odeum.memory import peak_memory, reset_peak_memory
from odeum.models import LanguageModel, OdeumModel, TranslationModel, build
from odeum.models.base import IGNORE
from odeum.optimization import Average, Plan, learning_rate, make_optimizer
from odeum.progress import Progress, duration
from odeum.runs import Checkpoints, git_revision, read_json, save_model, versions, write_json
from odeum.settings.architecture import Architecture, spell
from odeum.settings.model import Model, Translation
from odeum.settings.training import Training
from odeum.tasks import Task

SAME = ("fingerprint", "architecture", "seed", "model", "training")
"""what must be equal for a run to be the same run"""


@dataclass(frozen=True)
class Job:
    """All that decides a run."""

    task: Task
    model: Model
    architecture: Architecture
    training: Training
    seed: int
    directory: Path
    command: str = ""


class Interrupted(KeyboardInterrupt):
    """The state is saved; the same command continues."""


def train(job: Job, progress: Progress | None = None) -> dict[str, Any]:
    """Train, or continue, or find it done; returns the result."""
    world = join(job.training)
    progress = progress or Progress(f"{spell(job.architecture)} seed {job.seed}", quiet=not world.main)
    run = _open_run(job, world)
    if (job.directory / "result.json").exists():
        return read_json(job.directory / "result.json")
    return _Trainer(job, world, run, progress).run()


def _open_run(job: Job, world: World) -> dict[str, Any]:
    """run.json: written first, compared when the run is continued."""
    facts = describe(job.architecture, job.model, detail=False)
    run = {
        "task": job.task.name,
        "kind": job.task.kind,
        "data": list(job.task.source),
        "metric": job.task.metric,
        "higher_is_better": job.task.higher_is_better,
        "architecture": spell(job.architecture),
        "seed": job.seed,
        "model": {"kind": type(job.model).__name__, **asdict(job.model)},
        "training": asdict(job.training),
        "fingerprint": job.task.fingerprint(),
        **{key: facts[key] for key in ("equation", "scheme", "parameters", "macs", "evaluations", "order")},
        "device": str(world.device),
        "processes": world.size,
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "git": git_revision(),
        "command": job.command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path = job.directory / "run.json"
    if path.exists():
        _same_run(json.loads(json.dumps(run)), read_json(path), job.directory)
    elif world.main:
        try:
            job.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OdeumError(f"cannot make the run directory '{job.directory}': {error.strerror}") from None
        job.task.save(job.directory)
        write_json(path, run)
    return run


def _same_run(new: dict[str, Any], old: dict[str, Any], directory: Path) -> None:
    for key in SAME:
        if new[key] == old.get(key):
            continue
        if isinstance(new[key], dict):
            field = next(f for f in new[key] if new[key][f] != old[key].get(f))
            if field in ("device", "strategy", "tensorboard"):  # how, not what: a run may move
                continue
            change = f"{key}.{field} is {new[key][field]} and was {old[key].get(field)}"
        else:
            change = f"{key} is {new[key]} and was {old.get(key)}"
        raise OdeumError(f"'{directory}' holds a run with other settings ({change}); give another --out or remove it")


class _Trainer:
    """The state of a run, and the loop over it."""

    def __init__(self, job: Job, world: World, run: dict[str, Any], progress: Progress) -> None:
        self.job, self.world, self.progress, self.training = job, world, progress, job.training
        self.per_epoch = job.task.steps_per_epoch(self.training.batch_size)
        # Forward and backward cost three forwards of as many examples of full length as a batch holds.
        batch = self.training.batch_size
        self.macs_per_step = 3.0 * run["macs"] * (batch / job.model.length if isinstance(job.model, Translation) else batch)
        self.plan = Plan(self.training, self.per_epoch, self.macs_per_step)
        torch.manual_seed(job.seed)
        torch.use_deterministic_algorithms(self.training.deterministic)
        model = build(job.architecture, job.model)
        assert isinstance(model, OdeumModel)
        self.model = model.to(world.device)
        self.model.label_smoothing = self.training.label_smoothing
        self.wrapped = world.wrap(self.model)
        self.called: nn.Module = torch.compile(self.wrapped) if self.training.compile else self.wrapped  # ty: ignore
        self.only_loss = isinstance(model, LanguageModel | TranslationModel)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        self.optimizer = make_optimizer(self.model, self.training)
        self.ema = Average(self.weights, self.training.ema) if self.training.ema else None
        self.mean = Average(self.weights, None) if self.training.average else None
        self.step, self.seconds, self.worse, self.snapshots = 0, 0.0, 0, 0
        self.best: float | None = None
        self.checkpoints = Checkpoints(job.directory)
        self.metrics_path = job.directory / "metrics.jsonl"
        self.step_times: list[float] = []
        self.evaluated = 0

    # the loop

    def run(self) -> dict[str, Any]:
        self._resume()
        reset_peak_memory(self.world.device)
        last_save, saving = time.monotonic(), 0.0
        losses: list[Tensor] = []
        logged = time.monotonic()
        with _stop_softly() as stop:
            for batch in self._batches():
                begin = time.perf_counter()
                losses.append(self._step(batch))
                self._account(time.perf_counter() - begin)
                fraction = self.fraction
                done = fraction >= 1.0
                if done or self.step % max(1, (self.plan.steps or 1000) // 200) == 0 or time.monotonic() - logged > 5:
                    self._log(losses, fraction)
                    logged = time.monotonic()
                if self._evaluation_due(fraction) and not done and self._evaluate_and_judge():
                    break
                if done:
                    break
                every = self.training.checkpoint_every
                waited = time.monotonic() - last_save > max(10.0, 50 * saving)
                if stop.asked or (self.step % every == 0 if every else waited):
                    started = time.monotonic()
                    self._save()
                    last_save, saving = time.monotonic(), time.monotonic() - started
                if stop.asked:
                    raise Interrupted(f"stopped at step {self.step}; the same command continues")
        return self._finish()

    @property
    def fraction(self) -> float:
        return self.world.agree(self.plan.fraction(self.step, self.seconds))

    def _batches(self) -> Iterator[dict[str, Tensor]]:
        while True:
            epoch, start = divmod(self.step, self.per_epoch)
            yield from self.job.task.batches(epoch, self.training.batch_size, self.job.seed, start)

    def _step(self, batch: dict[str, Tensor]) -> Tensor:
        """One optimizer step over a batch that is divided among processes and accumulated parts."""
        rate = learning_rate(self.training, self.step, self.plan.fraction(self.step, self.seconds))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.rate = rate
        # A seed of its own for each step: what is random does not depend on where a run was interrupted.
        torch.manual_seed(_mix(self.job.seed, self.step, self.world.rank))
        parts = _divide(batch, self.world.size * self.training.accumulate)
        total = sum(count for _, count in parts)
        first = self.world.rank * self.training.accumulate
        mine = parts[first : first + self.training.accumulate]
        self.model.train()
        loss = torch.zeros((), device=self.world.device)
        for i, (part, count) in enumerate(mine):
            part = {key: value.to(self.world.device, non_blocking=True) for key, value in part.items()}
            with self.world.syncing(self.wrapped, last=i == len(mine) - 1), self._precision():
                out = self.called(**part, only_loss=True) if self.only_loss else self.called(**part)
                # Processes average their gradients; the weights make that the mean over the whole batch.
                share = count / total
                (out.loss * (share * self.world.size)).backward()
            loss += out.loss.detach() * share
        if self.training.clip:
            self.world.clip(self.weights, self.training.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.weights)
        self.step += 1
        return loss

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        kind = self.world.device.type
        fast = kind == "cuda" and torch.cuda.is_bf16_supported()
        wanted = self.training.precision == "bf16" or (self.training.precision == "auto" and fast)
        return torch.autocast(kind, torch.bfloat16) if wanted else contextlib.nullcontext()

    def _account(self, seconds: float) -> None:
        self.seconds += seconds
        self.step_times.append(seconds)
        if self.mean is not None:
            fraction = self.plan.fraction(self.step, self.seconds)
            if fraction >= 0.8 + 0.2 * (self.snapshots + 1) / self.training.average or fraction >= 1.0:
                self.mean.update(self.weights)
                self.snapshots += 1

    # what is written on the way

    def _log(self, losses: list[Tensor], fraction: float) -> None:
        loss = float(self.world.sum(torch.stack(losses).mean()))
        losses.clear()
        if loss != loss or loss in (float("inf"), float("-inf")):
            raise OdeumError(
                f"the loss of {spell(self.job.architecture)} (seed {self.job.seed}) is {loss} at step {self.step}; "
                "a smaller --train.learning_rate or a longer --train.warmup may help"
            )
        speed = self.training.batch_size / statistics.median(self.step_times[-50:])
        memory = peak_memory(self.world.device)
        self.progress.update(
            step=self.step, fraction=fraction, seconds=self.seconds, loss=loss, rate=speed, memory=memory
        )
        self._write_metrics({"split": "train", "loss": loss, "lr": self.rate})

    def _write_metrics(self, values: dict[str, Any]) -> None:
        if not self.world.main:
            return
        line = {
            "step": self.step,
            "epoch": round(self.step / self.per_epoch, 4),
            "seconds": round(self.seconds, 3),
            "macs": self.step * self.macs_per_step,
            **values,
        }
        with open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.training.tensorboard:
            _tensorboard(self.job.directory, line)

    def _evaluation_due(self, fraction: float) -> bool:
        if self.training.evaluate_every:
            return self.step % self.training.evaluate_every == 0
        reached = int(fraction * 10)
        due = reached > self.evaluated
        self.evaluated = max(self.evaluated, reached)
        return due

    def _evaluate_and_judge(self) -> bool:
        """Look at the validation part; True if there was no progress for too long."""
        values = self.job.task.evaluate(self.model, "valid", device=self.world.device, limit=self.job.task.quick)
        self._write_metrics({"split": "valid", **values})
        self.progress.metrics(self.step, values)
        if not self.training.patience:
            return False
        score = values[self.job.task.metric if self.job.task.metric in values else "loss"]
        if not (self.job.task.higher_is_better and self.job.task.metric in values):
            score = -score
        if self.best is None or score > self.best:
            self.best, self.worse = score, 0
            return False
        self.worse += 1
        return self.worse >= self.training.patience

    # states

    def _save(self) -> None:
        tensors = self.world.state(self)
        if self.world.main:
            state = {
                name: getattr(self, name) for name in ("step", "seconds", "best", "worse", "snapshots", "evaluated")
            } | {"averaged": [a.count if a else 0 for a in (self.ema, self.mean)]}
            self.checkpoints.save(self.step, tensors, state)

    def _resume(self) -> None:
        path = self.checkpoints.latest()
        if path is None:
            self.metrics_path.unlink(missing_ok=True)
            return
        tensors, state = self.checkpoints.load(path)
        self.world.restore(self, tensors)
        for average, count in zip((self.ema, self.mean), state.pop("averaged"), strict=True):
            if average is not None:
                average.count = count
        for name, value in state.items():
            setattr(self, name, value)
        if self.world.main:
            _forget_after(self.metrics_path, self.step)
        self.progress.say(f"continues at step {self.step}")

    def _finish(self) -> dict[str, Any]:
        average = self.mean if self.mean is not None and self.mean.count else self.ema
        if average is not None:
            with torch.no_grad():
                for weight, value in zip(self.weights, average.values, strict=True):
                    weight.copy_(value)
        peak = peak_memory(self.world.device)
        final = {s: self.job.task.evaluate(self.model, s, device=self.world.device) for s in ("valid", "test")}
        self._write_metrics({"split": "valid", **final["valid"]})
        result = {
            **final,
            "steps": self.step,
            "seconds": round(self.seconds, 3),
            "step_seconds": statistics.median(self.step_times) if self.step_times else None,
            "peak_memory": peak,
            "macs": self.step * self.macs_per_step,
        }
        weights = self.world.weights(self.model)
        if self.world.main:
            save_model(self.job.directory, self.model, weights)
            write_json(self.job.directory / "result.json", result)
            self.checkpoints.clear()
        metric = self.job.task.metric
        self.progress.say(f"done: test {metric} {final['test'][metric]:.4g} after {self.step} steps, {duration(self.seconds)}")
        return result


def _divide(batch: dict[str, Tensor], parts: int) -> list[tuple[dict[str, Tensor], float]]:
    """A batch in equal parts, each with how much it counts: its labels that are not ignored."""
    rows = next(iter(batch.values())).shape[0]
    out = []
    for i in range(parts):
        low, high = rows * i // parts, rows * (i + 1) // parts
        empty = low == high  # fewer rows than parts: a part that computes along and counts for nothing
        piece = {key: value[0:1] if empty else value[low:high] for key, value in batch.items()}
        labels = piece["labels"]
        count = len(labels) if labels.is_floating_point() else int((labels != IGNORE).sum())
        out.append((piece, 0.0 if empty else float(count)))
    return out


def _mix(*key: int) -> int:
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=7).digest(), "big")


def _forget_after(path: Path, step: int) -> None:
    """Drop what was logged after the state that a run continues from."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        with contextlib.suppress(ValueError, KeyError):
            if json.loads(line)["step"] <= step:
                kept.append(line)
    path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


class _stop_softly:
    """The first Ctrl-C (or SIGTERM) lets the step finish and the state be saved; the second one insists."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _stop_softly:
        self.before = {}
        with contextlib.suppress(ValueError):  # only the main thread may listen
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: Any) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


_WRITERS: dict[Path, Any] = {}


def _tensorboard(directory: Path, line: dict[str, Any]) -> None:
    if directory not in _WRITERS:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise OdeumError("TensorBoard is not installed; `pip install odeum[track]`, or leave --train.tensorboard out") from None
        _WRITERS[directory] = SummaryWriter(str(directory / "tensorboard"))
    for key, value in line.items():
        if isinstance(value, float) and key not in ("epoch", "seconds", "macs"):
            _WRITERS[directory].add_scalar(f"{line['split']}/{key}", value, line["step"])


def with_changes(settings: Any, changes: dict[str, Any]) -> Any:
    """A settings dataclass with what the user said put in; an end that is said overrules the default end."""
    if isinstance(settings, Training) and set(changes) & {"steps", "budget", "macs", "epochs"}:
        settings = replace(settings, steps=None, budget=None, macs=None)
    return replace(settings, **changes)
