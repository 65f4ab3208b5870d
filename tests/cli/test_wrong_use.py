"""Wrong use of every kind: one sentence that says what is wrong, and what would be right; code 2; nothing written."""

from pathlib import Path

import pytest
from tests.cli.conftest import Split

SOMEWHERE = ("bench", "--base-url", "http://127.0.0.1:1/v1", "--model", "m")

WRONG: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
    (("bench",), ("no target given", "sim/groq", "--base-url URL --model NAME")),
    (("bench", "nope/x"), ("unknown provider 'nope'", "--base-url")),
    (("bench", "groq/llama-3.3-70b-versatile"), ("no key: GROQ_API_KEY is not set", "export GROQ_API_KEY")),
    (("bench", "groq"), ("'groq' is not a target", "PROVIDER/MODEL")),
    (("bench", "sim/grok"), ("unknown profile 'grok'", "Did you mean", "groq")),
    (("bench", "sim/nowhere.toml"), ("cannot read the profile nowhere.toml: No such file",)),
    (("bench", "sim/groq", "sim/groq"), ("sim/groq is named twice",)),
    ((*SOMEWHERE, "sim/groq", "--name", "sim/groq"), ("sim/groq is named twice", "another --name")),
    (("bench", "engine/huge"), ("unknown model 'huge'", "engine/tiny or engine/small")),
    (("bench", "--model", "m"), ("--model needs --base-url with it",)),
    (("bench", "--base-url", "http://127.0.0.1"), ("--base-url needs --model with it",)),
    (("bench", "sim/groq", "--api-key-env", "X"), ("--api-key-env needs --base-url and --model with it",)),
    (("bench", "sim/groq", "--dialect", "openai"), ("--dialect needs --base-url and --model with it",)),
    ((*SOMEWHERE, "--dialect", "latin"), ("--dialect: got 'latin', expected openai or anthropic or",)),
    (("bench", "--base-url", "127.0.0.1", "--model", "m"), ("cannot use the URL", "http or https", "https://HOST/v1")),
    (("bench", "--base-url", "http://x:99999", "--model", "m"), ("cannot use the URL 'http://x:99999'", "Port")),
    (("bench", "--base-url", "http://u:p@x", "--model", "m"), ("holds credentials", "Authorization header")),
    ((*SOMEWHERE, "--api-key-env", "SPLITSECOND_NO_KEY"), ("no key: SPLITSECOND_NO_KEY is not set",)),
    ((*SOMEWHERE, "-c", "0"), ("-c: got '0', expected whole numbers from 1",)),
    ((*SOMEWHERE, "-c", "a"), ("-c: got 'a'",)),
    ((*SOMEWHERE, "-c", "1,,2"), ("-c: got '1,,2'",)),
    ((*SOMEWHERE, "-c", "2,2"), ("the load c2 is asked for more than once",)),
    ((*SOMEWHERE, "-n", "-1"), ("--requests: got -1, expected 1 or more",)),
    ((*SOMEWHERE, "-n", "0"), ("--requests: got 0",)),
    ((*SOMEWHERE, "--rate", "0"), ("--rate: got '0', expected numbers above 0",)),
    ((*SOMEWHERE, "--rate", "nan"), ("--rate: got 'nan'",)),
    ((*SOMEWHERE, "--arrivals", "odd"), ("--arrivals: got 'odd'", "poisson")),
    ((*SOMEWHERE, "--arrivals", "trace"), ("--arrivals", "--trace FILE with it")),
    ((*SOMEWHERE, "--rate", "1", "--trace", "x"), ("--rate: got '1', expected either a rate or a trace",)),
    ((*SOMEWHERE, "--trace", "nowhere"), ("cannot read the trace nowhere: No such file",)),
    ((*SOMEWHERE, "--burstiness", "-1"), ("--burstiness: got -1.0, expected a number above 0",)),
    ((*SOMEWHERE, "--warmup", "-1"), ("the number of warm-ups is -1",)),
    ((*SOMEWHERE, "--blocks", "0"), ("the number of blocks is 0",)),
    ((*SOMEWHERE, "--processes", "0"), ("--processes: got 0, expected 1 or more",)),
    ((*SOMEWHERE, "--input-tokens", "0"), ("--input-tokens: got 0",)),
    ((*SOMEWHERE, "--output-tokens", "-5"), ("--output-tokens: got -5",)),
    ((*SOMEWHERE, "--timeout", "inf"), ("--timeout: got inf",)),
    ((*SOMEWHERE, "--cache", "cold"), ("--cache: got 'cold', expected fresh or reuse",)),
    ((*SOMEWHERE, "--body", "[1]"), ("--body: got '[1]', expected a JSON object",)),
    ((*SOMEWHERE, "--body", "{"), ("--body: got '{'",)),
    ((*SOMEWHERE, "--header", "x"), ("--header: got 'x', expected 'Name: value'",)),
    ((*SOMEWHERE, "--header", "a: b\r\nc: d"), ("--header: got",)),
    ((*SOMEWHERE, "--slo", "nonsense"), ("cannot read the limits 'nonsense'", "ttft=300ms", "voice")),
    ((*SOMEWHERE, "--slo", "ttft=3"), ("ttft needs a time with its unit",)),
    ((*SOMEWHERE, "--prompts", "nowhere"), ("cannot read the prompts nowhere: No such file",)),
    ((*SOMEWHERE, "--prompts", "."), ("cannot read the prompts .: Is a directory",)),
    ((*SOMEWHERE, "--json", "nowhere/x.json"), ("cannot write to nowhere/x.json: there is no folder nowhere",)),
    ((*SOMEWHERE, "--json", "."), ("cannot write to .: it is a folder",)),
    (("report", "nowhere"), ("no run at nowhere: No such file", "A run is a folder with run.json in it")),
    (("report", "."), ("no run at .",)),
    (("report", ".", "--json", "nowhere/x"), ("there is no folder nowhere",)),
    (("compare", "nowhere", "."), ("no run at nowhere",)),
    (("compare", ".", ".", "--fail-if", "nonsense"), ("cannot read the gate 'nonsense'", "ttft_ms.p95 > +10%")),
    (("compare", ".", ".", "--fail-if", "errors > 5%"), ("errors is a count",)),
    (("doctor", "--model", "m"), ("--model needs --base-url with it",)),
    (("doctor", "--levels", "1,x"), ("--levels: got '1,x'",)),
    (("doctor", "--json", "nowhere/x"), ("there is no folder nowhere",)),
    (("demo", "--json", "nowhere/x"), ("there is no folder nowhere",)),
    (("simulate",), ("no profile given",)),
    (("simulate", "grok"), ("unknown profile 'grok'",)),
    (("simulate", "groq", "--log", "nowhere/x"), ("cannot write the log nowhere/x: No such file",)),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=lambda each: " ".join(map(str, each))[:60])
