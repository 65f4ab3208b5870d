"""The parts of a text that are redacted as secrets, and those that are not."""

from tests.cases import each_case

from splitsecond.core.errors import EXCERPT_BYTES, CallerFault, excerpt
from splitsecond.core.redaction import redacted

SECRETS = [
    ("https://x.test/v1?key=SECRET", "https://x.test/v1?key=[key]"),
    ("https://x.test/v1?api-version=2024-10&API_KEY=a%20b&n=1", "https://x.test/v1?api-version=2024-10&API_KEY=[key]&n=1"),
    ("/v1?X-Amz-Signature=abc&X-Amz-Credential=d/e", "/"
    "v1?X-Amz-Signature=[key]&X-Amz-Credential=[key]"),
    ("?subscription-key=a&sig=b&access_token=c",
    "?subscription-key=[key]&sig=[key]&access_token=[key]"),
    ("cannot use 'http://me:pass@host:80/v1'", "cannot use 'http://[key]@host:80/v1'"),
    ("postgresql://me@host/db", "postgresql://[key]@host/db"),
    ("Authorization: Bearer abc123-def.456", "Authorization: Bearer [key]"),
    ("proxy-authorization: Basic bWU6cGFzczEyMw==", "proxy-authorization: Basic [key]"),
    ('{"x-api-key": "0a1b2c3d4e"}', '{"x-api-key": "[key]"}'),
    ("Incorrect API key provided: "
    "0a1b2c3d4e5f. Find yours.", "Incorrect API key provided: [key]. Find yours."),
    ("no such key sk-proj-0123456789", "no such key [key]"),
    ("got gsk_abc123DEF456, xai-abcdef123", "got [key], [key]"),
    ("key=AIzaSyA0123456789_x is leaked", "key=[key] is leaked"),
    ("Incorrect API key provided: "
    "sk-proj-********WXYZ. Find", "Incorrect API key provided: [key]. Find"),
    ("Your api key: ****WXYZ is invalid", "Your api key: [key] is invalid"),
    ("key sk-abcde***********wXyz, xai-Ab...yZ, gsk_Ab…yZ", "key [key], [key], [key]"),
    ("a token eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.x-y", "a token [key]"),
]  # fmt: skip
HARMLESS = [
    "no key: OPENAI_API_KEY2 is not set",
    "https://x.test/v1?api-version=2024-10-01&max_tokens=512&author=x&design=y&keyword=z",
    "Write postgresql://USER@HOST/DATABASE, http://USER:PASSWORD@HOST:PORT.",
    "sqlite:////var/lib/splitsecond.db",
    "HTTP 401: this token is not valid, Basic authentication is off",
    "the key in GROQ_API_KEY has characters that no HTTP header can carry",
    "max_tokens: 123456789 is more than the model's 8192 tokens",
    "max_tokens=100000 cannot be greater than max_model_len=2048",
    "request id req_011CSHoEeqs5C35K2UUqR7Fy",
    "keys[0].name: web is given twice",
    "sim/xai-grok-4.1-fast and xai-grok-4.1-fast",
    "**bold** words, 2 ** 3, and so on...",
    "groq/openai/gpt-oss-120b: at token 12345678 of hedge('a/llama-3.3-70b')",
]


@each_case(("text", "shown"), SECRETS)
def test_texts_like_secrets_are_redacted(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@each_case("text", HARMLESS)
def test_other_texts_are_not_redacted(text: str) -> None:
    assert redacted(text) == text


def test_faults_contain_no_secret() -> None:
    fault = CallerFault(
        "cannot reach https://x.test?key=SECRET", hint="Asked at http://me:pass@x.test."
    )
    assert str(fault) == "cannot reach https://x.test?key=[key]. Asked at http://[key]@x.test."
    assert fault.args == ("cannot reach https://x.test?key=[key]",)


def test_an_excerpt_is_cut_after_it_is_redacted() -> None:
    for before in range(EXCERPT_BYTES - 30, EXCERPT_BYTES):
        assert "sk-0" not in excerpt("." * before + " sk-0123456789abcdef0123456789abcdef")


def test_a_long_text_takes_time_in_proportion() -> None:
    for text in (
        "a-" * 20_000,
        "key" * 20_000,
        "?" + "key_" * 20_000,
        "://" * 20_000,
        "sk-" * 20_000,
        "eyJ-" * 20_000,
        "*a" * 20_000,
    ):
        assert redacted(text) == text
