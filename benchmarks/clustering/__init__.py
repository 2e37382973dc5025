"""Paper 5, source-target clustering: its figures on synthetic and real sets."""
