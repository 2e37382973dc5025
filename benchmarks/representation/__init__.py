"""Paper 4, public representations: Figure 3, Section 4 and probes."""
