"""`odeum train DATA`: one model, one run directory; the same command continues what was interrupted."""

from __future__ import annotations

from pathlib import Path

from odeum.commands.options import Parser, model_names
from odeum.commands.request import command_line, open_words, print_config, read_words
from odeum.distributed.ranks import complain, is_main, leave
from odeum.errors import OdeumError
from odeum.settings.architecture import ARCHITECTURES
from odeum.settings.spelling import parse, spell


def run(argv: list[str]) -> int:
    parser = Parser(
        "train",
        "Train one model. Each data set brings its own defaults; --print_config shows them. "
        f"--model NAME starts from one of: {model_names()}.",
    )
    parser.add_argument(
        "--architecture",
        type=str,
        default="sequential",
        help=f"such as parallel or rk4:steps=2; known: {', '.join(ARCHITECTURES)}",
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and augmentation")
    parser.add_argument("--out", type=str, default=None, help="run directory (none: runs/DATA/ARCHITECTURE/seed-N)")
    parser.add_argument("--print_config", action="store_true", help="print the whole configuration and stop")
    words = read_words(parser, argv)
    architecture = parse(words.said.get("architecture", "sequential"))

    from odeum.storage import slug
    from odeum.train import Interrupted, Job, train

    task, model, training = open_words(words)
    seed = words.said.get("seed", 0)
    if words.said.get("print_config"):
        print_config(words, task, model, training, {"architecture": spell(architecture), "seed": seed})
        return 0
    default = Path("runs") / slug(task.name) / slug(spell(architecture)) / f"seed-{seed}"
    directory = Path(words.said.get("out") or default)
    try:
        result = train(Job(task, model, architecture, training, seed, directory, command_line()))
    except Interrupted as stop:
        complain(stop)
        return leave(130)
    if not is_main():
        return 0
    if failed := result.get("failed"):
        raise OdeumError(f"the run '{directory}' failed before: {failed}; to try again, remove it")
    for split in ("valid", "test"):
        print(f"{split}: " + ", ".join(f"{name} {value:.4g}" for name, value in result[split].items()))
    print(f"run: {directory}")
    return 0