def test_wrong_use_gets_one_sentence(
    split: Split, tmp_path: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    ended = split(*arguments)
    assert ended.code == 2
    assert not ended.out
    for each in words:
        assert each in ended.complaint
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("frob",), "No such command 'frob'"),
        (("bench", "--frob"), "No such option: --frob"),
        (("bench", "sim/groq", "--seed", "x"), "Invalid value for '--seed'"),
        (("bench", "sim/groq", "-n", "many"), "Invalid value for '-n' / '--requests'"),
        (("compare", "one"), "Missing argument 'AFTER'"),
        (("report",), "Missing argument 'RUN...'"),
        (("demo", "what"), "unexpected extra argument"),
        (("simulate", "groq", "--port", "70000"), "Invalid value for '--port'"),
    ],
)
def test_what_the_parser_refuses(split: Split, arguments: tuple[object, ...], words: str) -> None:
    ended = split(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "JSON is malformed"),
        ('{"messages": []}', "expected at least one message, got none"),
        ('{"prompt": "hello"}', 'an object with "messages"'),
        ('[{"content": "hello"}]', "missing required field `role`"),
    ],
)
def test_a_bad_prompt_is_named_by_file_and_line(split: Split, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "prompts.jsonl").write_text('[{"role": "user", "content": "hi"}]\n\n' + line + "\n")
    ended = split(*SOMEWHERE, "--prompts", "prompts.jsonl")
    assert ended.code == 2
    assert "prompts.jsonl:3: " in ended.complaint
    assert words in ended.complaint


def test_a_folder_that_cannot_take_a_run(split: Split, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "run.json").touch()
    for folder, words in (("file", "File exists"), ("file/x", "Not a directory"), ("taken", "holds a run already")):
        ended = split(*SOMEWHERE, "--out", folder)
        assert ended.code == 2
        assert words in ended.complaint
        assert "Name another folder with --out." in ended.complaint
