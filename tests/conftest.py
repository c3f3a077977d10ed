"""One thread and one seed, so that every test gives the same numbers on every machine."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a thread that waits leaves its core to the test beside

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    gc.freeze()  # what has been imported stays: no need to look through it again and again


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.set_num_threads(1)  # a run of the test before may have taken more
    torch.set_float32_matmul_precision("highest")  # and sent its products to oneDNN
    torch.default_generator.manual_seed(0)  # torch.manual_seed also notes a traceback for each device that is not here


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """For comparisons whose plots nobody asks about: half of their time. Others draw them: test_plots, test_report*,
    test_verbs and test_walk."""
    monkeypatch.setattr("odeum.lab.study.plots.draw", lambda findings, directory: [])


@pytest.fixture
def float64():
    """Theorems hold to rounding, so let rounding be small."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """The one sentence on stderr; nothing may stand on stdout."""

    def read() -> str:
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("odeum: "), err
        return err

    return read


@pytest.fixture
def onednn(seed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send products to oneDNN and take every processor for one on which it is faster."""
    monkeypatch.setattr("odeum.kernels.matmul.onednn_is_faster", lambda: True)
    torch.set_float32_matmul_precision("medium")
