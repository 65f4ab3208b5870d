"""Plot of speed against price, of a run or of a log."""

from collections.abc import Mapping

from splitsecond.core.money.cost import usd
from splitsecond.core.pages.axis import fitted
from splitsecond.core.pages.chart import Chart, LegendEntry, Plot, picture
from splitsecond.core.pages.figure_cells import number
from splitsecond.log.production.speed_and_price import SpeedAndPrice


def speed_against_price(
    comparison: SpeedAndPrice | None, entries: Mapping[str, LegendEntry]
) -> list[Plot]:
    if comparison is None:
        return []
    points = sorted(comparison.targets, key=lambda p: p.usd_per_million)
    best = [p for p in points if p.frontier == "yes"]
    chart = Chart(
        fitted("US dollars per million tokens", [p.usd_per_million for p in points]),
        fitted(f"{comparison.figure} p50, tokens/s", [p.tps for p in points]),
    )
    chart.add(None, chart.line([(p.usd_per_million, p.tps) for p in best], steps=True, dash=True))
    for p in points:
        price = f"{usd(p.usd_per_million)} per million"
        tip = (
            f"{p.target}\n{comparison.figure} p50 {number(p.tps)}\n{price}\nfrontier: {p.frontier}"
        )
        mark = chart.mark(entries[p.target], p.usd_per_million, p.tps, tip, size=6)
        chart.add(entries[p.target], mark, look="" if p.frontier == "yes" else "hollow")
    return [
        picture(
            chart,
            name="speed-price",
            section="money",
            title="Speed against price",
            description=f"{comparison.figure} of one request against the cost of a million tokens. "
            "Further up is faster, further left is cheaper. The dashed line joins the targets that "
            f"no other beats on both, with filled marks: {', '.join(p.target for p in best)}.",
        )
    ]
