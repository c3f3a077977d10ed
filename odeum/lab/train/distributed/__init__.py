"""The processes that train together: alone, with a copy of the model each, or with a shard each."""
