"""Command lines that cannot be meant: generated from the verbs, the registries and the dataclasses of the settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from corpus.case import Case, words
from odeum.lab.tasks import KINDS
from odeum.lab.train.settings import Training
from odeum.models.pretrained import NOT_OFFERED
from odeum.registry.names import ARCHITECTURES
from odeum.registry.options import Option, options

OBJECT = {"compare": "digits", "train": "digits", "evaluate": "run", "predict": "run", "report": "dir"}
OBJECT |= {"describe": "sequential", "list": "", "table": "", "export": "run out"}
"""what a verb acts on"""
ANY = {"seed", "encoding", "length_penalty", "test", "text_column", "label_column", "decoder", "device", "budget"}
"""settings of which any number, or any text, has a meaning or is judged later"""
LATER = {"cutoffs"}
"""settings that are lists"""


def verbs() -> Iterator[Case]:
    yield words("trian digits", "unknown verb 'trian'; did you mean 'train'?")
    yield words("Train digits", "unknown verb 'Train'")
    yield words("-x", "unknown verb '-x'")
    yield words("--train", "unknown verb '--train'")
    yield words("--plugin", "--plugin needs a value")
    yield Case(("",), "unknown verb ''")
    yield Case(("train digits",), "unknown verb 'train digits'")
    for verb in OBJECT:
        start = f"{verb} {OBJECT[verb]}"
        yield words(f"{start} --nonsense", "unknown option --nonsense")
        yield words(f"{start} --nonsense=3", "unknown option --nonsense")
        yield words(f"{start} -q", "unknown option -q; for a file of this name write ./-q")
        yield words(f"{verb} -v {OBJECT[verb]}", "unknown option -v")
        yield words(f"{start} --plugin", "--plugin needs a value")
        yield words(f"{start} --plugin --debug0", "--plugin needs a value")
        if verb not in ("train", "export"):
            yield words(f"{start} --format xml", "unknown format 'xml'")
            yield words(f"{start} --format", "--format needs a value")
            yield words(f"{start} --formt json", "unknown option --formt; did you mean --format?")
        if OBJECT[verb]:
            yield words(f"{verb}", "missing: ")
        if verb in ("evaluate", "predict"):
            yield words(f"{verb} nowhere", "nowhere")
            yield words(f"{verb} nowhere --steps x", "--steps is 'x' but must be a number")
            yield words(f"{verb} nowhere --solver", "--solver needs a value")
            yield words(f"{verb} .", "")
        if verb in ("compare", "train"):
            out = f"{verb} digits{' --architectures sequential' if verb == 'compare' else ''} --out"
            yield words(f"{verb} nowhere", "nowhere")
            yield words(f"{verb} digits digits", "digits")
            yield words(f"{verb} digts", "digts")
            yield words(f"{verb} ~nobody-of-this-name/data", "refers to the home directory of an unknown user")
            yield words(f"{verb} digits --kind nonsense", "unknown kind of data 'nonsense'")
            yield words(f"{verb} digits --kind", "--kind needs a value")
            yield words(f"{verb} digits --config", "--config needs a value")
            yield words(f"{verb} digits --config nowhere.yaml", "there is no configuration file 'nowhere.yaml'")
            yield words(f"{verb} digits --model nonsense", "unknown model 'nonsense'")
            yield words(f"{verb} digits --model", "--model needs a value")
            yield words(f"{verb} digits --model.classes 5", "--model.classes is decided by the data")
            yield words(f"{verb} digits --model.image_size 5", "--data.size may be what you need")
            yield words(f"{verb} digits --train.steps 3 --train.epochs 3", "both end the training")
            yield words(f"{out}=", "--out '' is not a valid directory")
            yield Case((*out.split(), "a\0b"), "is not a valid directory")
            yield words(f"{out} {'x' * 300}", " characters)': File name too long")
            yield words(f"{out} /dev/null", "'/dev/null' is a file")
            yield words(f"{out} /dev/null/run", "'/dev/null' is a file")
            yield words(f"{out} /proc/none", "cannot create the directory '/proc/none'")
    yield words("table zhong2023/table1", "unknown table 'zhong2023/table1'")
    yield words("export run", "missing: directory")
    yield words("export nowhere out", "there is no run 'nowhere'")
    yield words("export nowhere out --to onx", "onx")
    yield words("evaluate nowhere --repeats x", "--repeats is 'x' but must be an integer")
    yield words("evaluate nowhere --exit x", "--exit is 'x' but must be a number")
    yield words("describe sequential parallel", "unexpected argument 'parallel'")
    yield words("list digits", "unexpected argument 'digits'")
    yield words("report a b", "there is no folder 'a'")
    yield words("evaluate a b", "there is no run 'a'")
    yield words("train digits --seed 1.5", "--seed is '1.5' but must be an integer")
    yield words("train digits --seed 99999999999999999999999", "the seed must be a number from 0")
    yield words("train digits --resume_from nowhere", "'nowhere' is not a checkpoint")
    yield words("train digits --resume_from .", "'.' is not a checkpoint")
    yield words("train --architecture rk4", "missing: the data")
    yield words("compare digits --seeds 0", "at least one seed")
    yield words("compare digits --seeds -3", "-3")
    yield words("compare digits --seeds many", "many")
    yield words("compare digits --seeds 100000000", "a comparison takes at most 10,000 seeds")
    yield words("compare digits --jobs 0", "--jobs must be auto or a positive number of parallel runs, not '0'")
    yield words("compare digits --jobs=-1", "--jobs must be auto or a positive number of parallel runs, not '-1'")
    yield words("compare digits --sizes 1", "--sizes: 1 size cannot show a trend; use 3 to 12")
    yield words("compare digits --sizes 16x1,32x2", "--sizes: 2 sizes cannot show a trend; use 3 to 12")
    yield words("compare digits --sizes 16x1,33x2,48x3 --model.width 32 --model.heads 2", "must be a multiple of")
    yield words("compare digits --sizes 16x1,48x3,32x2 --model.width 32 --model.heads 2", "32x2 is not larger than")
    yield words("compare digits --sizes big", "--sizes 'big' is not a size; write width x depth")
    yield words("compare digits --sizes 3 --match steps", "--sizes compares at equal time, not equal steps")
    yield words("compare digits --sizes 3 --budget 1m", "instead of budget")
    yield words("compare digits --sizes 3 --baseline none", "--sizes measures gains over a baseline")
    yield words("compare digits --tune 1", "--tune 1 is too few runs per architecture")
    yield words("compare digits --tune-over learning_rate", "needs a number of tuning runs, such as --tune 3")
    yield words("compare digits --tune 3 --tune-over rate", "--tune-over 'rate' is not a setting that can be tuned")
    yield words("compare digits --match tim", "unknown match 'tim'")
    yield words("compare digits --budget soon", "the budget 'soon' must be a positive time")
    yield words("compare digits --baseline rk4 --architectures sequential,parallel", "the baseline 'rk4' must be one")
    yield words("compare digits --baseline nonsense", "unknown architecture 'nonsense'")
    yield words("compare digits --architectures ,", "at least one architecture")
    yield words("compare digits --architectures sequential,nonsense", "unknown architecture 'nonsense'")
    yield words("compare digits --architectures sequential;parallel", "unknown architecture 'sequential;parallel'")


def a_file(folder: Path) -> None:
    (folder / "file").write_text("not a folder\n")


def advice() -> Iterator[Case]:
    """What was answered by advice that leads nowhere, and what a machine cannot do: before any work, also dry."""
    yield words("compare digits --archz rk4", "did you mean --architectures?")
    yield words("train digits --archz rk4", "did you mean --architecture?")
    yield words("compare digits --macz 3", "did you mean --train.macs?")
    yield words("compare digits --learn 3", "did you mean --train.learning_rate?")
    blanks = "separate architectures by commas without blanks: --architectures sequential,parallel"
    yield words("compare digits --architectures sequential parallel", blanks)
    yield words("compare digits --architectures sequential parallel --dry-run", blanks)
    yield words("help comapre", "unknown verb 'comapre'; did you mean 'compare'?")
    yield words("import ./bert-base-uncased", "a name of the hub such as openai-community/gpt2")
    yield words("import a/b/c", "a name of the hub such as openai-community/gpt2")
    yield words("train digits --architecture sequential,parallel", "--architecture takes one architecture, not 2")
    yield words("train digits --train.budget 3 hours", "'digits' is a named set and cannot be combined with 'hours'")
    yield words("compare digits —seeds 3", "cannot be combined with '—seeds'; options begin with two hyphens (--)")
    yield words("compare digits --quiet false", "'digits' is a named set and cannot be combined with 'false'")
    yield words("compare digits --dry-run=maybe", "--dry-run takes no value, got 'maybe'")
    yield words("compare DIGITS", "did you mean 'digits'?")
    yield words("compare https://example.org/data.csv", "is an address, not a path")
    yield words("compare s3://bucket/data", "is an address, not a path")
    yield words("compare digits --tune 3 --tune-over dropout", "give a positive dropout around which to tune")
    yield words("compare digits --train.warmup 99 --train.steps 9", "warmup 99 is longer than the training of 9 steps")
    yield words("report nowhere", "there is no folder 'nowhere'")
    yield words("report ./file", "'file' is a file, not the folder of a comparison", a_file)
    yield words("league nowhere", "there is no plan file 'nowhere'")
    yield words("league /dev/null", "cannot read the plan '/dev/null': not a regular file")
    yield words("table zhong2022/table1 --results /dev/null", "--results /dev/null is a file")
    yield words(
        "table zhong2022/table1 --seeds 1 --out /dev/null/runs",
        "is a file, so it cannot contain runs; give another --out",
    )
    for dry in ("", " --dry-run"):
        yield words(f"compare digits --on kubernetes{dry}", "unknown launcher 'kubernetes'; known: ray, slurm")
        yield words(f"compare digits --jobs 1000{dry}", "--jobs 1000 is more than")
        yield words(f"compare digits --margin 100{dry}", "in points and no difference is larger")
        for verb in ("compare", "train"):
            yield words(f"{verb} digits --out file/runs{dry}", "'file' is a file, so it cannot contain runs", a_file)
        for verb in ("compare", "train"):
            yield words(f"{verb} digits --train.device cuda:99{dry}", "device 'cuda:99' is not available here")
            yield words(f"{verb} digits --device nonsense{dry}", "device 'nonsense' is not available here")
            yield words(f"{verb} digits --track nonsense{dry}", "unknown tracker 'nonsense'")


def spellings() -> Iterator[Case]:
    """Of architectures: every option of every architecture with a value that it cannot have."""
    for bad in ("", "rk-4", "rk5", "sequentail", "sequential ", "parallel,", "a:b", ":", "=", "rk4=2", "∂"):
        if bad.strip(" ,") != bad:
            continue
        what = "unknown architecture" if bad.strip(":") else "an architecture is missing"
        yield Case(("describe", bad), what, title="spelled:")
    yield words("describe rk4:steps", "should read key=value")
    yield words("describe rk4:=2", "unknown option of rk4 ''")
    yield words("describe rk4:steps=", "steps of rk4 must be a positive integer, got ''")
    yield words("describe rk4:steps=2,steps=2", "gives steps of rk4 twice")
    yield words("describe rk4:step=2", "unknown option of rk4 'step'; did you mean 'steps'?")
    yield words("describe transevolve:full-9", "unknown variant of transevolve 'full-9'")
    yield words("describe rk4:steps=1000000000", "more than the limit")
    yield words("describe rk4:schedule=0-5/x", "'x' in schedule=0-5/x must be a layer")
    yield words("describe rk4:schedule=0-99999999999", "but the depth is 12 layers; they must be equal")
    yield words("describe parallel*6+rk4*2", "is 8 layers, but the depth is 12; they must be equal")
    yield words("describe parallel*6+rk5*6", "unknown architecture 'rk5'")
    yield words("describe parallel*x+rk4", "must end in a number of layers")
    yield words("describe looped:prelude=9,coda=9", "prelude=9 and coda=9 leave none of the 12 layers")
    yield words("describe looped:inject=none,through=2", "through=2 cuts the gradient of the layers before the loop")
    yield words("describe looped:method=leapfrog", "an injection or an exit cannot be combined with leapfrog")
    yield words("describe looped:repeats=1000000000", "repeats=1000000000 would make")
    yield words("describe pcformer:method=strang", "pcformer needs a Runge–Kutta method, not 'strang'")
    yield words("describe yurii:steps=2", "yurii makes one step per layer")
    yield words("describe mhc:mixing=permutations,streams=9", "give streams=5 at most, or mixing=sinkhorn")
    yield words("describe parallel*6++rk4*6", "an architecture is missing")
    yield words("describe sequential+", "an architecture is missing")
    yield words("describe :steps=2", "an architecture is missing")
    yield words("compare digits --architectures sequential,parallel*6+rk4*2", "is 8 layers, but the depth is")
    seen, tried = set(), []
    for name, base in ARCHITECTURES.items():
        if type(base) in seen:
            continue
        seen.add(type(base))
        yield words(f"describe {name}:nonsense=1", f"unknown option of {name} 'nonsense'")
        for option in options(type(base)).values():
            for case in _of_option(name, option):
                yield case._replace(again=option in tried)
            tried.append(option)


def _of_option(name: str, option: Option) -> Iterator[Case]:
    if option.hint is not str and str not in get_args(option.hint):
        yield words(f"describe {name}:{option.name}=wrong", f"{option.name} of {name}")
    if int in (option.hint, *get_args(option.hint)):
        yield words(f"describe {name}:{option.name}=1.5", f"{option.name} of {name} must be {option.expected}, got")
        yield words(f"describe {name}:{option.name}=-7", f"{option.name} of {name}")
    if float in (option.hint, *get_args(option.hint)):
        yield words(f"describe {name}:{option.name}=nan", f"{option.name} of {name}")
        yield words(f"describe {name}:{option.name}=inf", f"{option.name} of {name}")


def settings() -> Iterator[Case]:
    """Each setting of the training, of each kind's data and of each kind's model: mistyped, empty, wrong, too small."""
    yield from _section("train digits", "train", Training, set())
    seen: dict[str, set[str]] = {"data": set(), "model": set()}  # what kinds share is tried once
    for kind in KINDS.values():
        if not kind.sets or not kind.model.presets:
            continue
        yield from _section(f"train {kind.sets[0]}", "data", kind.options, seen["data"])
        preset = next(iter(kind.model.presets))
        yield from _section(f"describe sequential --model {preset}", "model", kind.settings, seen["model"])


def _section(start: str, name: str, settings: Any, seen: set[str]) -> Iterator[Case]:
    hints, types = get_type_hints(settings), set()
    for field in dataclasses.fields(settings):
        if field.name in NOT_OFFERED or (field.name in seen and name == "model"):
            continue
        seen.add(field.name)
        option = f"--{name}.{field.name}"
        inner = [hint for hint in (get_args(hints[field.name]) or [hints[field.name]]) if hint is not type(None)]
        typed = Literal if get_origin(hints[field.name]) is Literal else str(hints[field.name])
        for case in _of_type(start, option, inner[0], typed is Literal, field.name in LATER):
            yield case._replace(again=typed in types)
        types.add(typed)
        if field.name in LATER:
            continue
        if inner[0] in (int, float) and field.name not in ANY:
            yield words(f"{start} {option}=-7", field.name)
        if inner[0] is float:
            yield words(f"{start} {option} nan", field.name)
            yield words(f"{start} {option} inf", field.name)


def _of_type(start: str, option: str, inner: Any, named: bool, later: bool) -> Iterator[Case]:
    """What is judged by the type alone, before anyone asks what the setting means."""
    yield words(f"{start} {option}", f"{option} needs a value")
    yield words(f"{start} {option}x=1", f"unknown option {option}x; did you mean {option.partition('.')[0]}.")
    if (inner in (int, float, bool) or named) and not later:
        yield words(f"{start} {option} wrong", f"{option} is 'wrong' but must be")
    if inner is int and not later:
        yield words(f"{start} {option} 1.5", f"{option} is '1.5' but must be an integer")


TRAIN: list[tuple[str, str]] = [
    ("--train.batch_size 0", "batch_size of the training must be a positive integer, got 0"),
    ("--train.epochs -1", "epochs of the training must be a positive number, got -1.0"),
    ("--train.steps 0", "steps of the training must be a positive integer, got 0"),
    ("--train.warmup -1", "warmup of the training must be a non-negative number, got -1.0"),
    ("--train.label_smoothing 1", "label_smoothing of the training must be a number from 0 to below 1, got 1.0"),
    ("--train.budget 0s", "the budget '0s' must be a positive time such as 90s, 10m or 2h"),
    ("--train.budget -5s", "--train.budget needs a value; write --train.budget=VALUE if it begins with -"),
    ("--train.steps abc", "--train.steps is 'abc' but must be an integer, or null"),
    ("--learning_rat 1", "unknown option --learning_rat; did you mean --train.learning_rate?"),
    ("--train.learning 1", "unknown option --train.learning; did you mean --train.learning_rate?"),
    ("--print_confi", "did you mean --print_config?"),
    ("--seed -1", "the seed must be a number from 0 to 2⁶³ − 1, not -1"),
    ("--model.width 0", "width must be a positive integer, got 0"),
    ("--model.patch_size 0", "patch_size must be a positive integer, got 0"),
    ("--train.schedule cosin", "must be one of cosine"),
    ("--train.lr 0.1", "did you mean --train.learning_rate? See `odeum train --help`"),
    ("--train.nothing 0.1", "unknown option --train.nothing; see `odeum train --help`"),
]
"""settings of `odeum train digits`, and the whole message"""
DESCRIBE: list[tuple[str, str]] = [
    ("paralel", "did you mean 'parallel'"),
    ("parallel:independant=6", "did you mean 'independent'"),
    ("parallel:independent=five", "must be a positive integer"),
    ("parallel:independent=5", "1, 2, 3, 4, 6, 12"),
    ("transevolve:seed=5000000000", "seed of transevolve must be an integer from 0 to 4294967295"),
    ("parallel:norm=post", "norm=post-sum"),
    ("sequential:norm=shared", "splitting"),
    ("continuous --model.dropout 0.1", "dropout"),
    ("parallel --heads 5", "heads=5 must divide width=192; use 4 or 6"),
    ("parallel --image_size 100", "patch_size (16) must divide image_size (100)"),
    ("parallel --model deit_tny", "did you mean 'deit_tiny'"),
    ("parallel --model.widht 9", "did you mean --model.width"),
    ("parallel --classes many", "must be an integer"),
    ("parallel --format xml", "known: text, md, json"),
]
"""arguments of `odeum describe`"""
COMPARE: list[tuple[str, str]] = [
    ("--tune 2", "--tune 2 is too few runs per architecture to find an optimum; use at least 3"),
    ("--tune-over weight_decay", "--tune-over weight_decay needs a number of tuning runs, such as --tune 3"),
    ("--match foo", "unknown match 'foo'; known: time, steps, macs, params"),
    ("--architectures sequential,paralel", "did you mean 'parallel'"),
    ("--architectures sequential,continuous --model.dropout 0.1", "an adaptive solver needs a field without"),
]
"""settings of `odeum compare digits`"""


def refused_settings() -> Iterator[Case]:
    for line, fragment in TRAIN:
        yield words(f"train digits {line}", fragment)
    for line, fragment in DESCRIBE:
        yield words(f"describe {line}", fragment)
    for line, fragment in COMPARE:
        yield words(f"compare digits {line}", fragment)
    yield Case(("train", ""), "the name of the data is empty", title="an empty name:")


CASES = [*verbs(), *advice(), *spellings(), *settings(), *refused_settings()]
