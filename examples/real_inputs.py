"""Write public reaction SMILES or antibody sequences as lines that the imported models read.

    python examples/real_inputs.py reactions example_rxns.csv > reactions.txt
    python examples/real_inputs.py antibodies TheraSAbDab_SeqStruc_OnlineDownload.csv > antibodies.txt

`example_rxns.csv` is examples/example_rxns.csv of rxn4chemistry/rxnmapper on GitHub: reactions of US patents, one token
per SMILES symbol here, as rxnmapper's tokenizer cuts them. The other file is Thera-SAbDab's download: the variable
domains of therapeutic antibodies. iglm's package has no tokenizer file, so its tokens are written as their numbers:
chain, species (human), residues, [SEP].
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator

SMILES = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9])"
)
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
SEP, FIRST_RESIDUE, HUMAN, HEAVY, LIGHT = 3, 5, 26, 31, 32
LONGEST_REACTION, LONGEST_CHAIN = 400, 200
"""tokens of a line; the models read 512"""


def reactions(rows: Iterator[dict[str, str]]) -> Iterator[str]:
    """Tokens with spaces between; reactions that the pattern does not read whole are left out."""
    for row in rows:
        tokens = SMILES.findall(row["rxn"])
        if "".join(tokens) == row["rxn"] and len(tokens) <= LONGEST_REACTION:
            yield " ".join(tokens)


def antibodies(rows: Iterator[dict[str, str]]) -> Iterator[str]:
    """One line per variable domain, each sequence once."""
    known: set[str] = set()
    for row in rows:
        for column, chain in (("HC", HEAVY), ("LC", LIGHT)):
            sequence = (row.get(column) or "").strip().upper()
            if sequence in known or not 80 <= len(sequence) <= LONGEST_CHAIN or set(sequence) - set(RESIDUES):
                continue
            known.add(sequence)
            yield " ".join(map(str, (chain, HUMAN, *(FIRST_RESIDUE + RESIDUES.index(r) for r in sequence), SEP)))


if __name__ == "__main__":
    kind, path = sys.argv[1:]
    with open(path, newline="") as file:
        rows = iter(csv.DictReader(file))
        for line in {"reactions": reactions, "antibodies": antibodies}[kind](rows):
            print(line)
