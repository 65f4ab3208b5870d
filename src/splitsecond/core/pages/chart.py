"""Charts: every plot of every page is an SVG drawing made here.

A drawing names no colour: marks have classes such as `target-3`, to which the style sheet gives
colours, so one drawing serves both themes. It needs no script: a tooltip is a `<title>` of its
mark.

Distances are pixels of a drawing `WIDTH` wide, which a page scales to the room that it has.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise

from msgspec import Struct

from splitsecond.core.pages.axis import Axis
from splitsecond.core.pages.theme import SHAPES

WIDTH = 520
HEIGHT = 280
MARGIN = 14
"""Pixels right of the plot area, and left of the labels of a vertical axis."""
ROW = 18
"""Pixels of one bar with the space to the next."""
NAMES = 176
NARROWEST = 0.15
"""Bars of fewer pixels are left out."""
CHARACTER, NARROW, LINE = 6.7, 6.9, 13
"""Mean width of a character, of one in a name, and height of a line, generous: a phone shows larger
text."""
CLEAR = 3
"""Pixels by which the first label of a horizontal axis may begin left of the area."""
PALETTE = 8
Point = tuple[float, float]


class LegendEntry(Struct, frozen=True, kw_only=True):
    """Meaning of one colour of a plot: `palette` and `index` name the colour, `shape` is one of
    `SHAPES` or ""."""

    label: str
    index: int
    palette: str = "target"
    shape: str = ""

    @property
    def key(self) -> str:
        """The name by which the marks of a plot and their entry in the legend find each other."""
        return f"{self.palette}-{self.index}"

    @property
    def colour(self) -> str:
        return f"{self.palette}-{self.index % PALETTE}"

    @property
    def path(self) -> str:
        return shape_path(self.shape or "square", 6, 6, 4.5)


Legends = Mapping[str, Mapping[str, LegendEntry]]


class Plot(Struct, frozen=True, kw_only=True):
    """One plot of a page. `name` is its identifier in the page and its file name.

    `description`: what it shows, in words, for readers who cannot see it. `legend`: "targets",
    "stages", "split", "steps", "session", "states", "grades" or "". `heading`: the title of its PNG
    file. `height`: pixels of `drawing`, the content of the SVG element.
    """

    name: str
    section: str
    title: str
    description: str
    legend: str
    heading: str
    height: float
    drawing: str

    @property
    def svg(self) -> str:
        return (
            f'<svg class="chart" id="plot-{self.name}" viewBox="0 0 {WIDTH} {px(self.height)}" '
            f'role="img" '
            f'aria-labelledby="{self.name}-t {self.name}-d"><title '
            f'id="{self.name}-t">{escape(self.heading)}</title>'
            f'<desc id="{self.name}-d">{escape(self.description)}</desc>{self.drawing}</svg>'
        )


class Chart:
    """A plot area with its axes, and the marks in it.

    Without a vertical axis, marks have their heights in pixels from the top of the area. `left`:
    pixels beside it.
    """

    def __init__(self, x: Axis, y: Axis | None, *, height: float = HEIGHT, left: float = 0) -> None:
        self.x, self.y = x, y
        self.top = 22.0 if y is not None and y.title else 8.0
        self.left = (
            left or MARGIN + 1.15 * CHARACTER * max((len(label) for _, label in y.ticks), default=0)
            if y
            else left
        )
        self.width = WIDTH - self.left - MARGIN
        self.height = height
        self._below = 20 + (16 if x.title else 0)
        self._marks: list[str] = []
        self._labels: list[tuple[float, float, float, float]] = []

    @property
    def whole_height(self) -> float:
        return self.top + self.height + self._below

    def across(self, value: float) -> float:
        return self.left + self.width * self.x.place(value)

    def down(self, value: float) -> float:
        if self.y is None:
            return self.top + value
        return self.top + self.height * (1 - self.y.place(value))

    def add(self, entry: LegendEntry | None, *marks: str, look: str = "") -> None:
        """Add marks in the colour of a legend entry; without one, in grey. `look`: a further
        class."""
        self._marks.append(self.group(entry, *marks, look=look))

    def add_row(self, y: float, name: str, *marks: str) -> None:
        """Add marks at the top of the area as a row at `y` pixels, which a script may move or hide
        by `name`."""
        row = (
            f'<g class="row" transform="translate(0 {px(y)})"><g '
            f'data-name="{escape(name)}">{"".join(marks)}</g></g>'
        )
        self._marks.append(row)

    def group(self, entry: LegendEntry | None, *marks: str, look: str = "") -> str:
        names = " ".join(filter(None, [entry.colour if entry else "grey", look]))
        key = f' data-key="{entry.key}"' if entry else ""
        return f'<g class="{names}"{key}>{"".join(marks)}</g>'

    def line(
        self, points: Iterable[Point], *, steps: bool = False, dash: bool = False, tip: str = ""
    ) -> str:
        """Return a line, cut at the edges of the area. `steps`: it goes right, then up or down."""
        inside = _cut([(self.across(x), self.down(y)) for x, y in points], self._box)
        if not inside:
            return ""
        return _path(
            "line dash" if dash else "line",
            "".join(_trace(part, steps=steps) for part in inside),
            tip,
        )

    def dots(self, points: Iterable[Point]) -> str:
        moves, x, y = [], 0.0, 0.0
        for at, value in points:
            if self.contains(at, value):
                to_x, to_y = round(self.across(at), 1), round(self.down(value), 1)
                moves.append(f"m{_by(to_x - x)}{_by(to_y - y, True)}h0")
                x, y = to_x, to_y
        return _path("dots", "".join(moves))

    def dot(self, x: float, y: float, tip: str) -> str:
        return (
            _path("dots", f"M{px(self.across(x))} {px(self.down(y))}h0", tip)
            if self.contains(x, y)
            else ""
        )

    def mark(
        self, entry: LegendEntry | None, x: float, y: float, tip: str = "", *, size: float = 4.5
    ) -> str:
        """Return the shape of an entry at a point; "" outside the area."""
        if not self.contains(x, y):
            return ""
        shape = entry.shape if entry and entry.shape else "circle"
        return _path("mark", shape_path(shape, self.across(x), self.down(y), size), tip)

    def band(self, rows: Sequence[tuple[float, float, float]]) -> str:
        upper = [(self.across(x), self.down(high)) for x, _, high in rows]
        lower = [(self.across(x), self.down(low)) for x, low, _ in reversed(rows)]
        edge = [(x, min(max(y, self.top), self.top + self.height)) for x, y in upper + lower]
        return _path("band", f"{_trace(edge)}z")

    def upright(self, x: float, low: float, high: float) -> str:
        at = px(self.across(x))
        return _path("range", f"M{at} {px(self.down(low))}V{px(self.down(high))}")

    def bars(
        self, places: Iterable[tuple[float, float, float]], height: float, tip: str = ""
    ) -> str:
        """Return horizontal bars as one mark. `places`: where each begins and ends, and its pixels
        from the top."""
        outlines = []
        for begin, end, y in places:
            left = self.across(begin)
            if self.across(end) - left < NARROWEST:
                continue
            wide = px(max(self.across(end) - left, 0.6))
            outlines.append(f"M{px(left)} {px(self.top + y)}h{wide}v{px(height)}h-{wide}z")
        return _path("bar", "".join(outlines), tip)

    def end_label(self, value: float, y: float, words: str) -> str:
        """Return the label of a bar that ends at a value, at pixels of the drawing.

        On a bar that is cut at the end of the axis it stands inside, with an arrow.
        """
        if value > self.x.high:
            words = f"{words} \N{BLACK RIGHT-POINTING TRIANGLE}"
            return self.text(self.left + self.width - 4, y, words, anchor="end", look="cut")
        return self.text(self.across(value) + 5, y, words)

    def hit(self, y: float, height: float, tip: str) -> str:
        """Return an invisible row at `y` pixels from the top of the area, for a tooltip of the
        marks in it."""
        right = px(self.left + self.width)
        return _path("hit", f"M0 {px(self.top + y)}H{right}v{px(height)}H0z", tip)

    def span(self, begin: float, end: float, y: float, tip: str = "") -> str:
        at = px(self.top + y)
        return _path("range", f"M{px(self.across(begin))} {at}H{px(self.across(end))}", tip)

    def upright_rule(self, x: float, text: str = "", tip: str = "") -> str:
        at, foot = self.across(x), self.top + self.height
        words = ""
        if text:
            words = self.label(at - 5, foot - 6, text, anchor="end")
            words = words or self.label(at + 5, foot - 6, text)
        return _path("rule", f"M{px(at)} {px(self.top)}V{px(foot)}", tip) + words

    def level_rule(self, y: float, text: str) -> str:
        at = self.down(y)
        line = _path("rule dash", f"M{px(self.left)} {px(at)}H{px(self.left + self.width)}")
        return line + self.label(self.left + 5, at - 5, text)

    def keep_clear(self, x: float, y: float, size: float) -> None:
        at, down = self.across(x), self.down(y)
        self._labels.append((at - size, down - size, at + size, down + size))

    def label(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        moves: Sequence[int] = (0, -1, 1, -2, 2, -3, 3),
    ) -> str:
        """Return a text in the area that touches no other label: at its place, or moved by a number
        of lines; "" without room for it."""
        wide = NARROW * len(words)
        left = x - wide if anchor == "end" else x
        if left < self.left or left + wide > WIDTH:
            return ""
        for lines in moves:
            at = y + lines * LINE
            box = left, at - LINE + 2, left + wide, at + 3
            if (
                box[1] >= self.top
                and box[3] <= self.top + self.height + 3
                and not any(
                    box[0] < other[2]
                    and other[0] < box[2]
                    and box[1] < other[3]
                    and other[1] < box[3]
                    for other in self._labels
                )
            ):
                self._labels.append(box)
                return self.text(x, at, words, anchor=anchor)
        return ""

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", look: str = "") -> str:
        place = f' text-anchor="{anchor}"' if anchor != "start" else ""
        names = f' class="{look}"' if look else ""
        return f'<text x="{px(x)}" y="{px(y)}"{place}{names}>{escape(words)}</text>'

    def name(self, words: str, y: float) -> str:
        """Return a target's name beside the area, centred at `y` pixels from its top.

        A name without room on one line has the provider above the model.
        """
        lines = _name_lines(words, self.left)
        begin = self.top + y + 4 - (LINE - 1) / 2 * (len(lines) - 1)
        return "".join(
            self.text(self.left - 8, begin + (LINE - 1) * at, line, anchor="end", look="name")
            for at, line in enumerate(lines)
        )

    def contains(self, x: float, y: float) -> bool:
        return self.x.shows(x) and (self.y is None or self.y.shows(y))

    @property
    def _box(self) -> tuple[float, float, float, float]:
        return self.left, self.top, self.left + self.width, self.top + self.height

    def drawing(self) -> str:
        return f"{self._axes()}{''.join(self._marks)}"

    def _axes(self) -> str:
        left, top, right, foot = self._box
        lines = [f"M{px(left)} {px(foot)}H{px(right)}"]
        words = []
        for value, label, anchor, at in self._horizontal_ticks():
            if self.x.grid:
                lines.append(f"M{px(self.across(value))} {px(top)}V{px(foot)}")
            words.append(self.text(at, foot + 16, label, anchor=anchor))
        for value, label in self._vertical_ticks():
            if self.y is not None and self.y.grid:
                lines.append(f"M{px(left)} {px(self.down(value))}H{px(right)}")
            words.append(self.text(left - 6, self.down(value) + 4, label, anchor="end"))
        if self.x.title:
            words.append(
                self.text(
                    (left + right) / 2, foot + 32, self.x.title, anchor="middle", look="title"
                )
            )
        if self.y is not None and self.y.title:
            words.append(self.text(0, 11, self.y.title, look="title"))
        return _path("grid", "".join(lines)) + "".join(words)

    def _horizontal_ticks(self) -> list[tuple[float, str, str, float]]:
        placed = [self._tick(value, label) for value, label in self.x.ticks if self.x.shows(value)]
        for every in range(1, len(placed) + 1):
            ticks = placed[::every]
            if all(before[5] + 8 <= after[4] for before, after in pairwise(ticks)):
                break
        else:
            ticks = placed[:1]
        return [each[:4] for each in ticks]

    def _tick(self, value: float, label: str) -> tuple[float, str, str, float, float, float]:
        """Return a tick with the anchor and the place of its label, and where that begins and ends.

        A label at an end of the axis stays clear of those of the vertical axis, and within the
        drawing.
        """
        at, wide = self.across(value), CHARACTER * len(label)
        if self.y is not None and self.y.ticks and at - wide / 2 < self.left - CLEAR:
            return value, label, "start", at - CLEAR, at - CLEAR, at - CLEAR + wide
        if at + wide / 2 > WIDTH:
            right = min(at, WIDTH - 1)
            return value, label, "end", right, right - wide, right
        return value, label, "middle", at, at - wide / 2, at + wide / 2

    def _vertical_ticks(self) -> list[tuple[float, str]]:
        ticks: list[tuple[float, str]] = []
        for value, label in self.y.ticks if self.y is not None else ():
            if all(abs(self.down(value) - self.down(other)) >= 9 for other, _ in ticks):
                ticks.append((value, label))
        return ticks


def align(*charts: Chart) -> None:
    """Give charts that have no marks yet the same left edge, so that their labels fit."""
    left = max(chart.left for chart in charts)
    for chart in charts:
        chart.left, chart.width = left, WIDTH - left - MARGIN


def name_height(words: str) -> float:
    """Return the pixels that `Chart.name` takes."""
    return (LINE - 1) * len(_name_lines(words, NAMES))


def picture(
    *charts: Chart,
    name: str,
    section: str,
    title: str,
    description: str,
    legend: str = "targets",
    heading: str = "",
) -> Plot:
    """Return charts below each other as a plot. `heading`: the title of its PNG file, if that
    differs from `title`."""
    drawings, height = [], 0.0
    for chart in charts:
        drawing = chart.drawing()
        drawings.append(
            f'<g transform="translate(0 {px(height)})">{drawing}</g>' if height else drawing
        )
        height += chart.whole_height
    return Plot(
        name=name,
        section=section,
        title=title,
        description=description,
        legend=legend,
        heading=heading or title,
        height=height,
        drawing="".join(drawings),
    )


def target_entries(targets: Sequence[str]) -> dict[str, LegendEntry]:
    return {
        name: LegendEntry(label=name, index=index, shape=SHAPES[index % len(SHAPES)])
        for index, name in enumerate(targets)
    }


def palette_entries(
    palette: str, labels: Sequence[str], *, from_end: bool = False
) -> dict[str, LegendEntry]:
    last = len(labels) - 1
    return {
        label: LegendEntry(label=label, palette=palette, index=last - at if from_end else at)
        for at, label in enumerate(labels)
    }


def shape_path(shape: str, x: float, y: float, r: float) -> str:
    arm = 0.38 * r
    corners: dict[str, Sequence[Point]] = {
        "square": ((-r, -r), (r, -r), (r, r), (-r, r)),
        "triangle": ((0, -1.15 * r), (1.15 * r, 0.9 * r), (-1.15 * r, 0.9 * r)),
        "inverted": ((0, 1.15 * r), (1.15 * r, -0.9 * r), (-1.15 * r, -0.9 * r)),
        "diamond": ((0, -1.3 * r), (1.3 * r, 0), (0, 1.3 * r), (-1.3 * r, 0)),
        "cross": (
            (-arm, -1.2 * r), (arm, -1.2 * r), (arm, -arm), (1.2 * r, -arm), (1.2 * r, arm),
            (arm, arm),
            (arm, 1.2 * r), (-arm, 1.2 * r), (-arm, arm), (-1.2 * r, arm), (-1.2 * r, -arm),
            (-arm, -arm),
        ),
    }  # fmt: skip
    if shape == "circle":
        return (
            f"M{px(x - r)} {px(y)}a{px(r)} {px(r)} 0 1 0 {px(2 * r)} 0a{px(r)} {px(r)} 0 1 0 "
            f"{px(-2 * r)} 0z"
        )
    return _trace([(x + dx, y + dy) for dx, dy in corners[shape]]) + "z"


def px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tip(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def _path(names: str, d: str, tip: str = "") -> str:
    if not d:
        return ""
    return (
        f'<path class="{names}" d="{d}">{_tip(tip)}</path>'
        if tip
        else f'<path class="{names}" d="{d}"/>'
    )


def _name_lines(words: str, left: float) -> list[str]:
    room = int((left - 10) / NARROW)
    first, slash, rest = words.partition("/")
    parts = (f"{first}/", rest) if slash and len(words) > room else (words,)
    return [line for part in parts for line in _broken(part, room)]


def _broken(words: str, room: int) -> list[str]:
    if len(words) <= room:
        return [words]
    end = words.rfind("-", 0, room) + 1 or room
    rest = words[end:]
    return [words[:end], rest if len(rest) <= room else f"{rest[: room - 1]}…"]


def _trace(points: Sequence[Point], *, steps: bool = False) -> str:
    """Return the path through points, in pixels. Relative distances are shorter; they are taken
    from rounded places."""
    (x, y), *others = ((round(x, 1), round(y, 1)) for x, y in points)
    segments = [f"M{px(x)} {px(y)}"]
    for to_x, to_y in others:
        across, down = to_x - x, to_y - y
        if steps or not across or not down:
            segments.append(
                (f"h{_by(across)}" if across else "") + (f"v{_by(down)}" if down else "")
            )
        else:
            segments.append(f"l{_by(across)}{_by(down, True)}")
        x, y = to_x, to_y
    return "".join(segments)


def _by(distance: float, second: bool = False) -> str:
    text = px(distance + 0.0).replace("0.", ".", 1) if abs(distance) < 1 else px(distance)
    text = "0" if text in ("", "-0", ".0") else text
    return f" {text}" if second and not text.startswith("-") else text


def _cut(points: Sequence[Point], box: tuple[float, float, float, float]) -> list[list[Point]]:
    parts: list[list[Point]] = []
    if len(points) == 1:
        return []
    for a, b in pairwise(points):
        inside = _clipped(a, b, box)
        if inside is None:
            continue
        if parts and parts[-1][-1] == inside[0]:
            parts[-1].append(inside[1])
        else:
            parts.append([*inside])
    return parts


def _clipped(
    a: Point, b: Point, box: tuple[float, float, float, float]
) -> tuple[Point, Point] | None:
    """Return the part of a segment inside a box (Liang and Barsky); None if none of it is."""
    left, top, right, foot = box
    begin, end = 0.0, 1.0
    dx, dy = b[0] - a[0], b[1] - a[1]
    slack = 0.01
    for change, room in (
        (-dx, a[0] - left + slack),
        (dx, right - a[0] + slack),
        (-dy, a[1] - top + slack),
        (dy, foot - a[1] + slack),
    ):
        if change == 0:
            if room < 0:
                return None
        elif change < 0:
            begin = max(begin, room / change)
        else:
            end = min(end, room / change)
    if begin > end:
        return None
    first = a if begin == 0 else (a[0] + begin * dx, a[1] + begin * dy)
    last = b if end == 1 else (a[0] + end * dx, a[1] + end * dy)
    return first, last
