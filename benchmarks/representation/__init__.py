"""Paper 4, public representations: its Figure 3, and the probes of Section 4."""
