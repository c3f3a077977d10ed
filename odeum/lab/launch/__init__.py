"""Many runs: on the cores and GPUs of this machine, on a Ray cluster, or under Slurm.

A run is the ordinary resumable one in a folder of its own, and how many threads it has is part of its plan. So every
launcher gives the same bits, can be interrupted, and continues what another one began.
"""
