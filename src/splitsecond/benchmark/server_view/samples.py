"""What is read of a server during a run, as `server.jsonl` in the run's folder has it."""

from collections.abc import Iterable, Sequence

from msgspec import Struct


class ServerSource(Struct, frozen=True, kw_only=True, tag="source"):
    """One page of metrics, or the GPUs of this machine. `number` tells it from the others of the
    run.

    `targets`: the names of the targets that it is about. `title`: the engine, or what reports the
    GPUs. `url`: "" for the GPUs of this machine.
    """

    number: int
    title: str
    url: str
    targets: list[str]


class ServerSample(Struct, frozen=True, kw_only=True, tag="sample"):
    """The values of one source at one moment, by term (`terms.TERMS`).

    `at_ns`: the middle of the time in which it was read, on the monotonic clock. `failed`: why
    there are no values.
    """

    source: int
    at_ns: int
    values: dict[str, float] = {}
    failed: str = ""


ServerRecord = ServerSource | ServerSample


class ServerSeries:
    """What was read during a run: the samples of each source, in order of time."""

    def __init__(self, records: Iterable[ServerRecord]) -> None:
        self.sources: list[ServerSource] = []
        self._samples: dict[int, list[ServerSample]] = {}
        for record in records:
            self.add(record)

    def __bool__(self) -> bool:
        return bool(self.sources)

    def add(self, record: ServerRecord) -> None:
        if isinstance(record, ServerSource):
            self.sources.append(record)
        elif record.values:
            self._samples.setdefault(record.source, []).append(record)

    def has(self, term: str) -> bool:
        return any(
            term in sample.values for samples in self._samples.values() for sample in samples
        )

    def of_target(self, target: str) -> list[Sequence[ServerSample]]:
        return [
            self._samples.get(each.number, []) for each in self.sources if target in each.targets
        ]

    def title(self, target: str) -> str:
        """Return the engine of a target; "" if no page of it was read."""
        return next(
            (each.title for each in self.sources if target in each.targets and each.url), ""
        )


def source_with(term: str, sources: Iterable[Sequence[ServerSample]]) -> Sequence[ServerSample]:
    """Return the samples of the first source that has a value of `term`; none if no source does."""
    return next((each for each in sources if any(term in s.values for s in each)), ())
