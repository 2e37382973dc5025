"""Reports: results as a plain dictionary first, then as a terminal table or one self-contained HTML page.

Plots are inline SVG: a page stays at some tens of kilobytes, needs no script and no network, follows the reader's
light or dark theme, and prints.
"""
