"""The families of faults. Each yields, for every fault that it tried, what became of the work."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from corpus.tokenizer_bombs import BOMBS
from safetensors.numpy import load_file

from faults.child import KILLED, Child, Ending, Operations, call, count_operations
from odeum.kernels.adamw import AdamW
from odeum.storage import checksum, read_json, write_json

TINY = ("--model.width=16", "--model.heads=2", "--model.depth=1")
STEPS = ("--train.steps=6", "--train.checkpoint_every=2", "--train.ema=0.9", "--train.batch_size=32")


class Outcome(NamedTuple):
    """survived: the work is whole, or refused in a sentence; lost: it is gone; silent: it is wrong and nobody tells."""

    word: str
    what: str


def train(out: str, *more: str) -> tuple[str, ...]:
    """The command that is disturbed."""
    return ("train", "digits", *TINY, *STEPS, "--out", out, *more)


def compare(out: str) -> tuple[str, ...]:
    return (
        "compare",
        "digits",
        *TINY,
        *STEPS,
        "--architectures=sequential,parallel",
        "--seeds=2",
        "--match=steps",  # equal time is measured, so that two undisturbed comparisons differ by a step
        "--jobs=1",
        "--out",
        out,
    )


def bits(run: Path) -> tuple[Any, ...]:
    """What a finished run is: its weights, what it logged and what it scored; no times."""
    weights = {name: (value.shape, value.tobytes()) for name, value in load_file(run / "model.safetensors").items()}
    result = read_json(run / "result.json")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [(line["step"], line.get("split"), line.get("loss")) for line in lines]
    return weights, result["valid"], result["test"], result["steps"], logged, (run / "checkpoint").exists()


class Trial:
    """A place for faults, with finished and interrupted runs to begin from."""

    def __init__(self, root: Path, quick: bool, seed: int = 0) -> None:
        self.root, self.quick, self.random, self.number = root, quick, random.Random(seed), 0
        self.whole, self.half, self.plan = root / "whole", root / "half", root / "plan"
        begin = time.monotonic()
        self._must(call(*train(str(self.whole))))
        self.seconds = time.monotonic() - begin
        self.bits = bits(self.whole)
        self.operations = count_operations(*train(str(self.fresh())))
        # a run that was ended when it had states, which is no matter of luck: before the last operations
        operations = Operations(at=int(0.75 * self.operations))
        assert call(*train(str(self.half)), prepare=operations.watch).code == KILLED
        assert len(list((self.half / "checkpoint").glob("step-*"))) >= 1
        self._must(call(*compare(str(self.plan))))

    def _must(self, ending: Ending) -> None:
        if ending.code != 0:
            raise RuntimeError(f"an undisturbed command ended with {ending.code}: {ending.text}")

    def fresh(self) -> Path:
        """A name for a folder that is not there."""
        self.number += 1
        return self.root / f"trial-{self.number}"

    def operated(self) -> Path:
        """A run of three layers after a surgery."""
        run = self.root / "operated"
        if not run.exists():
            self._must(call("train", "digits", *TINY[:2], "--model.depth=3", *STEPS, "--out", str(run)))
            self._must(call(*surgery(run)))
        return run

    def some(self, full: int) -> int:
        """How many to try of what could be tried without end."""
        return max(4, full // 10) if self.quick else full

    def continued(self, out: Path, what: str) -> Outcome:
        """The same command again must end with the same bits."""
        ending = call(*train(str(out)))
        if ending.code != 0:
            return Outcome("lost", f"{what}: then {ending.code}: {ending.text[-300:]}")
        same = bits(out) == self.bits
        left = [path.name for path in out.iterdir() if path.name.endswith(".part")]
        shutil.rmtree(out)
        return Outcome("survived" if same and not left else "silent", f"{what}: other bits {left}")


def killed_before_each_operation(trial: Trial) -> Iterator[Outcome]:
    step = 4 if trial.quick else 1
    for at in range(1, trial.operations + 1, step):
        out = trial.fresh()
        ending = call(*train(str(out)), prepare=Operations(at).watch)
        if ending.code not in (KILLED, 0):
            yield Outcome("lost", f"killed before operation {at}: {ending}")
        yield trial.continued(out, f"killed before operation {at}")


def killed_at_random(trial: Trial) -> Iterator[Outcome]:
    for _ in range(trial.some(160)):
        out, when = trial.fresh(), trial.random.uniform(0, 1.2 * trial.seconds)
        child = Child(list(train(str(out))))
        time.sleep(when)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.number, signal.SIGKILL)
        child.end()
        yield trial.continued(out, f"killed after {when:.3f} s")


def signalled(trial: Trial) -> Iterator[Outcome]:
    """SIGTERM and SIGINT: codes 143 and 130, with the state saved if there was a training."""
    for turn in range(trial.some(160)):
        number = (signal.SIGTERM, signal.SIGINT)[turn % 2]
        out, when = trial.fresh(), trial.random.uniform(0, 1.1 * trial.seconds)
        child = Child(list(train(str(out))))
        time.sleep(when)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.number, number)
        ending = child.end()
        if ending.code not in (0, 128 + number, -number) or "Traceback" in ending.text:
            yield Outcome("lost", f"signal {number} after {when:.3f} s: {ending}")
        yield trial.continued(out, f"signal {number} after {when:.3f} s")


def compare_killed(trial: Trial) -> Iterator[Outcome]:
    wanted = {path.parent.parent.name + path.parent.name: bits(path.parent) for path in _results(trial.plan)}
    operations = count_operations(*compare(str(trial.fresh())))
    for turn in range(trial.some(60)):
        out, at = trial.fresh(), 1 + int((turn + trial.random.random()) * operations / trial.some(60))
        call(*compare(str(out)), prepare=Operations(at).watch)
        ending = call(*compare(str(out)))
        if ending.code != 0:
            yield Outcome("lost", f"compare killed before {at}: then {ending.code}: {ending.text[-300:]}")
            continue
        found = {path.parent.parent.name + path.parent.name: bits(path.parent) for path in _results(out)}
        whole = (out / "report.html").is_file() and (out / "table.csv").is_file()
        yield Outcome("survived" if found == wanted and whole else "silent", f"compare killed before {at}: differs")
        shutil.rmtree(out)


def _results(root: Path) -> list[Path]:
    return sorted(root.glob("*/seed-*/result.json"))


def disk_fails(trial: Trial) -> Iterator[Outcome]:
    """From some operation on the disk is full, read-only or broken; later it is not."""
    for error in (errno.ENOSPC, errno.EROFS, errno.EIO):
        for at in range(1, trial.operations + 1, 16 if trial.quick else 2):
            out = trial.fresh()
            ending = call(*train(str(out)), prepare=Operations(at, error).watch)
            if not ending.sentence and ending.code != 0:
                yield Outcome("lost", f"{os.strerror(error)} from operation {at} on: {ending}")
            yield trial.continued(out, f"{os.strerror(error)} from operation {at} on")


def files_cannot_grow(trial: Trial) -> Iterator[Outcome]:
    """The system itself refuses what is longer than a limit (RLIMIT_FSIZE), in the middle of a write."""
    for turn in range(trial.some(48)):
        limit = int(100 * 1.25**turn) if not trial.quick else int(100 * 3**turn)

        def prepare(limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

        out = trial.fresh()
        ending = call(*train(str(out)), prepare=prepare)
        if ending.code not in (0, 2):
            yield Outcome("lost", f"files of at most {limit} bytes: {ending}")
        yield trial.continued(out, f"files of at most {limit} bytes")


def two_at_once(trial: Trial) -> Iterator[Outcome]:
    """A second training in the folder, with other settings, is refused and changes nothing."""
    others = (["--train.learning_rate=0.5"], ["--overwrite"], ["--architecture=rk4"], [])
    for turn in range(trial.some(40)):
        out = trial.fresh()
        first = Child(list(train(str(out))))
        time.sleep(trial.random.uniform(0, 0.9 * trial.seconds))
        second = Child(list(train(str(out), *others[turn % 4])))
        ends = first.end(), second.end()
        fine = all(end.code in (0, 2) and "Traceback" not in end.text for end in ends)
        if not fine:
            yield Outcome("lost", f"two at once: {ends}")
        elif ends[0].code == 0 and ends[1].code == 2:
            yield Outcome("survived" if bits(out) == trial.bits else "silent", "two at once: other bits")
        else:  # the second came before or after the first: each is whole, or was refused
            yield Outcome("survived" if 0 in (ends[0].code, ends[1].code) else "lost", f"two at once: {ends}")
        shutil.rmtree(out, ignore_errors=True)


def not_a_number(trial: Trial) -> Iterator[Outcome]:
    """A weight becomes NaN in the middle of a training: a sentence, and what was kept can be gone on from."""
    for at in range(1, 7):

        def prepare(at: int = at) -> None:
            counted = iter(range(1, 100))
            step = AdamW.step

            def poisoned(self: Any, *words: Any) -> Any:
                done = step(self, *words)
                if next(counted) == at:
                    self.param_groups[0]["params"][0].data.view(-1)[0] = float("nan")
                return done

            AdamW.step = poisoned  # ty: ignore

        out = trial.fresh()
        ending = call(*train(str(out)), prepare=prepare)
        if not ending.sentence:
            yield Outcome("silent" if ending.code == 0 else "lost", f"NaN at step {at}: {ending}")
            continue
        yield trial.continued(out, f"NaN at step {at}")


# damaged files


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def tear(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content))])


def zero(path: Path, chance: random.Random) -> None:
    """A hole, as a file system may leave it after a power cut."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    content[at : at + 512] = bytes(len(content[at : at + 512]))
    path.write_bytes(content)


