"""Paper 1, private domain adaptation: its tables, figures and privacy claims."""
