"""Findings as people read them: on a terminal, as one HTML file, and as PNG files.

`rows` decides which figures a table shows and in which words; the views decide only how it looks.
Nothing here computes a figure of `run.json`.
"""