def swap(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


DAMAGE: tuple[Callable[[Path, random.Random], None], ...] = (flip, tear, zero, swap)


def damaged_runs(trial: Trial) -> Iterator[Outcome]:
    """Each file of a finished run × each damage × each verb that reads it: the same answer, or a sentence."""
    picture = _picture(trial)
    verbs: dict[str, Callable[[Path], tuple[str, ...]]] = {
        "predict": lambda run: ("predict", str(run), str(picture)),
        "evaluate": lambda run: ("evaluate", str(run)),
        "train": lambda run: train(str(run)),
    }
    for verb, words in verbs.items():
        sound = _without(call(*words(trial.whole)).text, trial.whole)
        for name in ("config.json", "task.json", "model.safetensors", "run.json", "result.json", "metrics.jsonl"):
            for damage in DAMAGE:
                for _ in range(1 if trial.quick else 8):
                    yield _asked(trial, words, name, damage, sound, verb)


def _asked(
    trial: Trial, words: Callable[[Path], tuple[str, ...]], name: str, damage: Any, sound: str, verb: str
) -> Outcome:
    run = Path(shutil.copytree(trial.whole, trial.fresh()))
    damage(run / name, trial.random)
    ending = call(*words(run))
    what = f"{verb} with {damage.__name__} of {name}"
    text = _without(ending.text, run)
    shutil.rmtree(run)
    if ending.sentence or (ending.code == 0 and text.strip() == sound.strip()):
        return Outcome("survived", what)
    return Outcome("silent" if ending.code == 0 else "lost", f"{what}: {ending}")


def _without(text: str, run: Path) -> str:
    """What was printed, but for the name of the run, whole or beneath a folder above it."""
    return re.sub(rf"\S*{re.escape(run.name)}", "", text)


def damaged_states(trial: Trial) -> Iterator[Outcome]:
    """Each file of an interrupted run: the same bits in the end, or a sentence."""
    last = max((trial.half / "checkpoint").glob("step-*"))
    names = ["run.json", "task.json", "metrics.jsonl", *(str(p.relative_to(trial.half)) for p in last.iterdir())]
    for name in names:
        if not (trial.half / name).is_file():
            continue
        for damage in DAMAGE:
            for _ in range(1 if trial.quick else 10):
                run = Path(shutil.copytree(trial.half, trial.fresh()))
                damage(run / name, trial.random)
                ending = call(*train(str(run)))
                what = f"going on after {damage.__name__} of {name}"
                if ending.sentence:
                    yield Outcome("survived", what)
                elif ending.code != 0:
                    yield Outcome("lost", f"{what}: {ending}")
                else:
                    # What was logged before has no checksum: lines that cannot be read are gone, weights are not.
                    same = bits(run)[:4] == trial.bits[:4]
                    yield Outcome("survived" if same else "silent", f"{what}: other bits")
                shutil.rmtree(run)


def damaged_comparisons(trial: Trial) -> Iterator[Outcome]:
    """Each file that a report reads: the same table, or what was left out is named."""
    sound = call("report", str(trial.plan), "--format", "csv").text.replace(str(trial.plan), "")
    run = "sequential/seed-0"
    for name in ("comparison.json", f"{run}/run.json", f"{run}/result.json", f"{run}/metrics.jsonl"):
        for damage in DAMAGE:
            for _ in range(1 if trial.quick else 6):
                out = Path(shutil.copytree(trial.plan, trial.fresh()))
                damage(out / name, trial.random)
                ending = call("report", str(out), "--format", "csv")
                what = f"report with {damage.__name__} of {name}"
                named = Path(name).name in ending.text and "odeum: " in ending.text
                same = ending.text.replace(str(out), "") == sound
                if "Traceback" in ending.text or ending.code not in (0, 2):
                    yield Outcome("lost", f"{what}: {ending}")
                else:
                    yield Outcome("survived" if named or same else "silent", f"{what}: {ending}")
                shutil.rmtree(out)


class Trap:
    """Whoever unpickles this makes a folder."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.mark,)


def hostile_folders(trial: Trial) -> Iterator[Outcome]:
    """Pickles where files should be, and descriptions that ask for the impossible: a sentence, at once."""
    mark = trial.root / "executed"
    names = ["config.json", "task.json", "model.safetensors", "run.json", "result.json", "tokenizer.json"]
    for name in names:
        run = Path(shutil.copytree(trial.whole, trial.fresh()))
        (run / name).write_bytes(pickle.dumps(Trap(str(mark))))
        for words in (("predict", str(run), "x.png"), ("evaluate", str(run)), train(str(run))):
            ending = call(*words)
            fine = ending.code in (0, 2) and "Traceback" not in ending.text and not mark.exists()
            yield Outcome("survived" if fine else "lost", f"{words[0]} with a pickle as {name}: {ending}")
        shutil.rmtree(run)
    for name in ("state.json", "tensors.safetensors", "shards/.metadata"):
        run = Path(shutil.copytree(trial.half, trial.fresh()))
        for state in (run / "checkpoint").glob("step-*"):
            (state / name).parent.mkdir(exist_ok=True)
            (state / "tensors.safetensors").unlink()
            (state / name).write_bytes(pickle.dumps(Trap(str(mark))))
        ending = call(*train(str(run)))
        fine = ending.code in (0, 2) and "Traceback" not in ending.text and not mark.exists()
        yield Outcome("survived" if fine else "lost", f"going on from a pickle as {name}: {ending}")
        shutil.rmtree(run)
    for key, value in (
        ("width", 2**40),
        ("depth", 10**6),
        ("classes", 10**9),
        ("hidden", 10**9),
        ("image_size", 10**6),
    ):
        run = Path(shutil.copytree(trial.whole, trial.fresh()))
        config = read_json(run / "config.json")
        config["model"][key] = value
        write_json(run / "config.json", config)
        ending = call("predict", str(run), "x.png", limit=60)
        yield Outcome("survived" if ending.sentence else "lost", f"{key} {value}: {ending}")
        shutil.rmtree(run)


# folders that move, files of two runs, outputs that are cut, files that are bombs


def other_run(trial: Trial) -> tuple[Path, Path, tuple[Any, ...]]:
    """A run with another seed, finished and in the middle, and its bits."""
    whole, half = trial.root / "other", trial.root / "other-half"
    if not whole.exists():
        trial._must(call(*train(str(whole), "--seed=1")))
        operations = Operations(at=int(0.75 * trial.operations))
        assert call(*train(str(half), "--seed=1"), prepare=operations.watch).code == KILLED
    return whole, half, bits(whole)


def moved_folders(trial: Trial) -> Iterator[Outcome]:
    """A training is paused, its folder moved, removed or replaced by another run, and the training goes on."""
    whole, half, theirs = other_run(trial)
    fates = ("moved", "removed", "replaced by a finished run", "replaced by an unfinished run", "relinked")
    for turn in range(trial.some(60)):
        fate, out, away = fates[turn % len(fates)], trial.fresh(), trial.fresh()
        target = out
        if fate == "relinked":
            target = trial.fresh()
            target.mkdir()
            out.symlink_to(target)
        child = Child(list(train(str(out))))
        time.sleep(trial.random.uniform(0.1, 0.9) * trial.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.number, signal.SIGSTOP)
        began = out.exists() and (out / "run.json").exists()
        if fate == "removed":
            shutil.rmtree(out, ignore_errors=True)
        elif fate == "relinked":
            out.unlink()
            out.symlink_to(shutil.copytree(whole, trial.fresh()))
            away = target
        elif began:
            out.rename(away)
        if fate.startswith("replaced"):
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(whole if "a finished" in fate else half, out)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.number, signal.SIGCONT)
        ending, what = child.end(), f"{fate} after it {'began' if began else 'was started'}"
        if ending.code not in (0, 2) or "Traceback" in ending.text:
            yield Outcome("lost", f"{what}: {ending}")
        elif fate == "relinked" or fate.startswith(
            "replaced"
        ):  # what took its name is as it was, or goes on to its bits
            again = call(*train(str(out), "--seed=1"))
            same = again.code == 0 and bits(out) == theirs
            ours = not any(away.glob("run.json")) or (call(*train(str(away))).code == 0 and bits(away) == trial.bits)
            yield Outcome("survived" if same and ours else "silent", f"{what}: {ending} {again}")
        elif fate == "moved" and away.exists():
            yield trial.continued(away, what)
        else:
            again = call(*train(str(out)))
            same = again.code == 0 and bits(out) == trial.bits
            yield Outcome("survived" if same else "silent", f"{what}: {ending} {again}")
        for path in (out, away, target):
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def mixed_files(trial: Trial) -> Iterator[Outcome]:
    """One file, or one folder, of another seed or of an earlier state: refused, or the same bits in the end."""
    whole, half, _ = other_run(trial)
    picture = _picture(trial)
    names = ("run.json", "config.json", "task.json", "model.safetensors", "result.json", "metrics.jsonl")
    for name in names:
        for verb in ("predict", "evaluate", "train", "report"):
            run = Path(shutil.copytree(trial.whole, trial.fresh()))
            sound = {"predict": ("predict", str(run), str(picture)), "train": train(str(run))}
            words = sound.get(verb, (verb, str(run), *(("--format", "csv") if verb == "report" else ())))
            before = _without(call(*words).text, run)
            shutil.copyfile(whole / name, run / name)
            ending = call(*words)
            what = f"{verb} with {name} of another seed"
            named = Path(name).name in ending.text and "another run" in ending.text
            if "Traceback" in ending.text or ending.code not in (0, 2):
                yield Outcome("lost", f"{what}: {ending}")
            else:  # a file that the verb does not read changes nothing
                same = _without(ending.text, run).strip() == before.strip()
                yield Outcome("survived" if ending.sentence or named or same else "silent", f"{what}: {ending}")
            shutil.rmtree(run)
    for name in ("checkpoint", "state.json", "tensors.safetensors", "metrics.jsonl", "task.json", "run.json", "older"):
        run = Path(shutil.copytree(trial.half, trial.fresh()))
        states = sorted((run / "checkpoint").glob("step-*"))
        if name == "checkpoint":
            shutil.rmtree(run / name)
            shutil.copytree(half / name, run / name)
        elif name == "older":
            if len(states) > 1:
                shutil.copyfile(states[0] / "tensors.safetensors", states[1] / "tensors.safetensors")
        elif (run / name).exists():
            shutil.copyfile(half / name, run / name)
        else:
            for mine, other in zip(states, sorted((half / "checkpoint").glob("step-*")), strict=False):
                shutil.copyfile(other / name, mine / name)
        ending = call(*train(str(run)))
        what = f"going on with {name} of another {'state' if name == 'older' else 'seed'}"
        same = ending.code == 0 and bits(run) == trial.bits
        word = "survived" if ending.sentence or same else "silent" if ending.code == 0 else "lost"
        yield Outcome(word, f"{what}: {ending}")
        shutil.rmtree(run)


def _picture(trial: Trial) -> Path:
    path = trial.root / "seven.png"
    if not path.exists():
        from PIL import Image

        Image.new("L", (8, 8), 90).save(path)
    return path


def signalled_outputs(trial: Trial) -> Iterator[Outcome]:
    """A signal before an operation of a verb that writes: nothing half done stays, and the same command works."""
    picture = str(_picture(trial))
    run = str(trial.whole)
    verbs: dict[str, Callable[[Path], tuple[str, ...]]] = {
        "convert": lambda out: ("convert", run, "--architecture", "parallel", "--out", str(out / "new")),
        "surgery --save": lambda out: (*surgery(deeper), "--row", "1", "--save", str(out / "new")),
        "export --to hf": lambda out: ("export", run, str(out / "new"), "--to", "hf"),
        "predict --out .csv": lambda out: ("predict", run, *[picture] * 3, "--out", str(out / "new.csv")),
        "predict --out .jsonl": lambda out: ("predict", run, *[picture] * 3, "--out", str(out / "new.jsonl")),
    }
    deeper = trial.operated()  # its measurements are kept, so that later surgeries take as many operations
    for verb, words in verbs.items():
        (out := trial.fresh()).mkdir()
        operations = count_operations(*words(out))
        sound = _contents(out)
        count = min(operations, 4 if trial.quick else 24)
        for turn in range(count):
            number = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)[turn % 3]
            at = 1 + int((turn + trial.random.random()) * operations / count)
            (out := trial.fresh()).mkdir()
            ending = call(*words(out), prepare=Operations(at, number=number).watch)
            left, what = _contents(out), f"{verb}: signal {number} before operation {at}"
            whole = left == sound  # the signal came when all was done
            again = ending if whole else call(*words(out))
            if ending.code not in (0, 128 + number) or "Traceback" in ending.text or (again.code != 0 and not whole):
                yield Outcome("lost", f"{what}: {ending} {again}")
            else:
                same = (whole or not left) and _contents(out) == sound
                yield Outcome("survived" if same else "silent", f"{what}: left {sorted(left)}")
            shutil.rmtree(out)


def surgery(run: Path) -> tuple[str, ...]:
    """The command that is disturbed."""
    return ("surgery", str(run), "--edits", "skip,share", "--screen", "1", "--format", "json")


def _confirmed(ending: Ending) -> list[Any]:
    """What a surgery found, without times."""
    rows = json.loads(ending.text[ending.text.index("{") : ending.text.rindex("}") + 1])["rows"]
    return [{key: value for key, value in row.items() if not key.startswith("time")} for row in rows]


def surgery_killed(trial: Trial) -> Iterator[Outcome]:
    """Killed before an operation, the same command measures what is left and finds the same at the same look."""
    whole = trial.operated()
    sound = _confirmed(call(*surgery(whole)))
    fresh = Path(shutil.copytree(whole, trial.fresh(), ignore=shutil.ignore_patterns("surgery")))
    operations = count_operations(*surgery(Path(shutil.copytree(fresh, trial.fresh()))))
    for at in range(1, operations + 1, max(1, operations // trial.some(60))):
        run = Path(shutil.copytree(fresh, trial.fresh()))
        killed = call(*surgery(run), prepare=Operations(at).watch)
        again, what = call(*surgery(run)), f"surgery killed before operation {at}"
        if killed.code not in (KILLED, 0) or again.code != 0:
            yield Outcome("lost", f"{what}: {killed} {again}")
        else:
            yield Outcome("survived" if _confirmed(again) == sound else "silent", f"{what}: {again}")
        shutil.rmtree(run)


def damaged_surgery(trial: Trial) -> Iterator[Outcome]:
    """Each file that a surgery keeps × each damage: the same result, or a message that names the file."""
    whole = trial.operated()
    sound = _confirmed(call(*surgery(whole)))
    files = sorted(path.relative_to(whole) for path in (whole / "surgery").rglob("*") if path.is_file())
    for name in files[:: 3 if trial.quick else 1]:
        for damage in DAMAGE:
            run = Path(shutil.copytree(whole, trial.fresh()))
            damage(run / name, trial.random)
            ending, what = call(*surgery(run)), f"surgery with {damage.__name__} of {name}"
            named = name.name in ending.text and "odeum: " in ending.text
            if "Traceback" in ending.text or not (ending.code == 0 or ending.sentence):
                yield Outcome("lost", f"{what}: {ending}")
            else:
                same = ending.sentence or named or _confirmed(ending) == sound
                yield Outcome("survived" if same else "silent", f"{what}: {ending}")
            shutil.rmtree(run)


def _contents(folder: Path) -> dict[str, bytes | None]:
    """All files below a folder; of those with answers, what they say."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.suffix in (".csv", ".jsonl") else None
        for path in files
    }


