"""The pictures of a run, for a page or as PNG files.

`charts` gives Vega-Lite specifications without colours (see `theme`); `save_png` draws them, with the renderer that
`vl_convert` brings along: no browser, no network.
"""

from collections.abc import Iterable
from pathlib import Path

import vl_convert

from splitsecond.analysis.findings import Run
from splitsecond.report import series
from splitsecond.report.picture import Picture
from splitsecond.report.theme import LIGHT, vega_config
from splitsecond.timing.observation import Observation

PNG_WIDTH, PNG_SCALE = 860, 2


def charts(run: Run, observations: Iterable[Observation]) -> dict[str, Picture]:
    """Every picture that the run has something to show in, by name, in the order of the report."""
    from splitsecond.report import capacity_plots, plots  # altair: a third of a second that --help must not pay

    if run.capacity:
        found = [*capacity_plots.draw(run, run.capacity), *plots.throughput(run), *plots.stages(run)]
    else:
        found = plots.draw(run, series.samples(run, observations))
    return {picture.name: picture for picture in found}


def save_png(run: Run, observations: Iterable[Observation], folder: Path) -> list[Path]:
    """Write each picture into `folder` (made where it is missing) as NAME.png; returns the files. May raise OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in charts(run, observations).items():
        path = folder / f"{name}.png"
        spec = picture.spec | {"width": PNG_WIDTH}
        path.write_bytes(vl_convert.vegalite_to_png(spec, scale=PNG_SCALE, config=vega_config(LIGHT)))
        written.append(path)
    return written
