from collections.abc import Iterable

from splitsecond.core.catalog.model import Figure, PublishedSpeed
from splitsecond.core.catalog.model_names import model_name
from splitsecond.core.catalog.provider import provider, split_target
from splitsecond.core.errors import CallerFault
from splitsecond.log.production.against import FIGURES, KnownFigure, KnownSpeed


def published_speeds(targets: Iterable[str]) -> list[KnownSpeed]:
    """Return what the catalogue's sources publish of the targets' models at the same provider, for
    the lightest load of each source."""
    return [known for target in targets for known in _of_target(target)]


def _of_target(target: str) -> list[KnownSpeed]:
    try:
        name, model = split_target(target)
        models = provider(name).models
    except CallerFault:  # the user's own server: no speed of it is published
        return []
    lightest: dict[str, PublishedSpeed] = {}
    for listed, entry in models.items():
        if model_name(listed) == model_name(model):
            for speed in sorted(entry.speeds, key=lambda each: each.concurrency or 0):
                lightest.setdefault(speed.source, speed)
    found = [_known(target, speed) for speed in lightest.values()]
    return [each for each in found if each.figures]


def _known(target: str, speed: PublishedSpeed) -> KnownSpeed:
    figures = {name: _figure(getattr(speed, name)) for name in FIGURES}
    return KnownSpeed(
        target=target,
        source=f"{_publisher(speed.source)}, {speed.date}",
        load=f"at concurrency {speed.concurrency}" if speed.concurrency else "",
        figures={name: figure for name, figure in figures.items() if figure is not None},
        in_flight=speed.concurrency,
    )


def _publisher(source: str) -> str:
    """Return the name before the title and the sections."""
    return source.partition(",")[0].partition(" (")[0]


def _figure(published: Figure | None) -> KnownFigure | None:
    if published is None:
        return None
    return KnownFigure(None, *published) if isinstance(published, tuple) else KnownFigure(published)
