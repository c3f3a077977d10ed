"""Read off what learned residual scalars became, and spell the fixed method that they round to.

    python benchmarks/discover.py runs/league-season-1/language/64x4

prints λ and μ of each layer, mean and range over the seeds of `residual-scalars` in the directory of a comparison, and
a spelling to enter beside it: `odeum league PLAN --entries residual-scalars:stream=0.98,input=0.05`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import torch
from torch import nn

import odeum
from odeum.errors import OdeumError
from odeum.integrators.residual_scalars import ResidualScalars

Rows = list[list[tuple[float, float]]]
"""λ and μ by model and layer"""


def coefficients(models: Sequence[nn.Module]) -> Rows:
    """Returns λ and μ of each layer of each model; raises `OdeumError` for a model without learned ones."""
    rows = []
    for model in models:
        methods = [part for part in model.modules() if isinstance(part, ResidualScalars) and part.fixed is None]
        if not methods:
            raise OdeumError("a model has no learned residual scalars; give runs of residual-scalars")
        with torch.no_grad():
            pairs = [method.coefficients() for method in methods]
            rows.append([(1.0 + float(stream), float(given)) for stream, given in pairs])
    return rows


def spelling(rows: Rows) -> str:
    """Returns the fixed method: means over layers and models, to two decimals."""
    stream, given = (mean(pair[i] for row in rows for pair in row) for i in (0, 1))
    return f"residual-scalars:stream={round(stream, 2):g},input={round(given, 2):g}"


def main(directory: str) -> None:
    folders = sorted(path.parent for path in Path(directory).glob("residual-scalars/seed-*/result.json"))
    if not folders:
        raise OdeumError(f"'{directory}' has no finished run of residual-scalars")
    rows = coefficients([odeum.load(folder).model for folder in folders])
    print(f"{len(rows)} seeds\nlayer  λ mean [least, most]          μ mean [least, most]")
    for layer, pairs in enumerate(zip(*rows, strict=True)):
        cells = [f"{mean(x):+.4f} [{min(x):+.4f}, {max(x):+.4f}]" for x in zip(*pairs, strict=True)]
        print(f"{layer:5}  {cells[0]}  {cells[1]}")
    print(spelling(rows))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OdeumError as error:
        sys.exit(f"discover: {error}")
