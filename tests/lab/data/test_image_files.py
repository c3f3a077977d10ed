"""Photos as cameras leave them: turned, not square, large, broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from odeum.errors import OdeumError
from odeum.lab.data.image_files import header, read_image
from odeum.lab.data.unsupported import refuse_strange_classes
from odeum.lab.tasks import load_task, open_task

ORIENTATION = 0x0112


@pytest.fixture
def scene() -> np.ndarray:
    """32×32, its quarters of four colours: no turn or mirror image is like another."""
    image = np.zeros((32, 32, 3), dtype=np.uint8)
    image[:16, :16], image[:16, 16:], image[16:, :16] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    return image


def saved(path: Path, array: np.ndarray, orientation: int = 1) -> Path:
    image = Image.fromarray(array)
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, exif=exif)
    return path


def as_the_camera_stores(array: np.ndarray, orientation: int) -> np.ndarray:
    """The pixels that, under this mark, show the scene upright (EXIF 2.3, written out)."""
    stored = {
        1: array,
        2: array[:, ::-1],
        3: array[::-1, ::-1],
        4: array[::-1],
        5: array.transpose(1, 0, 2),
        6: np.rot90(array, 1),
        7: array[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(array, -1),
    }
    return np.ascontiguousarray(stored[orientation])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_every_mark_of_a_camera_is_obeyed(tmp_path: Path, scene: np.ndarray, orientation: int, suffix: str) -> None:
    path = saved(tmp_path / f"x.{suffix}", as_the_camera_stores(scene, orientation), orientation)
    seen = read_image(path, 3, 16).float()
    wanted = torch.from_numpy(scene[::2, ::2].copy()).permute(2, 0, 1).float()
    inner = (slice(None), [3, 3, 12, 12], [3, 12, 3, 12])  # away from the edges between colours
    assert (seen - wanted)[inner].abs().max() < 30


def test_the_middle_of_what_is_not_square(tmp_path: Path) -> None:
    wide = np.zeros((20, 60, 3), dtype=np.uint8)
    wide[:, 20:40] = 200  # the middle square is bright, the sides are black
    path = saved(tmp_path / "wide.png", wide)
    assert read_image(path, 3, 16, "crop").float().mean() > 190
    assert 50 < read_image(path, 3, 16, "squash").float().mean() < 80
    tall = saved(tmp_path / "tall.png", np.rot90(wide).copy(), 6)
    assert header(tall).size == (60, 20)
    assert torch.equal(read_image(tall, 3, 16, "squash"), read_image(path, 3, 16, "squash"))


def photos(folder: Path, shape: tuple[int, int] = (20, 30)) -> Path:
    noise = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        for i in range(8):
            saved(folder / name / f"{i}.jpg", noise.integers(low, low + 100, (*shape, 3), dtype=np.uint8), 6)
    return folder


def test_a_task_says_what_it_did_to_photos_and_does_it_again(tmp_path: Path) -> None:
    task = open_task(photos(tmp_path / "photos"))
    cropped = "16 of 16 images are not square and were cropped to the middle square"
    assert task.notes[0] == f"{cropped} (--data.fit squash keeps their edges)"
    squashed = open_task(tmp_path / "photos", fit="squash", size=20)
    assert "squashed" in squashed.notes[0]
    assert squashed.fingerprint() != open_task(tmp_path / "photos", size=20).fingerprint()
    task.save(tmp_path / "run")
    photo = tmp_path / "photos" / "dark" / "3.jpg"
    assert torch.equal(load_task(tmp_path / "run").prepare(photo), task.prepare(photo))
    assert not any("square" in note for note in open_task(photos(tmp_path / "square", (20, 20))).notes)


def test_a_choice_that_changes_no_pixel_makes_no_other_run() -> None:
    assert open_task("digits").fingerprint() == open_task("digits", fit="squash").fingerprint()


@pytest.mark.slow
def test_large_photos_are_read_one_by_one(tmp_path: Path) -> None:
    """Twelve photos of 36 megapixels are 1.3 GB as pixels; reading them may take a small part of that."""
    for name in ("a", "b"):
        for i in range(6):
            path = tmp_path / name / f"{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (6000, 6000), (i * 20, 80, 90)).save(path, quality=30)
    code = (
        "import resource, sys; from odeum.lab.tasks import open_task\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "open_task(sys.argv[1])\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150  # megabytes


def test_a_bomb_and_a_broken_file_are_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "x.png", np.zeros((64, 64, 3), dtype=np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for look in (header, lambda p: read_image(p, 3, 16)):
        with pytest.raises(OdeumError, match=r"x\.png' has more than 200 pixels; make it smaller"):
            look(path)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:80])
    with pytest.raises(OdeumError, match=r"x\.png' is not a readable image"):
        read_image(path, 3, 16)
    with pytest.raises(OdeumError, match="is a folder"):
        read_image(tmp_path, 3, 16)
    with pytest.raises(OdeumError, match="there is no file"):
        read_image(tmp_path / "nothing.png", 3, 16)


def test_numbers_of_32_bits_are_bytes_or_a_sentence(tmp_path: Path) -> None:
    """Pillow cuts fractions to black and large numbers to white, and says nothing."""
    steps = np.arange(64).reshape(8, 8)
    for name, array in (("bytes", steps.astype(np.float32)), ("whole", steps.astype(np.int32))):
        Image.fromarray(array).save(tmp_path / f"{name}.tif")
        assert torch.equal(read_image(tmp_path / f"{name}.tif", 1, 8)[0], torch.from_numpy(steps).byte())
    for name, array in (("fractions", steps.astype(np.float32) / 64), ("large", steps.astype(np.int32) * 70000)):
        Image.fromarray(array).save(tmp_path / f"{name}.tif")
        with pytest.raises(OdeumError, match=f"{name}.tif': the image has 32-bit values from 0 to"):
            read_image(tmp_path / f"{name}.tif", 1, 8)


@pytest.mark.parametrize("how", ["symlink", "hard link", "copies"])
def test_a_picture_is_not_trained_on_and_tested(tmp_path: Path, how: str) -> None:
    for part in ("train", "test"):
        photos(tmp_path / "pics" / part)
    for kind in ("bright", "dark"):
        for file in (tmp_path / "pics" / "test" / kind).iterdir():
            known = tmp_path / "pics" / "train" / kind / file.name
            file.unlink()
            {"symlink": os.symlink, "hard link": os.link, "copies": shutil.copy}[how](known, file)
    sentence = "all images of the test part" if how == "copies" else "is the same file as"
    with pytest.raises(OdeumError, match=sentence):
        open_task(tmp_path / "pics")


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"


@pytest.mark.parametrize("first", [POSTSCRIPT, b"%PDF-1.4\n"])
def test_only_image_formats_are_decoded(first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would hand PostScript to Ghostscript, whatever the file is called."""
    started: list[object] = []
    monkeypatch.setattr("subprocess.Popen", lambda *given, **options: started.append(given))
    (tmp_path / "evil.png").write_bytes(first)
    for read in (header, lambda path: read_image(path, 3, 8)):
        with pytest.raises(OdeumError, match=r"evil\.png' is not a readable image"):
            read(tmp_path / "evil.png")
    assert not started


def test_folders_named_by_letters_are_classes(tmp_path: Path) -> None:
    """x and y are images and targets only where nothing else stands beside them."""
    for letter in "wxyz":
        (tmp_path / "letters" / letter).mkdir(parents=True)
    refuse_strange_classes(tmp_path / "letters", "wxyz")
    with pytest.raises(OdeumError, match="segmentation"):
        refuse_strange_classes(tmp_path / "letters", ("x", "y"))
