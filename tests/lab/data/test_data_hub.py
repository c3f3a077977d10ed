"""What is fetched from the hub is written in the published layout, so that the same readers read it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from odeum.errors import OdeumError
from odeum.lab.tasks import open_task, reopen_task


class Rows(list):
    """As much of a `datasets.Dataset` as is used: iteration over rows, columns by name, names of classes."""

    features: dict = {}  # noqa: RUF012

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def stored(path: str, version: str | None, split: str) -> Rows:
    if path == "uoft-cs/cifar100":
        image = Image.fromarray(np.dstack([np.full((32, 32), v, dtype=np.uint8) for v in (9, 5, 1)]))
        rows = Rows({"img": image, "coarse_label": i % 20, "fine_label": i % 100} for i in range(200))
        rows.features = {
            "coarse_label": SimpleNamespace(names=[f"c{i}" for i in range(20)]),
            "fine_label": SimpleNamespace(names=[f"f{i}" for i in range(100)]),
        }
        return rows
    if path == "Salesforce/wikitext":
        assert version == "wikitext-2-v1"
        return Rows({"text": line} for line in [" = Title = \n", "", *[" a <unk> walks . \n"] * 60])
    if path == "stanfordnlp/imdb":
        return Rows({"label": i % 2, "text": f"film\tnumber\n{i}"} for i in range(40))
    if path == "fancyzhx/ag_news":
        return Rows({"label": i % 4, "text": f'news, "{i}"'} for i in range(40))
    if path == "bentrevett/multi30k":
        return Rows({"en": f"a dog {i}", "de": f"ein Hund {i}"} for i in range(30))
    raise ConnectionError("no such host\nand more")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    module = ModuleType("datasets")
    module.load_dataset = lambda path, version=None, split=None: stored(path, version, split)
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.delenv("ODEUM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_images(hub):
    task = open_task("cifar100")
    images, labels = task.parts["test"]
    assert images[0, :, 4, 4].tolist() == [9, 5, 1]
    assert labels.tolist() == [*range(100)] * 2
    assert task.classes[7] == "f7"


def test_texts(hub):
    assert open_task("wikitext2").words["test"] == 4 + 1 + 60 * 5
    imdb = open_task("imdb")
    assert len(imdb.parts["test"][1]) == 40
    assert open_task("ag_news").classes[0] == "World"
    assert open_task("multi30k-de-en").texts["test"][0][3] == "ein Hund 3"


def test_a_failed_download_is_one_sentence(hub):
    with pytest.raises(OdeumError, match="failed: ConnectionError: no such host") as caught:
        open_task("fashion-mnist")
    assert "\n" not in str(caught.value)


class Split(Rows):
    """A split of a data set that is not one of ours, with the features of `datasets`."""

    def __init__(self, rows, **features):
        super().__init__(rows)
        self.features = features


class Value: ...


def test_any_data_set_of_the_hub_by_its_name(hub, tmp_path, monkeypatch):
    """A stand-in for `datasets.load_dataset`: there is no network where tests run, the rest is the real path."""
    labels = SimpleNamespace(names=["bad", "good"])
    asked = []

    def load(path, configuration=None):
        asked.append((path, configuration))
        rows = [{"text": f"film {i}", "label": i % 2} for i in range(40)]
        new = [{"text": f"book {i}", "label": i % 2} for i in range(120)]
        splits = {"train": rows, "test": new, "unsupervised": rows}
        return {name: Split(content, text=Value(), label=labels) for name, content in splits.items()}

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", load)
    task = open_task("somebody/films:small")
    assert task.kind == "classification" and task.classes == ["bad", "good"] and len(task.parts["test"][1]) == 120
    assert task.source == ("somebody/films:small",) and asked == [("somebody/films", "small")]
    task.save(tmp_path / "run")
    assert reopen_task(tmp_path / "run").fingerprint() == task.fingerprint() and len(asked) == 1, "fetched once"


def test_images_of_the_hub_by_their_name(hub, monkeypatch):
    class Image_(SimpleNamespace): ...

    Image_.__name__ = "Image"
    labels = SimpleNamespace(names=["cat", "dog"])
    rng = np.random.default_rng(0)

    def load(path, configuration=None):
        rows = [
            {"image": Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)), "label": i % 2}
            for i in range(60)
        ]
        return {"train": Split(rows, image=Image_(), label=labels)}

    monkeypatch.setattr(sys.modules["datasets"], "load_dataset", load)
    task = open_task("somebody/pets")
    assert task.kind == "images" and task.classes == ["cat", "dog"] and sum(task.sizes().values()) == 60


def test_a_name_of_the_hub_without_its_library_or_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(OdeumError, match=r"no file or folder 'stanfordnlp/imdb'; to fetch it .* odeum\[data\]"):
        open_task("stanfordnlp/imdb")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OdeumError, match="there is no file or folder 'data/reviews'"):
        open_task("data/reviews")
