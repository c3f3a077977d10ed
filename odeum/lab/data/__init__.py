"""Readers of published layouts and of a user's own files; what they hold becomes a task in `odeum.lab.tasks`."""
