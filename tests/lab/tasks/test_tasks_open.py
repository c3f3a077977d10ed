"""The one door: names, paths, options; and mistakes answered in a sentence."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from odeum.errors import OdeumError
from odeum.lab.data.sniffing import recognise
from odeum.lab.tasks import DATA_SETS, KINDS, load_task, make_options, open_task


def test_every_named_set_has_a_kind_with_options():
    assert set(DATA_SETS.values()) <= set(KINDS)
    assert recognise("multi30k-fr-en") == "translation"


def test_recognising_needs_no_torch():
    code = "import sys, odeum.lab.data.sniffing as d; d.recognise('digits'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options_have_words_for_the_command_line():
    import ast
    import inspect

    for kind in KINDS.values():
        assert dataclasses.is_dataclass(kind.options)
        for settings in (kind.options, kind.settings):
            (cls,) = ast.parse(inspect.getsource(settings)).body
            assert isinstance(cls, ast.ClassDef)
            fields = [n for n in cls.body if isinstance(n, ast.AnnAssign)]
            docstrings = [n for n in cls.body if isinstance(n, ast.Expr)]
            assert len(docstrings) == len(fields) + 1, cls.name


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (("digitz",), "unknown data set or path 'digitz'; did you mean 'digits'"),
        (("nowhere/data.csv",), "there is no file or folder 'nowhere/data.csv'"),
        (("corpus.txt",), "there is no file or folder 'corpus.txt'"),
        (("digits", "cifar100"), "named set and cannot be combined with .cifar100."),
    ],
)
def test_wrong_names_and_paths(data, sentence):
    with pytest.raises(OdeumError, match=sentence):
        open_task(*data)


def test_a_file_of_nearly_this_name(tmp_path):
    (tmp_path / "reviews.csv").touch()
    with pytest.raises(OdeumError, match=r"no file or folder '.*reviews\.cvs'; did you mean '.*reviews\.csv'\?"):
        open_task(str(tmp_path / "reviews.cvs"))


def test_wrong_options():
    with pytest.raises(OdeumError, match="unknown option of images data 'augmentation'; did you mean 'augment'"):
        open_task("digits", augmentation="light")
    with pytest.raises(OdeumError, match="unknown augment of the data 'heavy'; known: none, light, deit"):
        open_task("digits", augment="heavy")
    with pytest.raises(OdeumError, match="unknown kind of data 'pictures'"):
        open_task("digits", kind="pictures")
    with pytest.raises(OdeumError, match="size of the data must be a positive integer, got -3"):
        make_options("images", size=-3)


def test_a_missing_set_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", None)  # as where it is not installed
    for name, what in (("cifar100", "train.bin"), ("wikitext103", "wiki.train.tokens"), ("imdb", "train.tsv")):
        with pytest.raises(OdeumError, match=what) as caught:
            open_task(name)
        assert str(tmp_path) in str(caught.value)
        assert "odeum[data]" in str(caught.value)


def test_text_that_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(OdeumError, match="is empty"):
        open_task(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("too short")
    with pytest.raises(OdeumError, match="too little text"):
        open_task(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 100 + b"\xe4")
    with pytest.raises(OdeumError, match="byte 0xe4 at offset 500"):
        open_task(tmp_path / "a.txt")
    with pytest.raises(OdeumError, match=r"has no task\.json"):
        load_task(tmp_path)
