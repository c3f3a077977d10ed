"""Which layer is worth it: what is run, and what a few seeds can tell."""
