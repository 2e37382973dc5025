"""What `dpadapt demo` shows: transfer beside its alternatives, and one panel for each other kind of help."""
