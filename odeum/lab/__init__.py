"""Everything that runs experiments: data, tasks, training, studies, commands."""
