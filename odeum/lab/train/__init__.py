"""One run: the training loop, checkpoints, resuming."""
