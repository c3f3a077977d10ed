"""ListOps by the rules of the Long Range Arena: nested MIN, MAX, MED and SM (sum modulo 10) of digits."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable

from odeum.errors import OdeumError
from odeum.lab.data.homes import cache, write_atomically
from odeum.lab.tasks.listops import ListOpsData

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: (sorted(values)[len(values) // 2] + sorted(values)[(len(values) - 1) // 2]) // 2,
    "[SM": lambda values: sum(values) % 10,
}
CLOSE = "]"
DIGITS = [str(i) for i in range(10)]
SYMBOLS = [*DIGITS, *OPERATORS, CLOSE]
P_OPERATOR = 0.25  # at each node except the root, which is always an operation

Example = tuple[str, int]


class _TooLong(Exception):
    pass


class Generator:
    """Draws expressions from a seeded random stream."""

    def __init__(self, options: ListOpsData) -> None:
        self.options = options
        self.random = random.Random(options.seed)
        self.names = list(OPERATORS)
        self.depth, self.most, self.args = options.max_depth, options.max_length, options.max_args

    def expression(self, depth: int, out: list[str], pending: int) -> int:
        """Append one operation to `out` and return its value; at least `pending` tokens will follow."""
        draw = self.random.random
        name = self.names[int(draw() * 4)]
        count = 2 + int(draw() * (self.args - 1))
        out.append(name)
        pending += count + 1
        if len(out) + pending >= self.most:  # it can only grow
            raise _TooLong
        values = []
        for _ in range(count):
            pending -= 1
            if depth + 1 < self.depth and draw() <= P_OPERATOR:
                values.append(self.expression(depth + 1, out, pending))
            else:
                value = int(draw() * 10)
                values.append(value)
                out.append(DIGITS[value])
        out.append(CLOSE)
        return OPERATORS[name](values)

    def examples(self, count: int) -> list[Example]:
        """Different expressions whose length lies strictly between the limits (closing brackets count)."""
        expressions: dict[str, int] = {}
        tries = 0
        while len(expressions) < count:
            tries += 1
            if tries > 2000 * (count + 100):
                raise OdeumError(
                    f"expressions of {self.options.min_length} to {self.options.max_length} tokens are too rare at "
                    f"max_depth {self.options.max_depth} and max_args {self.options.max_args}; widen one of them"
                )
            out: list[str] = []
            try:
                value = self.expression(1, out, 0)
            except _TooLong:
                continue
            if self.options.min_length < len(out) < self.options.max_length:
                expressions.setdefault(" ".join(out), value)
        return list(expressions.items())


def load_listops(options: ListOpsData) -> dict[str, list[Example]]:
    """The three parts, generated once and cached."""
    if options.max_length - options.min_length < 2 or options.max_args < 2 or options.count < 10:
        raise OdeumError(
            f"ListOps needs max_length above min_length + 1, max_args ≥ 2 and count ≥ 10, not "
            f"{options.min_length}, {options.max_length}, {options.max_args} and {options.count}"
        )
    held = min(2000, options.count // 10)
    sizes = (options.min_length, options.max_length, options.max_depth, options.max_args, options.count, options.seed)
    path = cache() / "listops" / f"{'-'.join(map(str, sizes))}.json"
    try:
        examples = [tuple(item) for item in json.loads(path.read_text())]
    except (OSError, ValueError):
        examples = Generator(options).examples(options.count + 2 * held)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs only time
            write_atomically(path, json.dumps(examples).encode())
    ends = {
        "train": (0, options.count),
        "valid": (options.count, options.count + held),
        "test": (options.count + held, None),
    }
    return {part: examples[slice(*end)] for part, end in ends.items()}
