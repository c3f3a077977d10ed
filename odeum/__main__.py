"""`python -m odeum` is `odeum`: what torchrun starts."""

import sys

from odeum.lab.cli import main

sys.exit(main())
