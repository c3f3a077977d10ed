"""Names of methods, fields, architectures and kinds of tasks; plugins; spellings of options."""
