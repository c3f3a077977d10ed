"""Image tasks: digits, published layouts, and a folder made by someone else."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from odeum.errors import OdeumError
from odeum.lab.data.splits import mixed
from odeum.lab.tasks import load_task, open_task, reopen_task
from odeum.models import build
from odeum.models.settings import PRESETS

SMALL = {"width": 16, "heads": 2, "depth": 1}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes that brightness tells apart, of mixed sizes and modes."""
    noise = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(20):
            size = (20 + i % 3, 24 - i % 3)
            image = Image.fromarray(noise.integers(low, low + 100, (*size, 3), dtype=np.uint8))
            image.convert(["RGB", "L", "RGBA", "P"][i % 4]).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def test_digits_have_fixed_disjoint_parts():
    task = open_task("digits")
    sizes = {part: len(labels) for part, (_, labels) in task.parts.items()}
    assert sum(sizes.values()) == 1797
    assert sizes["test"] > 300
    assert task.fingerprint() == open_task("digits").fingerprint()
    assert task.fingerprint() != open_task("digits", augment="none").fingerprint()


def test_batches_are_a_function_of_epoch_size_and_seed():
    task = open_task("digits", augment="deit")
    torch.manual_seed(1)
    first = list(task.batches(3, 64, 5))
    torch.manual_seed(2)
    again = list(task.batches(3, 64, 5))
    assert len(first) == task.steps_per_epoch(64) == 1259 // 64
    assert all(torch.equal(a["images"], b["images"]) for a, b in zip(first, again, strict=True))
    late = next(task.batches(3, 64, 5, start=7))
    assert torch.equal(late["images"], first[7]["images"])
    assert torch.equal(late["labels"], first[7]["labels"])
    assert not torch.equal(first[0]["images"], next(task.batches(4, 64, 5))["images"])
    assert not torch.equal(first[0]["images"], next(task.batches(3, 64, 6))["images"])


def test_without_augmentation_an_epoch_shows_each_image_once():
    task = open_task("digits", augment="none")
    seen = torch.cat([batch["images"] for batch in task.batches(0, 100, 0)])
    assert len(seen.flatten(1).unique(dim=0)) == len(seen) == 1200
    assert abs(seen.mean().item()) < 0.05
    assert abs(seen.std().item() - 1) < 0.05


