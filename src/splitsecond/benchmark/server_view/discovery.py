"""Where the servers of a run tell what they do: found at the places of known engines, or given by
the user."""

import os
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit, urlunsplit

import msgspec

from splitsecond.benchmark.server_view.engines import engines, engines_of
from splitsecond.benchmark.server_view.gpus import Gpus
from splitsecond.benchmark.server_view.reader import MAX_PAGE, MetricsPage
from splitsecond.benchmark.server_view.samples import ServerSource
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.spec import TargetSpec, api_key
from splitsecond.core.wording import ENGINE, SIMULATED, listed
from splitsecond.routing.configuration.discovery import LIST_ERRORS, fetch

TIMEOUT_S = 2.0
GPUS_TITLE = "NVIDIA GPUs of this machine"


class FoundPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages to read during a run, and what the run's folder records about them."""

    pages: list[MetricsPage] = []
    sources: list[ServerSource] = []

    def in_words(self) -> list[str]:
        read = [f"{each.title} ({each.url})" if each.url else each.title for each in self.sources]
        return [f"Reading the metrics of {listed(read)} once a second."] if read else []


class _Place(msgspec.Struct, kw_only=True):
    engines: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    targets: list[str] = []


def find_pages(specs: Mapping[str, TargetSpec], texts: Sequence[str] = ()) -> FoundPages:
    """Return the pages of the servers of `specs`, by target, and those in `texts`: each is
    ``[TARGET=]URL``.

    Only servers without TLS are asked at the known places: they are those of the user. No answer
    within `TIMEOUT_S` is no answer. GPUs of this machine are read if a target runs on it. Raises
    `CallerFault` for a given page that cannot be read or is of no known engine, and for a target
    that the run does not have.
    """
    own = {name: spec for name, spec in specs.items() if spec.base_url.startswith("http://")}
    by_url: dict[str, _Place] = {}
    for text in texts:
        targets, url = _given(text, specs)
        by_url.setdefault(url, _Place(engines=_recognised(url))).targets.extend(targets)
    _ask_known_places(own, by_url)
    local = [name for name, spec in own.items() if _is_here(name, spec)]
    if local and _has_gpus():
        by_url[""] = _Place(targets=local)
    pages = [
        MetricsPage(number=number, engines=page.engines, url=url, headers=page.headers)
        for number, (url, page) in enumerate(by_url.items())
    ]
    sources = [
        ServerSource(
            number=number,
            title=listed([engines()[name].title for name in page.engines]) or GPUS_TITLE,
            url=_shown(url),
            targets=list(dict.fromkeys(page.targets)),
        )
        for number, (url, page) in enumerate(by_url.items())
    ]
    return FoundPages(pages=pages, sources=sources)


def _ask_known_places(own: Mapping[str, TargetSpec], by_url: dict[str, _Place]) -> None:
    """Ask the servers of `own` for the pages of known engines, and add those that answer to
    `by_url`."""
    keys = {_root(spec): _key(spec) for spec in own.values()}
    places = list(dict.fromkeys(place for spec in own.values() for place in _places(spec)))
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda at: _engines_at(at[0], at[1], keys[at[0]]), places))
    for (root, place), names in zip(places, answers, strict=True):
        if names:
            page = by_url.setdefault(_url(root, place), _Place(engines=names))
            page.headers = keys[root]
            page.targets += [name for name, spec in own.items() if _root(spec) == root]


def _given(text: str, specs: Mapping[str, TargetSpec]) -> tuple[list[str], str]:
    target, equals, url = text.partition("=")
    if not equals or "://" in target:  # a URL may contain "="
        target, url = "", text
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise CallerFault(
            "metrics: an address must have no user or password, because "
            "the run's folder would keep it",
            kind="bad_metrics",
            param="metrics",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CallerFault(
            f"metrics: got {text!r}, expected the address of a page such as http://127.0.0.1:8000/metrics",
            kind="bad_metrics",
            param="metrics",
        )
    if target and target not in specs:
        raise CallerFault(
            f"metrics: the run has no target {target!r}", kind="bad_metrics", param="metrics"
        )
    return [target] if target else list(specs), url


def _recognised(url: str) -> tuple[str, ...]:
    try:
        page = fetch(url, timeout_s=TIMEOUT_S, most=MAX_PAGE).decode("utf-8", "replace")
    except LIST_ERRORS as error:
        raise CallerFault(
            f"metrics: {_shown(url)} cannot be read: {error}",
            kind="bad_metrics",
            param="metrics",
            hint="Are the server's metrics switched on? docs/server-view.md "
            "says how for each engine.",
        ) from None
    if not (engine_names := engines_of(page)):
        titles = ", ".join(each.title for each in engines().values())
        raise CallerFault(
            f"metrics: {_shown(url)} has no metric that we know. Known are: {titles}",
            kind="bad_metrics",
            param="metrics",
        )
    return engine_names


def _root(spec: TargetSpec) -> str:
    return spec.base_url.rstrip("/").removesuffix("/v1")


def _places(spec: TargetSpec) -> list[tuple[str, str]]:
    simulated = spec.name.startswith((SIMULATED, ENGINE))
    places = dict.fromkeys(place for engine in engines().values() for place in engine.places)
    return [(_root(spec), place) for place in places if place == "/metrics" or not simulated]


def _url(root: str, place: str) -> str:
    if not place.startswith(":"):
        return root + place
    parts = urlsplit(root)
    port, _, path = place.partition("/")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return urlunsplit((parts.scheme, f"{host}{port}", f"/{path}", "", ""))


def _engines_at(root: str, place: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what has a page at this place, if one is an engine whose page is known to be there;
    otherwise nothing."""
    try:
        sent = {} if place.startswith(":") else headers
        page = fetch(_url(root, place), timeout_s=TIMEOUT_S, headers=sent, most=MAX_PAGE)
    except LIST_ERRORS:
        return ()
    engine_names = engines_of(page.decode("utf-8", "replace"))
    return engine_names if any(place in engines()[name].places for name in engine_names) else ()


def _key(spec: TargetSpec) -> dict[str, str]:
    """Return the header with the key of a target: llama.cpp asks for it at its metrics too."""
    key = api_key(spec, os.environ) if spec.auth == "bearer" else None
    return {"authorization": f"Bearer {key}"} if key else {}


def _is_here(name: str, spec: TargetSpec) -> bool:
    host = urlsplit(spec.base_url).hostname or ""
    here = host in ("localhost", "::1", socket.gethostname()) or host.startswith("127.")
    return here and not name.startswith(SIMULATED)


def _has_gpus() -> bool:
    try:
        Gpus()
    except OSError:
        return False
    return True


def _shown(url: str) -> str:
    """Return an address without its query, which may have keys."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
