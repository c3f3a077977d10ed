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
def onednn_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every processor is one on which oneDNN is the faster library, and no product is too small for it."""
    from odeum.kernels import linear, matmul

    monkeypatch.setattr(matmul, "faster_here", lambda: True)
    monkeypatch.setattr(matmul, "LEAST_PRODUCT", 1)
    monkeypatch.setattr(linear, "LEAST_MAP", 1)


@pytest.fixture
def onednn_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of what oneDNN was asked to multiply: a dispatch mode would keep it from being asked."""
    from odeum.kernels.matmul import OneDnnBackend

    seen: list[tuple[int, ...]] = []
    ask = OneDnnBackend.linear

    def asked(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return ask(x, *rest)

    monkeypatch.setattr(OneDnnBackend, "linear", staticmethod(asked))
    return seen