def _in_memory(size: int) -> Callable[[], None]:
    """Let a child take only so much more memory than it has."""

    def prepare() -> None:
        with open("/proc/self/status", encoding="utf-8") as status:
            now = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (now + size, now + size))

    return prepare


def hostile_inputs(trial: Trial) -> Iterator[Outcome]:
    """Tokenizers and pictures that are bombs, or no such thing: one message, soon, in little memory."""
    texts = trial.root / "texts.csv"
    texts.write_text("text,label\n" + "".join(f"good day {i},a\nbad night {i},b\n" for i in range(60)))
    run = trial.root / "text-run"
    trial._must(call("train", str(texts), *TINY, "--train.steps=2", "--data.tokens=bpe", "--out", str(run)))
    plain = json.loads((run / "tokenizer.json").read_text())
    for name, (change, _) in BOMBS.items():
        hostile = Path(shutil.copytree(run, trial.fresh()))
        content = json.loads(json.dumps(plain))
        change(content)
        (hostile / "tokenizer.json").write_text(json.dumps(content))
        task = read_json(hostile / "task.json")
        task["files"]["tokenizer.json"] = checksum((hostile / "tokenizer.json").read_bytes())
        write_json(hostile / "task.json", task)
        ending = call("predict", str(hostile), "--text", "aaaa", prepare=_in_memory(2 << 30), limit=100)
        yield Outcome("survived" if ending.sentence else "lost", f"a tokenizer with {name}: {ending}")
        shutil.rmtree(hostile)
    for name, content in _hostile_pictures(_picture(trial).read_bytes()).items():
        path = trial.root / f"{name}.png"
        path.write_bytes(content)
        ending = call("predict", str(trial.whole), str(path), prepare=_in_memory(2 << 30), limit=60)
        yield Outcome("survived" if ending.sentence else "lost", f"a picture that is {name}: {ending}")


