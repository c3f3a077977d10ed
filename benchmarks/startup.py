"""How long before the first step: `odeum train digits` and `odeum describe` beside `import torch`, in CPU seconds.

    script/bench startup            # about a minute; writes benchmarks/results/startup.json

Each is a process of its own, in turns; the ratio is the median over the rounds of (own time / time of `import torch`),
so smaller is better here. A training ends with its first optimizer step.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from turns import record

ROUNDS = 5
TELL = "import os, time; print('cpu', time.process_time(), flush=True); os._exit(0)"
CONTESTANTS = {
    "import torch": f"import torch\n{TELL}",
    "odeum describe": f"from odeum.lab.cli import main\nmain(['describe', 'parallel', '--model', 'deit_tiny'])\n{TELL}",
    "first step of odeum train digits": f"""
from odeum.lab.train.loop import Trainer

step = Trainer.take_step

def first(self, batch):
    step(self, batch)
    {TELL}

Trainer.take_step = first
from odeum.lab.cli import main
main(['train', 'digits', '--out', 'run'])
""",
}


def seconds(code: str) -> float:
    """CPU seconds of a fresh interpreter up to what it tells, in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=600, cwd=directory, env=environment
        )
    return float(done.stdout.splitlines()[-1].removeprefix("cpu "))


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(ROUNDS + 1):  # the first reads files into memory, and does not count
        for name, code in CONTESTANTS.items():
            found = seconds(code)
            if turn:
                taken[name].append(found)
    ratios = {}
    for name, times in taken.items():
        over = statistics.median(a / b for a, b in zip(times, taken["import torch"], strict=True))
        ratios[name] = {"CPU seconds": statistics.median(times), "in `import torch`": over}
        print(f"{name:34} {statistics.median(times):6.2f} s   × {over:.2f}")
    record("startup", {"ratios": ratios, "rounds": ROUNDS})


if __name__ == "__main__":
    main()
