"""What is printed cannot command a terminal, and is readable in whatever encoding it has."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from odeum.lab.cli import main
from odeum.lab.terminal import degrade, fitting, guarded, plain, wrapped
from odeum.lab.train.progress import Progress

EVIL = "\x1b]0;owned\x07\x1b[2Jred\rover\u202egnp.exe\x9b31m"


END = "-- end --"
ASKING = f"""
import json, sys
from odeum.lab.cli import main
for words in json.loads(sys.argv[1]):
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code or 0
    assert code in (0, 2), words
    print({END!r}, flush=True)
"""


def ask(*commands: list[str], encoding: str) -> list[str]:
    """What each command prints, one after another in a process whose streams have this encoding."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    words = [sys.executable, "-c", ASKING, json.dumps(commands)]
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr and done.returncode == 0, done.stderr
    done.stderr.decode(encoding)
    return done.stdout.decode(encoding).split(f"{END}\n")[:-1]


def commands(text: str) -> list[str]:
    """The characters that a terminal would obey."""
    return [letter for letter in text if letter != "\n" and (ord(letter) < 32 or 127 <= ord(letter) < 160)]


def test_commands_are_shown_and_text_is_left_alone() -> None:
    assert plain("a\x1b[1mb\rc\u202ed") == "a\\u001b[1mb\\u000dc\\u202ed"
    for text in ("plain\n\tüber → 日本 🙂", "a\u200db"):  # also what joins letters
        assert plain(text) == text
    assert json.loads(f'"{plain(chr(0x202E) + chr(0x9B))}"') == "\u202e\x9b"  # JSON stays what it was


def test_names_and_sentences_cannot_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / EVIL).write_text("a\n")
    for words in (
        ["train", str(tmp_path / EVIL)],
        ["train", EVIL],
        ["describe", EVIL],
        ["predict", EVIL],
        ["train", "digits", f"--{EVIL}"],
        ["train", "digits", "--out", f"/dev/null/{EVIL}"],
        ["train", "a\nb"],
        ["train", os.fsdecode(b"a\xff")],
        [EVIL],
    ):
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert not commands(err) and not out and "\u202e" not in err and err.count("odeum: ") == 1


def test_the_streams_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with guarded():
        assert sys.stdout is not before[0]
        print(EVIL)
    assert (sys.stdout, sys.stderr) == before and not commands(capsys.readouterr().out)


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
def test_letters_that_a_terminal_does_not_have(encoding: str) -> None:
    assert degrade("x ← 2 × ½ ± 1 … “é”", "ascii") == 'x <- 2 x 1/2 +/- 1 ... "e"'
    describe = ["describe", "rk4", "--model", "vit_8", "--depth", "1"]
    commands = (["list"], describe, ["--help"], ["describe", "∂"], ["train", "--help"], [*describe, "--format", "json"])
    told = ask(*commands, encoding=encoding)
    assert len(told) == len(commands) and [bool(text) for text in told] == [True, True, True, False, True, True]
    assert "←" in json.loads(told[-1])["scheme"][0]  # nothing is lost in JSON


def test_output_that_cannot_be_written_is_a_sentence() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "odeum", "list"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        b"odeum: cannot write to standard output: No space left on device\n",
    )
    command = f"'{sys.executable}' -m odeum list >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_line_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = Progress("日本" * 9 + EVIL, stream=stream)
    progress.update(step=10**6, fraction=0.5, seconds=1e5, loss=1.0, rate=1e6, memory=2**40)
    written = stream.getvalue()
    assert written.startswith("\r\x1b[2K日本") and "\n" not in written
    assert not commands(written.removeprefix("\r\x1b[2K"))
    assert fitting("日本語", 5) == "日本" and len(written) <= 5 + 30


def test_an_end_without_a_unit_is_remarked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", "--train.budget", "10", "--print_config"]) == 0
    assert "the budget '10' has no unit and is read as seconds; write 10s, 10m or 10h" in capsys.readouterr().err


def test_sentences_are_broken_between_words_at_the_edge_of_a_terminal() -> None:
    """A pseudo-terminal of 40 columns: no line is longer, and no word is cut."""
    import pty

    sentence = "a sentence of many words that is longer than the terminal is wide " * 3
    leader, follower = pty.openpty()
    os.environ["COLUMNS"], before = "40", os.environ.get("COLUMNS")
    try:
        with open(follower, "w", encoding="utf-8") as err:
            sys.stderr, real = err, sys.stderr
            try:
                with guarded():
                    print(sentence, file=sys.stderr)
            finally:
                sys.stderr = real
            shown = os.read(leader, 4096).decode().replace("\r\n", "\n")
    finally:
        os.close(leader)
        os.environ.pop("COLUMNS")
        os.environ.update({} if before is None else {"COLUMNS": before})
    assert shown.split() == sentence.split() and max(map(len, shown.splitlines())) <= 40
    assert wrapped("short\n" + "x" * 50, 40) == "short\n" + "x" * 50, "a word that is too long stays whole"
