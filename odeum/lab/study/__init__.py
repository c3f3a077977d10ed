"""Many runs compared: design, statistics, verdicts, tables, plots and the page."""
