"""Data that is none: files and folders of every shape, configurations, plugins, places that cannot be written to."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from corpus.case import Case

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x08\0\0\0\x08\x08\x02\0\0\0"
"""how a picture of 8 × 8 begins"""
PROSE = b"the cat sat on the mat and looked at the dog\n" * 60
ROWS = b"text,label\n" + b"".join(b"film number %d,%s\n" % (i, b"pn"[i % 2 : i % 2 + 1]) for i in range(60))


def file(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def link(name: str, to: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(to)


def circle(*names: str) -> Callable[[Path], object]:
    """Two classes of images, with links (name, target, …) that lead back."""

    def prepare(folder: Path) -> None:
        root = folder / names[0].split("/")[0]
        tree(**{f"{root.name}__{name}__x_dot_png": PNG for name in "ab"})(folder)
        for name, to in zip(names[::2], names[1::2], strict=True):
            (folder / name).symlink_to(to)

    return prepare


def tree(**files: bytes) -> Callable[[Path], object]:
    """Files by path, with `__` for the slash and `_dot_` for the dot."""

    def prepare(folder: Path) -> None:
        for name, content in files.items():
            path = folder / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.name.startswith("nothing"):
                path.write_bytes(content)

    return prepare


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.bin", PROSE)
    return buffer.getvalue()


FILES: list[tuple[str, bytes, str]] = [
    ("empty.txt", b"", "empty"),
    ("empty.csv", b"", "empty"),
    ("empty.tsv", b"", "empty"),
    ("blank.txt", b" \n\n \n" * 9, "blank.txt"),
    ("blank.csv", b"\n\n\n", "blank.csv"),
    ("short.txt", b"a word\n", "short.txt"),
    ("bom.txt", b"\xef\xbb\xbf", "bom.txt"),
    ("nul.txt", PROSE + b"\0" + PROSE, "nul.txt' is a binary file"),
    ("wide.txt", PROSE.decode().encode("utf-16") + b"x", "UTF-16"),
    ("wide.dat", ROWS.decode().encode("utf-16"), "UTF-16"),
    ("latin.txt", b"caf\x81 au lait\n" * 99, "'latin.txt' is not UTF-8: byte 0x81 at offset 3"),
    ("latin.csv", ROWS + b"caf\x81,p\n", "latin.csv"),
    ("bytes.txt", bytes(range(256)) * 9, "bytes.txt"),
    ("bytes.csv", bytes(range(256)) * 9, "bytes.csv"),
    ("header.csv", b"text,label\n", "header.csv"),
    ("header.tsv", b"text\tlabel\n", "header.tsv"),
    ("one.csv", b"text,label\n" + b"film,p\n" * 60, "one.csv"),
    ("row.csv", b"text,label\nfilm,p\n", "row.csv"),
    ("two.csv", b"text,label\nfilm,p\nbook,n\n", "two.csv"),
    ("ragged.csv", b"text,label\n" + b"a,b,c,d\n" * 30 + b"x\n" * 30, "ragged.csv"),
    ("quote.csv", b'text,label\n"never closed,p\n' + b"film,p\n" * 60, "quote.csv"),
    ("same.csv", b"text,text\n" + b"film,p\n" * 60, "same.csv"),
    ("twice.csv", b"text,label,label\n" + b"film a,p,x\nfilm b,n,y\n" * 30, "twice.csv' has 2 columns named 'label'"),
    ("strange.csv", b"alpha,beta\n" + b"1,2\n3,4\n" * 30, "name them with --data.text_column and --data.label_column"),
    (
        "ids.csv",
        b"text,label\n" + b"".join(b"t %d,label %d\n" % (i, i) for i in range(300)),
        "they do not look like classes",
    ),
    ("notext.csv", b"text,label\n" + b",p\n,n\n" * 30, "notext.csv"),
    ("page.pdf", b"%PDF-1.7\n%\xe2\xe3\n", "'page.pdf' is a PDF, not plain text; save its text as .txt"),
    ("a.gz", b"\x1f\x8b\x08\0" + bytes(40), "'a.gz' is compressed by gzip, not plain text; unpack it first"),
    ("a.zip", zipped(), "'a.zip' is a ZIP archive, not plain text; unpack it first"),
    (
        "a.npy",
        b"\x93NUMPY\x01\0" + bytes(40),
        "'a.npy' is a NumPy array, not plain text; give a folder",
    ),
    ("a.parquet", b"PAR1" + bytes(40), "'a.parquet' is a truncated Parquet table"),
    ("a.db", b"SQLite format 3\0", "'a.db' is an SQLite database"),
    ("a.bz2", b"BZh91AY&SY" + bytes(40), "a.bz2"),
    ("a.xz", b"\xfd7zXZ\0" + bytes(40), "a.xz"),
    ("a.pkl", b"\x80\x04\x95" + bytes(40), "a.pkl"),
    ("a.pt", b"PK\x03\x04" + bytes(40), "a.pt"),
    ("a.safetensors", b"\x02\0\0\0\0\0\0\0{}", "a.safetensors"),
    ("a.exe", b"MZ" + bytes(400), "a.exe"),
    ("a.elf", b"\x7fELF" + bytes(400), "a.elf"),
    ("photo.png", PNG, "photo.png"),
    ("photo.jpg", b"\xff\xd8\xff\xe0" + bytes(90), "photo.jpg"),
    ("photo.txt", PNG + bytes(90), "photo.txt"),
    ("photo.dat", PNG + bytes(90), "'photo.dat' is an image"),
    ("late.txt", PROSE * 40 + b"\0", "'late.txt' is not plain text: it has a zero byte at offset 108000"),
    ("a.npz", zipped(), "'a.npz' is a file of NumPy arrays, not plain text; give images as files"),
    ("a.xlsx", zipped(), "'a.xlsx' is an Excel workbook, not plain text; save it as .csv"),
    ("comma.csv", ROWS + b"good film, really,p\n", "row 62 of 'comma.csv' has 3 columns where 2 were expected"),
]

PAIRS = b"".join(b"one %d and two\teins %d und zwei\n" % (i, i) for i in range(40))
SEVERAL: dict[str, bytes] = {
    "mid.txt": PROSE,
    "rows.tsv": ROWS.replace(b",", b"\t"),
    "rows.csv": ROWS,
    "pairs.tsv": PAIRS,
    "p.en": PROSE,
    "p.de": PROSE,
    "p.fr": PROSE,
    "train.txt": PROSE,
    "test.txt": PROSE[: len(PROSE) // 2],
    "valid.txt": PROSE.replace(b"cat", b"cow"),
    "train.csv": ROWS,
    "test.csv": ROWS,
}
LINKS = {"link.en": "p.en", "gone.txt": "nowhere"}
MEANT: list[tuple[str, str]] = [
    ("rows.tsv mid.txt", "'rows.tsv' is a table and 'mid.txt' is not; give files of one kind"),
    ("rows.csv p.en", "'rows.csv' is a table and 'p.en' is not"),
    ("p.en p.de p.en", "'p.en' is given twice; give each file once, so that test data is not training data"),
    ("p.en ./p.en", "'p.en' is given twice"),
    ("p.en link.en", "'link.en' is the same file as 'p.en'"),
    ("p.en p.de p.fr", "'p.en', 'p.de', 'p.fr' do not belong together"),
    ("mid.txt p.de", "'mid.txt' and 'p.de' are of two kinds"),
    ("train.txt test.txt", "all of 'test.txt' is also in the training text"),
    ("valid.txt test.txt", "none of valid.txt, test.txt is named as the training part"),
    ("train.csv test.csv", "has the same rows as its training part"),
    ("--kind language p.en p.en", "'p.en' is given twice"),
    ("gone.txt", "'gone.txt' is a broken link to 'nowhere'"),
    ("mid.txt --data.length 3", "length of the data must be an integer of at least 8, got 3"),
    ("mid.txt --data.context 300", "context=300 must be below length=256"),
    ("mid.txt --data.tokens bpe --data.vocabulary 20", "vocabulary of bpe must be an integer of at least 256, got 20"),
    ("pairs.tsv --data.vocabulary 20", "vocabulary of the data must be an integer of at least 260, got 20"),
    ("rows.csv --data.vocabulary 2", "vocabulary of auto must be an integer of at least 4, got 2"),
    ("rows.csv --model.classes 2", "--model.classes is decided by the data and cannot be set"),
    ("mid.txt --model.length 32", "--model.length is decided by the data and cannot be set; --data.length may"),
    ("mid.txt --model.width 10 --model.heads 3", "heads=3 must divide width=10; use 2 or 5"),
    ("/dev/zero", "'/dev/zero' is a device, not a regular file"),
    ("x" * 300 + ".csv", "there is no file or folder"),
]


def meant(folder: Path, names: list[str]) -> None:
    """The files and links that a command names."""
    for name in {name.removeprefix("./") for name in names} | ({"p.en"} if "link.en" in names else set()):
        if name in SEVERAL:
            (folder / name).write_bytes(SEVERAL[name])
        elif name in LINKS:
            (folder / name).symlink_to(LINKS[name])


ROW_OBJECTS: list[tuple[str, str]] = [
    ('{"text": {"title": "a film"}, "label": "a"}', "'text' in row 61 of 'rows.jsonl' is a list or an object"),
    ('{"text": "a film", "label": ["a", "b"]}', "'label' in row 61 of 'rows.jsonl' is a list or an object"),
    ('{"text": "a film", "label": "a", "label": "b"}', "line 61 of 'rows.jsonl' has the name 'label' twice"),
    ('{"text": "half \\ud800", "label": "a"}', "line 61 of 'rows.jsonl' contains an unpaired surrogate"),
]
OBJECTS = "".join(f'{{"text": "film {i}", "label": "{"ab"[i % 2]}", "more": [{i}]}}\n' for i in range(60))
"""rows of which a column that is not used holds lists, before each of `ROW_OBJECTS`"""


def files() -> Iterator[Case]:
    for name, content, fragment in FILES:
        yield Case(("train", name), fragment, file(name, content))
    for line, fragment in MEANT:
        names = line.split()
        yield Case(("train", *names), fragment, lambda folder, names=names: meant(folder, names), "several:")
    for row, fragment in ROW_OBJECTS:
        yield Case(("train", "rows.jsonl"), fragment, file("rows.jsonl", (OBJECTS + row).encode()), row)
    for kind in ("images", "translation", "listops", "regression"):
        yield Case(("train", "prose.txt", "--kind", kind), "prose.txt", file("prose.txt", PROSE))
    for kind in ("images", "listops"):
        yield Case(("train", "rows.csv", "--kind", kind), "rows.csv", file("rows.csv", ROWS))
    rows = file("rows.csv", ROWS)
    yield Case(("train", "rows.csv", "--data.text_column", "txt"), "txt", rows)
    yield Case(("train", "rows.csv", "--data.label_column", "lable"), "lable", rows)
    yield Case(("train", "rows.csv", "--data.text_column", "text+nothing"), "nothing", rows)
    yield Case(("train", "rows.csv", "--data.label_column", "text"), "cannot be both text and label", rows)
    yield Case(("train", "rows.csv", "rows.csv"), "'rows.csv' is given twice", rows)
    yield Case(("train", "rows.csv", "--data.encoding", "undefined"), "unknown encoding 'undefined'", rows)
    yield Case(("train", "a.txt", "b.txt"), "'b.txt' has the same content", tree(a_dot_txt=PROSE, b_dot_txt=PROSE))
    labels = b"file,label\n" + b"".join(b"%d.png,%d.5\n" % (i, i) for i in range(30)) + b"gone.png,1\n"
    pictures = {f"p__{i}_dot_png": PNG for i in range(30)}
    yield Case(
        ("train", "p"),
        "names 'gone.png', which is not an image in",
        tree(p__labels_dot_csv=labels, **pictures),
        "after a notice:",
    )
    yield Case(("train", "rows.csv", "--data.vocabulary", "1"), "vocabulary", rows)
    yield Case(("train", "rows.csv", "--data.length", "0"), "length", rows)
    yield Case(("train", "rows.csv", "--data.test_examples", "0"), "test_examples", rows)
    yield Case(("train", "rows.csv", "--model", "vit_8"), "needs a Classification model, not a Vision one", rows)
    yield Case(("train", "rows.csv", "--data.size", "8"), "unknown option --data.size", rows)
    yield Case(("train", "prose.txt", "--data.tokens", "bytes"), "bytes", file("prose.txt", PROSE))


def places() -> Iterator[Case]:
    """What is no file: links, pipes, devices, folders."""
    yield Case(("train", "gone.txt"), "gone.txt", link("gone.txt", "nowhere"))
    yield Case(("train", "loop.txt"), "loop.txt", link("loop.txt", "loop.txt"))
    yield Case(("train", "loop"), "loop", link("loop", "loop"))
    pipe = "'pipe.txt' is a pipe, not a regular file; save its output to a file first"
    yield Case(("train", "pipe.txt"), pipe, lambda folder: os.mkfifo(folder / "pipe.txt"))
    yield Case(("train", "pipe.csv"), "pipe.csv", lambda folder: os.mkfifo(folder / "pipe.csv"))
    yield Case(("train", "pipe"), "pipe", lambda folder: os.mkfifo(folder / "pipe"))
    yield Case(("predict", "pipe"), "pipe", lambda folder: os.mkfifo(folder / "pipe"))
    yield Case(("report", "pipe"), "pipe", lambda folder: os.mkfifo(folder / "pipe"))
    yield Case(("train", "--config", "pipe"), "pipe", lambda folder: os.mkfifo(folder / "pipe"))
    yield Case(("list", "--plugin", "pipe.py"), "pipe.py", lambda folder: os.mkfifo(folder / "pipe.py"))
    for device in ("/dev/null", "/dev/zero", "/dev/full", "/dev/stdin/x"):
        for verb in ("train", "evaluate", "report"):
            yield Case((verb, device), device)
        yield Case(("train", "--config", device), device)
    yield Case(("train", "a\0b"), "a\\u0000b")
    yield Case(("predict", "a\0b", "--text", "x"), "a\\u0000b")
    yield Case(("train", "x" * 5000 + ".txt"), "xxx")
    yield Case(("predict", "x" * 5000), "xxx")
    yield Case(("report", "x" * 5000), "xxx")
    empty = "'empty' has no recognised images, tables or texts (it is empty)"
    yield Case(("train", "empty"), empty, lambda folder: (folder / "empty").mkdir())
    no_tables = "'empty' has no tables"
    yield Case(("train", "--kind", "classification", "empty"), no_tables, lambda folder: (folder / "empty").mkdir())
    both = tree(full__a_dot_txt=PROSE, rows_dot_csv=ROWS)
    yield Case(("train", "full", "rows.csv"), "'full' is a folder; give one folder, or several files", both)
    yield Case(("train", "circle"), "'circle/a/back' is a link to", circle("circle/a/back", ".."))
    yield Case(
        ("train", "round"), "which contains it; remove the link", circle("round/a/to", "../b", "round/b/to", "../a")
    )
    yield Case(("train", "."), "'.'")
    yield Case(("train", "/"), "/")
    yield Case(("train", "one"), "one", tree(one__a__x_dot_png=PNG))
    yield Case(("train", "torn"), "torn", tree(torn__a__x_dot_png=PNG, torn__b__y_dot_png=PNG))
    yield Case(("train", "lies"), "lies", tree(lies__a__x_dot_png=PROSE, lies__b__y_dot_png=PROSE))
    yield Case(("train", "hollow"), "hollow", tree(hollow__a__nothing=b"", hollow__b__nothing=b""))
    yield Case(("train", "mixed"), "mixed", tree(mixed__a__x_dot_txt=PROSE, mixed__b__y_dot_png=PNG))
    yield Case(("train", "deep"), "deep", tree(deep__a__b__c__d__x_dot_bin=b"\0"))
    yield Case(("train", "digits", "--out", "gone"), "'gone' is a link to nowhere", link("gone", "nowhere"))
    yield Case(("train", "digits", "--out", "loop"), "loop", link("loop", "loop"))
    yield Case(("train", "digits", "--out", "file"), "'file' is a file", file("file", b""))
    yield Case(("train", "digits", "--out", "file/a/b"), "'file' is a file", file("file", b""))
    one = ("compare", "digits", "--architectures", "sequential")
    yield Case((*one, "--out", "file"), "'file' is a file", file("file", b""))
    yield Case(("report", "file"), "file", file("file", b""))
    yield Case(("evaluate", "file"), "file", file("file", b""))


CONFIGS: list[tuple[bytes, str]] = [
    (b"", "must be a mapping of options"),
    (b"[]", "must be a mapping of options"),
    (b"5", "must be a mapping of options"),
    (b"digits", "must be a mapping of options"),
    (b"source: [digits", "cannot read the configuration"),
    (b"source: digits\n\tseed: 1", "cannot read the configuration"),
    (b"\xff\xfe", "cannot read the configuration"),
    (b"a: \0", "cannot read the configuration"),
    (b"source: !!python/object/apply:os.getcwd []", "cannot read the configuration"),
    (b"source: !!python/name:os.system", "cannot read the configuration"),
    (b"source: &a [*a]", "source must be a data set"),
    (b"a: &a [x,x]\nb: &b [*a,*a]\nsource: *b", "source must be a data set"),
    (b"source: null", "source must be a data set"),
    (b"source: 5", "source must be a data set"),
    (b"source: {a: b}", "source must be a data set"),
    (b"source: [digits, 3]", "source must be a data set"),
    (b"seed: 3", "missing: the data"),
    (b"source: digits\nnonsense: 3", "nonsense"),
    (b"source: digits\ntrain: 5", "train must be a mapping of options, not 5"),
    (b"source: digits\ntrain: []", "train must be a mapping of options, not []"),
    (b"source: digits\nmodel: 5", "model must be a mapping of options, not 5"),
    (b"source: digits\nmodel: nonsense", "unknown model 'nonsense'"),
    (b"source: digits\ndata: null", "data must be a mapping of options, not None"),
    (b"source: digits\ntrain: {nonsense: 3}", "nonsense"),
    (b"source: digits\ntrain: {steps: x}", "steps"),
    (b"source: digits\ntrain: {steps: [1]}", "steps"),
    (b"source: digits\ntrain: {steps: -1}", "steps of the training must be a positive integer"),
    (b"source: digits\ntrain: {learning_rate: .nan}", "learning_rate of the training must be a positive number"),
    (b"source: digits\ntrain: {steps: 1, budget: 1m}", "one of steps, budget or macs"),
    (b"source: digits\ntrain: {1: 2}", "1"),
    (b"source: digits\n1: 2", "1"),
    (b"source: digits\nmodel: {classes: 3}", "--model.classes is decided by the data"),
    (b"source: digits\narchitecture: 5", "5"),
    (b"source: digits\narchitecture: [rk4]", "rk4"),
    (b"source: digits\narchitecture: nonsense", "unknown architecture 'nonsense'"),
    (b"source: digits\nseed: x", "seed"),
    (b"source: digits\nkind: 5", "unknown kind of data '5'"),
    (b"source: digits\nkind: [images]", "unknown kind of data"),
    (b"source: digits\nout: 5", "5"),
    (b"source: digits\noverwrite: 5", "overwrite"),
    (b"a: " + b"[" * 5000, "options.yaml"),
]


def configs() -> Iterator[Case]:
    for content, fragment in CONFIGS:
        title = content[:60].decode("latin-1").encode("unicode_escape").decode()
        yield Case(("train", "--config", "options.yaml"), fragment, file("options.yaml", content), title)


PLUGINS: list[tuple[bytes, str]] = [
    (b"def (", "idea.py"),
    (b"\xff\xfe\0", "idea.py"),
    (b"\0", "idea.py"),
    (b"raise ValueError('no')", "idea.py"),
    (b"raise SystemExit(0)", "idea.py"),
    (b"import sys; sys.exit()", "idea.py"),
    (b"1/0", "idea.py"),
    (b"import nowhere_at_all", "nowhere_at_all"),
    (b"from odeum import nothing_such", "nothing_such"),
    (b"from odeum import register\nregister.tableau('rk4', None)", "idea.py"),
    (b"from odeum import register\nregister.architecture('x', 5)", "idea.py"),
    (b"def f(): f()\nf()", "idea.py"),
]


def plugins() -> Iterator[Case]:
    for content, fragment in PLUGINS:
        title = content.decode("latin-1").encode("unicode_escape").decode()
        yield Case(("list", "--plugin", "idea.py"), fragment, file("idea.py", content), title)
    yield Case(("list", "--plugin", "nowhere.py"), "nowhere.py")
    yield Case(("list", "--plugin", "no.where"), "no.where")
    yield Case(("list", "--plugin", "."), ".")
    yield Case(("list", "--plugin", "a b"), "a b")
    yield Case(("list", "--plugin", "os.path.join"), "os.path.join")
    yield Case(
        (
            "list",
            "--plugin=",
        ),
        "--plugin needs a value",
    )


CASES = [*files(), *places(), *configs(), *plugins()]
