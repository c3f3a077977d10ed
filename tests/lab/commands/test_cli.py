"""The command line as a user types it: answers, sentences for mistakes, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import odeum
from odeum.errors import notice
from odeum.lab.cli import VERBS, main
from odeum.lab.launch.worker import Event, _forward

TABLE_1 = {12: 5.544, 6: 2.875, 4: 1.985, 3: 1.540, 2: 1.095, 1: 0.650}


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


QUESTIONS = [["--help"], *([verb, "--help"] for verb in VERBS)]
ASKING = """
import contextlib, io, json, sys
from odeum.lab.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
    answers.append([code or 0, out.getvalue(), "torch" in sys.modules])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def helped() -> list[tuple[int, str, bool]]:
    """Exit code, text and whether torch is there: every help, asked for in one process."""
    done = subprocess.run(
        [sys.executable, "-c", ASKING, json.dumps(QUESTIONS)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(QUESTIONS)), ids=[" ".join(words) for words in QUESTIONS])
def test_help_does_not_import_torch(helped: list[tuple[int, str, bool]], number: int) -> None:
    code, text, imported = helped[number]
    assert code == 0 and not imported
    assert f"usage: odeum {'' if number == 0 else QUESTIONS[number][0]}".strip() in text


@pytest.mark.parametrize(
    ("independent", "millions"),
    # all six without the command line in tests/architectures/test_architectures.py
    [pytest.param(*row, marks=() if row[0] in (12, 1) else pytest.mark.slow) for row in TABLE_1.items()],
)
def test_parameters_of_zhong_table_1(capsys: pytest.CaptureFixture[str], independent: int, millions: float) -> None:
    words = [
        "describe",
        f"parallel:independent={independent}",
        "--model",
        "deit_tiny",
        "--classes",
        "100",
        "--format",
        "json",
    ]
    code, out, _ = ask(capsys, *words)
    facts = json.loads(out)
    assert code == 0
    assert round(facts["parameters"] / 1e6, 3) == millions
    assert facts["evaluations"] == 12 and facts["order"] == 1
    assert facts["equation"] == "dx/dt = G(N(x)) + F(N(x))"


def test_multiply_adds_include_attention(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(ask(capsys, "describe", "parallel", "--classes", "100", "--format", "json")[1])
    tokens, width, depth = 197, 192, 12
    linear = depth * tokens * 12 * width**2
    attention = depth * 2 * tokens**2 * width
    ends = 196 * width * 3 * 16**2 + 100 * width
    assert facts["macs"] == linear + attention + ends


@pytest.mark.parametrize(("name", "evaluations", "order"), [("rk4", 12, 4), ("rk4:steps=2", 24, 4), ("macaron", 3, 1)])
def test_evaluations_and_order(capsys: pytest.CaptureFixture[str], name: str, evaluations: int, order: int) -> None:
    facts = json.loads(ask(capsys, "describe", name, "--depth", "3", "--format", "json")[1])
    assert (facts["evaluations"], facts["order"]) == (evaluations, order)


def test_checkpointing_keeps_fewer_activations(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "vit_32", "--depth", "2", "--format", "json")
    kept = [
        json.loads(ask(capsys, "describe", name, *words)[1])["activation_memory"]
        for name in ("rk4", "rk4:gradient=checkpointed")
    ]
    assert kept[1] < kept[0] / 4


def test_the_memory_kept_is_what_a_real_forward_pass_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    """The fused kernel keeps no queries × keys weights, though the meta device runs it unfolded."""
    per_length = []
    for length in ("512", "1024"):
        words = ("--model", "language_small", "--depth", "2", "--length", length, "--format", "json")
        per_length.append(json.loads(ask(capsys, "describe", "sequential", *words)[1])["activation_memory"])
    assert per_length[1] == 2 * per_length[0]


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--model", "vit_8", "--depth", "2")
    assert "equation" in ask(capsys, "describe", "macaron", *small)[1]
    assert ask(capsys, "describe", "macaron", *small, "--format", "md")[1].startswith("| macaron |")
    table = ask(capsys, "describe", "transevolve:full-2", *small, "--format", "md")[1].splitlines()
    assert all(line.replace("\\|", "").count("|") == 3 for line in table), "a pipe inside a cell would end it"
    assert "parallel" in json.loads(ask(capsys, "list", "--format", "json")[1])["architectures"]


def test_debug_keeps_the_traceback() -> None:
    with pytest.raises(ValueError, match="paralel"):
        main(["describe", "paralel", "--debug"])


def test_an_interrupt_before_anything_has_begun_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("odeum.lab.cli.guarded", interrupted)
    assert ask(capsys, "list") == (130, "", "\nodeum: interrupted\n")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--lr 0.5 --epochs 3", {"learning_rate: 0.5", "epochs: 3.0"}),
        ("--batch-size 7 --wd=0.25", {"batch_size: 7", "weight_decay: 0.25"}),
        ("--train.batch-size=9", {"batch_size: 9"}),
        ("--width 32 --n-heads 2 --num_layers 3", {"width: 32", "heads: 2", "depth: 3"}),
        ("--architecture Transformer", {"architecture: sequential"}),
        ("--architecture RK4:steps=2", {"architecture: rk4:steps=2"}),
        ("--arch ViT --model vit", {"architecture: sequential", "width: 64"}),
        ("--model VIT-8", {"width: 64"}),
    ],
)
def test_options_and_names_as_other_tools_have_them(
    words: str, shown: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "digits", *words.split(), "--print_config"]) == 0
    assert shown <= {line.strip() for line in capsys.readouterr().out.splitlines()}


