"""Reports: results as plain dictionaries first, then as terminal tables or one self-contained HTML page.

Plots are inline SVG. A page has some tens of kilobytes, needs no script and no network, follows the reader's light or
dark theme, and prints.
"""