def _hostile_pictures(sound: bytes) -> dict[str, bytes]:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")

    def png(width: int, height: int, body: bytes) -> bytes:
        head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
        return sound[:8] + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")

    return {
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) print\n",
        "empty": b"",
        "cut": sound[: len(sound) // 2],
        "noise": random.Random(0).randbytes(500),
        "huge": png(2**31 - 1, 2**31 - 1, zlib.compress(bytes(1000))),
        "wide": png(10**9, 1, zlib.compress(bytes(1000))),
        "a bomb": png(60_000, 60_000, zlib.compress(bytes(10**8), 9)),
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
        "a pickle": pickle.dumps(Trap("/tmp/never")),
    }


FAMILIES: dict[str, Callable[[Trial], Iterator[Outcome]]] = {
    "`train` killed before a file operation": killed_before_each_operation,
    "`train` killed at a random moment": killed_at_random,
    "SIGTERM and SIGINT": signalled,
    "`compare` killed before a file operation": compare_killed,
    "disk full, read-only or broken from an operation on": disk_fails,
    "files that cannot grow (RLIMIT_FSIZE)": files_cannot_grow,
    "two trainings in one folder": two_at_once,
    "a weight becomes NaN": not_a_number,
    "files of a finished run damaged × `predict`, `evaluate`, `train`": damaged_runs,
    "files of an interrupted run damaged × `train`": damaged_states,
    "files of a comparison damaged × `report`": damaged_comparisons,
    "hostile folders": hostile_folders,
    "folders moved, removed or replaced during `train`": moved_folders,
    "files of two runs, or of two states, mixed": mixed_files,
    "`surgery` killed before a file operation": surgery_killed,
    "files of a surgery damaged × `surgery`": damaged_surgery,
    "signals in `convert`, `surgery`, `export`, `predict --out`": signalled_outputs,
    "hostile tokenizers and pictures": hostile_inputs,
}
