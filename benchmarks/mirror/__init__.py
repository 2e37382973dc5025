"""Paper 2, public data as the mirror map: its figures, theorems and networks."""
