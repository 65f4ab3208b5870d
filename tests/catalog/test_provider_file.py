"""Adding a provider is adding one file; one with a mistake is refused, with file, field and what
may be meant."""

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from splitsecond.core.catalog import provider as catalogue
from splitsecond.core.catalog.prices import price
from splitsecond.core.catalog.provider import Provider, names, provider
from splitsecond.core.errors import CallerFault

DOCUMENTED = Path(__file__).parents[2] / "docs" / "add-a-provider.md"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Provider]:
    """A catalogue with one file in it, example.toml, read."""

    def add(text: str) -> Provider:
        (tmp_path / "providers").mkdir(exist_ok=True)
        (tmp_path / "providers" / "example.toml").write_text(text, "utf-8")
        monkeypatch.setattr(resources, "files", lambda _: tmp_path)
        for cached in ("_names", "_read"):
            monkeypatch.setattr(catalogue, cached, getattr(catalogue, cached).__wrapped__)
        return provider("example")

    return add


def documented() -> str:
    """The whole file that the guide makes, with all that it shows of quirks and models."""
    blocks = re.findall(r"```toml\n(.*?)```", DOCUMENTED.read_text("utf-8"), re.DOTALL)
    return "\n".join(blocks)


def test_the_file_of_the_guide_is_a_provider(added: Callable[[str], Provider]) -> None:
    found = added(documented())
    assert names() == ["example"]
    assert (found.name, found.base_url, found.api_key_env) == (
        "example",
        "https://api.example.com/v1",
        ("EXAMPLE_API_KEY",),
    )
    assert found.quirks["usage"] == "last_chunk"
    model = found.model(found.default_model)
    assert (model.context_tokens, model.replaced_by) == (131072, "")
    stated = price("example/their-model")
    assert stated is not None
    assert (stated.input_usd, stated.output_usd, stated.as_of) == (0.2, 0.6, "2026-11-21")
    assert [speed.summary for speed in model.speeds] == [
        "310 ms (p95 480), 140 tok/s (p95 118) (c=1)"
    ]
    assert provider("example-eu").base_url == "https://eu.api.example.com/v1"
    assert found.distances[0].summary == "best from US East; EU +60–120 ms"


WRONG = [
    (
        'title = "Example AI"',
        'titel = "Example AI"',
        "Object contains unknown field `titel`. Did you mean title",
    ),
    ('title = "Example AI"', "", "Object missing required field `title`"),
    ('title = "Example AI"', 'title = "Example AI', "Illegal character"),
    (
        '"https://api.example.com/v1"',
        '"api.example.com/v1"',
        "base_url: got api.example.com/v1, expected an address",
    ),
    (
        '"https://api.example.com/v1"',
        '"https://api.example.com/v1/"',
        "base_url: got https://api.example.com/v1/, expected no / at",
    ),
    (
        '"https://api.example.com/v1"',
        '"https://api.example.com/{}"',
        "base_url: got https://api.example.com/{}, expected a variable",
    ),
    (
        '"https://eu.api.example.com/v1"',
        '"https://{EU}/v1/{"',
        "regions.eu.base_url: got https://{EU}/v1/{, expected a variable",
    ),
    ('["EXAMPLE_API_KEY"]', '"EXAMPLE_API_KEY"', "api_key_env: Expected `array`, got `str`"),
    (
        'source = "https://docs',
        'auth = "Bearer"\nsource = "https://docs',
        "auth: Invalid enum value 'Bearer'. Expected one of bearer, x-api-key",
    ),
    (
        'source = "https://docs',
        'prefill = "yes"\nsource = "https://docs',
        "prefill: Invalid enum value 'yes'. Expected one of plain, prefix, partial",
    ),
    ('checked = "2026-11-21"', "checked = 2026-11-21", "checked: Expected `str`, got `date`"),
    (
        "eu = {",
        'eu = { url = "x",',
        "regions.eu: Object contains unknown field `url`. Did you mean base_url?",
    ),
    (
        "context_tokens = 131072",
        'context_tokens = "128K"',
        "models.their-model.context_tokens: Expected `int | null`, got `str`",
    ),
    (
        "tps = 140",
        "tsp = 140",
        "models.their-model.speeds[0]: Object contains unknown field `tsp`. Did you mean tps",
    ),
    (
        "input_usd = 0.20",
        "input = 0.20",
        "models.their-model.price: unknown field `input`. Did you mean input_usd?",
    ),
    (
        "tps = 140",
        'tps = "fast"',
        "models.their-model.speeds[0].tps: Expected `float | array | null`, got `str`",
    ),
    ("EU = [60, 120]", "EU = [60]", "distances[0].added_ms[...]: Expected `array` of length 2"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "said"), WRONG, ids=[wrong or "none" for _, wrong, _ in WRONG]
)
def test_a_mistake_is_named(
    right: str, wrong: str, said: str, added: Callable[[str], Provider]
) -> None:
    assert right in documented()
    with pytest.raises(CallerFault) as refused:
        added(documented().replace(right, wrong, 1))
    assert refused.value.kind == "bad_catalogue"
    assert str(refused.value).startswith(f"catalog/providers/example.toml: {said}")


def test_the_price_of_a_long_prompt_is_checked_too(added: Callable[[str], Provider]) -> None:
    rates = "above_tokens = 1, input_usd = 1, output_usd = 1, chached_usd = 1"
    with pytest.raises(
        CallerFault, match=r"models\.m\.price\.tiers\[0\]: unknown field `chached_usd`.*cached_usd"
    ):
        added(f'title = "X"\nbase_url = "https://x"\n[models.m.price]\ntiers = [{{ {rates} }}]\n')


def test_provider_file_that_is_not_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.toml").write_bytes(b"title = '\xff'")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(catalogue, "_names", catalogue._names.__wrapped__)
    with pytest.raises(CallerFault, match=r"catalog/providers/mine\.toml: .*can't decode"):
        provider("mine")
