"""Findings as people read them: on a terminal (`terminal`, `live`), as one HTML file (`run_page`, `watch_page`), and as
PNG files (`plots`).

Every view is made from the same two inputs, `benchmark.findings.findings.Run` and its observations. `rows` decides
which figures a table shows and in which words; the views decide only how it looks. Nothing here computes a figure of
`run.json`. Texts from providers and users are escaped by the templates of a page (`html`), and lose their control
characters on a terminal (`figure_cells.safe_text`).
"""
