"""Progress output during training: one live line in a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, Protocol, TextIO

from odeum.lab.terminal import LiveLine


def clock_time(seconds: float) -> str:
    """Format a duration: 75 becomes `1m15s`."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded}s"
    if rounded < 3600:
        return f"{rounded // 60}m{rounded % 60:02d}s"
    return f"{rounded // 3600}h{rounded % 3600 // 60:02d}m"


class Listener(Protocol):
    """Receives progress events of a run: a terminal, or the process that launched it."""

    quiet: bool

    def update(self, *, step: int, fraction: float, seconds: float, loss: float, rate: float, memory: int) -> None: ...

    def say(self, text: str) -> None: ...

    def metrics(self, step: int, metrics: dict[str, Any]) -> None: ...


class Progress:
    """Prints rate, loss, remaining time and memory; silent on all processes but the first."""

    def __init__(self, title: str, quiet: bool = False, stream: TextIO | None = None, every: float = 15.0) -> None:
        self.title = title
        self.quiet = quiet
        self.line = LiveLine(stream)
        self.every = 0.2 if self.line.live else every
        self.last = 0.0

    def update(self, *, step: int, fraction: float, seconds: float, loss: float, rate: float, memory: int) -> None:
        now = time.monotonic()
        if self.quiet or now - self.last < self.every:
            return
        self.last = now
        left = clock_time(seconds * (1 - fraction) / fraction) if fraction > 0 else "?"
        line = (
            f"{self.title}  {fraction:4.0%}  step {step}  loss {loss:.4f}  {rate:.0f}/s  "
            f"{left} left  {memory / 2**20:.0f} MiB"
        )
        self.line.write(line, stay=not self.line.live)

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if not self.quiet:
            self.line.write(f"{self.title}  {text}", stay=True)

    def metrics(self, step: int, metrics: dict[str, Any]) -> None:
        figures = "  ".join(f"{key} {value:.4g}" for key, value in metrics.items() if isinstance(value, float))
        self.say(f"step {step}  valid: {figures}")
