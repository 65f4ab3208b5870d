"""Findings for the eye: on a terminal (`terminal`, `live`), as one HTML file (`html`), as PNG files (`pictures`).

Every view is made from the same two inputs, `analysis.findings.Run` and the observations behind it, and prints the
same rows: `rows` decides what stands in a table and in which words, the views only how it looks. Nothing here computes
a figure that `run.json` holds. Strings that a provider or a user chose are escaped where they enter a page
(`markup.tag`) and stripped of control characters where they enter a terminal (`rows.printable`).
"""
