"""Many runs: on the cores and GPUs of this machine, on a Ray cluster, or under Slurm.

Each run is an ordinary resumable run in its own folder, and its number of threads is part of its plan. So every
launcher gives the same bits, can be interrupted, and continues runs that another launcher began.
"""