def test_digits_train_evaluate_save_and_predict(tmp_path):
    task = open_task("digits", augment="none")
    model = build("parallel", task.model())
    before = task.evaluate(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for batch in (b for epoch in range(3) for b in task.batches(epoch, 64, 0)):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    after = task.evaluate(model, "test")
    assert model.training
    assert after["loss"] < before["loss"] / 2
    assert 0.5 < after["accuracy"] <= after["top5"] <= 1
    rows = mixed(len(task.parts["test"][1]), 40)
    images, labels = (x[rows] for x in task.parts["test"])
    files = []
    for i in range(40):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(images[i, 0].numpy()).save(files[-1])
    task.save(tmp_path)
    answers = load_task(tmp_path).predict(model, files, top=3)
    assert answers == task.predict(model, files, top=3)
    assert [len(row) for row in answers] == [3] * 40
    right = sum(row[0][0] == str(int(label)) for row, label in zip(answers, labels, strict=False))
    limited = task.evaluate(model, "test", limit=40)
    assert right / 40 == limited["accuracy"]
    assert reopen_task(tmp_path).fingerprint() == task.fingerprint()


def test_a_task_loaded_to_predict_has_no_data(tmp_path):
    open_task("digits").save(tmp_path)
    task = load_task(tmp_path)
    with pytest.raises(OdeumError, match="without its data"):
        next(task.batches(0, 8, 0))


def test_fit_puts_the_facts_in_and_refuses_conflicts():
    task = open_task("digits")
    fitted = task.fit(PRESETS["vit_8"])
    assert (fitted.image_size, fitted.channels, fitted.classes) == (8, 1, 10)
    with pytest.raises(OdeumError, match="patch_size 16 does not divide"):
        task.fit(PRESETS["deit_tiny"])
    with pytest.raises(OdeumError, match="needs a Vision model"):
        task.fit(PRESETS["language_small"])
    big = open_task("digits", size=32)
    assert next(big.batches(0, 4, 0))["images"].shape == (4, 1, 32, 32)
    assert big.fit(PRESETS["deit_tiny"]).image_size == 32


def test_a_folder_of_images(photos, tmp_path):
    task = open_task(photos)
    assert task.classes == ["bright", "dark"]
    assert task.facts() == {"classes": 2, "image_size": 20, "channels": 3}
    assert {part: len(y) for part, (_, y) in task.parts.items()} == {"train": 32, "valid": 4, "test": 4}
    model = build("sequential", task.model(), **SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(15):
        for batch in task.batches(epoch, 16, 0):
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
    assert task.evaluate(model, "test")["accuracy"] == 1.0
    task.save(tmp_path / "run")
    answers = load_task(tmp_path / "run").predict(model, [photos / "dark" / "2.png", photos / "bright" / "3.png"])
    assert [row[0][0] for row in answers] == ["dark", "bright"]


def test_a_folder_with_its_own_parts(photos):
    for part, numbers in (("val", range(4)), ("test", range(4, 8))):
        for name in ("bright", "dark"):
            (photos / part / name).mkdir(parents=True)
            for i in numbers:
                (photos / name / f"{i}.png").rename(photos / part / name / f"{i}.png")
    for name in ("bright", "dark"):
        (photos / "train").mkdir(exist_ok=True)
        (photos / name).rename(photos / "train" / name)
    task = open_task(photos)
    assert {part: len(y) for part, (_, y) in task.parts.items()} == {"train": 24, "valid": 8, "test": 8}
    (photos / "test" / "dark").rename(photos / "test" / "dusk")
    with pytest.raises(OdeumError, match="'dusk' of the test part"):
        open_task(photos)


def test_small_and_grey_images_keep_their_size_and_channel(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            Image.fromarray(np.full((12, 12), i * 10, dtype=np.uint8)).save(tmp_path / name / f"{i}.png")
    assert open_task(tmp_path).facts() == {"classes": 2, "image_size": 12, "channels": 1}


def test_bad_folders_get_a_sentence(photos, tmp_path):
    (photos / "dark" / "5.png").write_bytes((photos / "dark" / "5.png").read_bytes()[:60])
    with pytest.raises(OdeumError, match=r"dark/5\.png' is not a readable image"):
        open_task(photos, strict=True)
    whole = sum(open_task(photos).sizes().values())
    (photos / "dark" / "5.png").write_bytes(b"not an image")
    with pytest.raises(OdeumError, match=r"dark/5\.png"):
        open_task(photos, strict=True)
    task = open_task(photos)
    assert sum(task.sizes().values()) == whole and any("1 of" in note and "dark/5.png" in note for note in task.notes)
    for file in (photos / "dark").iterdir():
        file.unlink()
    with pytest.raises(OdeumError, match="only one class, 'bright'"):
        open_task(photos)
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(OdeumError, match="has no recognised images"):
        open_task(tmp_path / "empty")
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "flat" / "x.png")
    with pytest.raises(OdeumError, match="no sub-folders with images"):
        open_task(tmp_path / "flat")


def _idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.mark.parametrize("pack", ["", ".gz"])
def test_fashion_mnist_layout(tmp_path, monkeypatch, pack):
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    (tmp_path / "fashion-mnist").mkdir()
    for prefix, count in (("train", 100), ("t10k", 20)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        images = np.broadcast_to(labels[:, None, None], (count, 28, 28)).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            content = _idx(array) if not pack else gzip.compress(_idx(array))
            (tmp_path / "fashion-mnist" / f"{prefix}-{kind}-ubyte{pack}").write_bytes(content)
    task = open_task("fashion-mnist")
    assert task.classes[9] == "Ankle boot"
    assert {part: len(y) for part, (_, y) in task.parts.items()} == {"train": 90, "valid": 10, "test": 20}
    images, labels = task.parts["train"]
    assert torch.equal(images[:, 0, 3, 3].long(), labels)


def test_cifar10_layout_and_a_torn_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEUM_DATA", str(tmp_path))
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    record = np.zeros((20, 3073), dtype=np.uint8)
    record[:, 0] = np.arange(20) % 10
    record[:, 1:1025] = 200  # red
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (folder / f"{name}.bin").write_bytes(record.tobytes())
    images, labels = open_task("cifar10").parts["test"]
    assert images[:, :, 0, 0].tolist() == [[200, 0, 0]] * 20
    assert labels.tolist() == [*range(10)] * 2
    (folder / "test_batch.bin").write_bytes(record.tobytes()[:-5])
    with pytest.raises(OdeumError, match="not a whole number of 3073-byte"):
        open_task("cifar10")


@pytest.mark.skipif("ODEUM_DATA" not in os.environ, reason="needs ODEUM_DATA with cifar-100-binary")
def test_cifar100():
    task = open_task("cifar100")
    assert {part: len(y) for part, (_, y) in task.parts.items()} == {"train": 45000, "valid": 5000, "test": 10000}
    assert task.classes[0] == "apple"
    assert len(task.parts["valid"][1].unique()) == 100


def test_a_part_of_the_training_images(tmp_path):
    whole, part = (open_task("digits", train_examples=n) for n in (None, 300))
    assert part.sizes() == {**whole.sizes(), "train": 300}
    counts = torch.bincount(part.parts["train"][1], minlength=10)
    assert counts.min() > 15, "of all classes, not the first ones"
    assert part.fingerprint() != whole.fingerprint()
    with pytest.raises(OdeumError, match="train_examples=5000 are more than"):
        open_task("digits", train_examples=5000)
