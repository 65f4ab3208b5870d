"""Findings as people read them: on a terminal, as one HTML file, and as PNG files.

Every view is made from `benchmark.rows.records.Run` and its observations. `rows` decides which
figures a table shows and in which words; the views decide only how it looks. Nothing here computes
a figure of `run.json`. Texts from providers and users are escaped by the templates of a page
(`html`), and lose their control characters on a terminal (`figure_cells.safe_text`).
"""
