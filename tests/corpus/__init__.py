"""Bad command lines, data files and run folders, each with a fragment of the sentence that is said of it."""
