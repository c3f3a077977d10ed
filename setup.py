"""Puts the kept results of the papers' tables into the wheel, as odeum/results; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithResults(build_py):
    """Copies results/tables, which lies outside of the package, so that `odeum table` works from a wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # an editable install reads those of the checkout
            return
        target = Path(self.build_lib, "odeum", "results")
        self.mkpath(str(target))
        for path in sorted(Path("results", "tables").glob("*.jsonl")):
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": BuildWithResults})