def test_several_architectures_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "digits", "--archs", "Transformer,RK4:steps=2,Parallel", "--print_config"]) == 0
    out, err = capsys.readouterr()
    assert "architectures: sequential,rk4:steps=2,parallel" in out
    assert "'Transformer' is read as the architecture sequential" in err


def test_help_of_a_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", "describe"])
    assert capsys.readouterr().out.startswith("usage: odeum describe")


@pytest.mark.parametrize("module", ["__future__", "jsonargparse"])
def test_ctrl_c_while_importing_shows_no_traceback(module: str, tmp_path: Path) -> None:
    """The signal comes from the first line of a module that the command imports: as early as our code runs."""
    started = "import os, sys; annotations = 'odeum' in sys.modules and os.kill(os.getpid(), 2)"
    (tmp_path / f"{module}.py").write_text(started)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(odeum.__file__).parent.parent}"}
    done = subprocess.run(
        [sys.executable, "-m", "odeum", "list"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (-signal.SIGINT, 130) and "Traceback" not in done.stderr, done


def test_ctrl_c_while_the_process_ends_shows_no_traceback() -> None:
    """After the verb nothing catches KeyboardInterrupt, so the signal ends the process as it ends any other."""
    ends = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), 2)); import runpy, sys; "
    ends += "sys.orig_argv[1:3] = ['-m', 'odeum']; sys.argv[:] = ['x', '--version']; runpy.run_module('odeum')"
    environment = {**os.environ, "PYTHONPATH": str(Path(odeum.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", ends], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT and done.stdout.startswith("odeum ") and not done.stderr, done


def test_a_command_for_missing_weights_names_this_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder was moved since its command was typed: the advice continues this run, not a new one elsewhere."""
    moved = tmp_path / "moved run" / "rk4" / "seed-0"
    for verb, out in (("train", moved), ("compare", tmp_path / "moved run")):
        moved.mkdir(parents=True, exist_ok=True)
        (moved / "run.json").write_text(json.dumps({"command": f"odeum {verb} digits --out runs/first --seeds 1"}))
        assert main(["evaluate", str(moved)]) == 2
        assert f"`odeum {verb} digits --seeds 1 --out '{out}'` continues it" in capsys.readouterr().err
    (moved / "result.json").write_text(json.dumps({"test": {}}))
    assert main(["evaluate", str(moved)]) == 2
    assert "is finished, but its weights model.safetensors are missing" in capsys.readouterr().err


def test_workers_pass_notices_on_and_no_source_lines() -> None:
    heard: list[Event] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _forward(heard.append)
        warnings.warn("a library's own", RuntimeWarning, stacklevel=1)
        notice("rows were left out")
    assert [(event.kind, event.content) for event in heard] == [("said", {"text": "rows were left out"})]


def test_what_was_understood_stands_before_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes with counts, where the parts came from, three examples and warnings; dry and before a training."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{'ham' if i % 4 else 'spam'},message {i % 40} of many" for i in range(160)]
    Path("sms.csv").write_text("\n".join(["label,text", *rows]))
    tiny = ["--model.width", "8", "--model.heads", "1", "--model.depth", "1", "--train.steps", "2"]
    for more in (["--dry-run"], []):
        assert main(["train", "sms.csv", *tiny, *more]) == 0
        told = capsys.readouterr().err
        for line in (
            "classes (training examples): ham 96, spam 32",
            "parts: train from 'sms.csv'; validation and test held out of the training part",
            "examples: spam | message 0 of many",
            "16 of 16 test examples are in the training part too",
            "the test part has only 16 examples: one example is worth 6.2 points of accuracy",
        ):
            assert line in told, told
