"""Without any extra every module loads, or says in a sentence what is missing; so does every verb that needs one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = (
    *("transformers", "accelerate", "peft", "huggingface_hub", "timm", "torchvision", "onnx", "onnxscript"),
    *("onnxruntime", "datasets", "pyarrow", "tensorboard", "trackio", "wandb", "mlflow", "ray", "submitit", "h5py"),
)
CODE = """
import importlib, importlib.util, pkgutil, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.partition(".")[0] in OPTIONAL else find(name, *rest)
sys.modules.update(dict.fromkeys(OPTIONAL))

import odeum
from odeum.lab.cli import main
from odeum.errors import OdeumError

for module in pkgutil.walk_packages(odeum.__path__, "odeum.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except OdeumError as error:
        print("module", module.name, error)
import numpy
from odeum.models import assemble
from odeum.registry.spelling import parse
from odeum.lab.tasks import open_task
from odeum.lab.train.origin import write_run
from odeum.lab.train.run import with_changes
numpy.savez("set.npz", images=numpy.arange(1920, dtype="uint8").reshape(30, 8, 8), labels=numpy.arange(30) % 2)
task = open_task("set.npz")
model = assemble(parse("parallel"), with_changes(task.model(), {"width": 8, "heads": 2, "depth": 1}))
from pathlib import Path
write_run(Path("run"), model, task, {}, "")
Path("rows.parquet").write_bytes(b"PAR1 and so on PAR1")
for line in LINES:
    print("verb", line, flush=True)
    code = main(line.split())
    print("code", code, flush=True)
"""
LINES = {
    "export run out --to hf": "odeum.hf needs transformers; `pip install odeum[hf]`",
    "export run out --to onnx": "needs onnx, onnxscript, onnxruntime; `pip install odeum[export]`",
    "import somebody/model": "needs `pip install odeum[hf]`",
    "train rows.parquet": "need pyarrow; `pip install odeum[data]`",
    "train set.npz --track tensorboard": "`pip install odeum[track]`",
    "train set.npz --track wandb": "`pip install wandb`",
    "train set.npz --track mlflow": "`pip install mlflow`",
    "train set.npz --track trackio": "`pip install trackio`",
}


@pytest.mark.slow
def test_every_missing_extra_is_a_sentence(tmp_path: Path) -> None:
    code = f"OPTIONAL = {OPTIONAL!r}\nLINES = {list(LINES)!r}\n{CODE}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert found.returncode == 0 and "Traceback" not in found.stderr, found.stderr
    missing = {line.split()[1] for line in found.stdout.splitlines() if line.startswith("module ")}
    assert missing == {"odeum.hf", "odeum.interop.timm", "odeum.lab.hf_run"}, missing
    assert found.stdout.count("code 2\n") == len(LINES), found.stdout + found.stderr
    for line, sentence in LINES.items():
        assert sentence in found.stderr, (line, found.stderr)
    assert not (tmp_path / "out").exists()
