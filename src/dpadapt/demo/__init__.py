"""What `dpadapt demo` shows: transfer side by side with its alternatives, and one panel for each other capability."""
