"""Wrong use of every kind: one sentence that says what is wrong, and what would be right; code 2;
nothing written."""

from pathlib import Path

import pytest
from tests.cases import each_case, sampled_cases
from tests.cli.conftest import Split

from splitsecond.gateway.process import server, supervisor

TRACES = Path(__file__).parents[2] / "docs/traces"
SOMEWHERE = ("bench", "--base-url", "http://127.0.0.1:1/v1", "--model", "m")
UNKNOWN_FIELD = "lgo: off\nroutes: {one: {policy: 'rase(\"groq/m\")'}}\n"

WRONG: list[tuple[tuple[object, ...], tuple[str, ...]]] = [
    (("bench",), ("no target given", "sim/groq", "the URL of a server")),
    (("bench", "nope/x"), ("unknown provider 'nope'", "--base-url")),
    (
        ("bench", "groq/llama-3.3-70b-versatile"),
        ("no key: GROQ_API_KEY is not set", "export GROQ_API_KEY"),
    ),
    (("bench", "groq"), ("'groq' is not a target", "PROVIDER/MODEL")),
    (("bench", "sim/grok"), ("unknown profile 'grok'", "Did you mean", "groq")),
    (("bench", "sim/nowhere.toml"), ("cannot read the profile nowhere.toml: No such file",)),
    (("bench", "sim/groq", "sim/groq"), ("sim/groq is named twice",)),
    (
        (*SOMEWHERE, "http://127.0.0.1:1/v1"),
        ("--base-url: http://127.0.0.1:1/v1 is given twice", "a=URL b=URL"),
    ),
    (
        (*SOMEWHERE, "a=http://127.0.0.1:2/v1", "--base-url", "a=http://x/v1"),
        ("--base-url: a is the name of two",),
    ),
    (
        (*SOMEWHERE, "http://x/v1", "--name", "a"),
        ("--name: got 'a', expected --base-url NAME=URL for each",),
    ),
    (
        (*SOMEWHERE, "127.0.0.1:1/m=http://127.0.0.1:2/v1"),
        ("127.0.0.1:1/m is named twice", "another name"),
    ),
    (
        ("bench", "a(b)=http://127.0.0.1:1/v1", "--model", "m"),
        ("--name: got 'a(b)', expected a name without",),
    ),
    (
        (*SOMEWHERE, "--name", "sim/groq"),
        ("--name: got 'sim/groq', expected a name", "does not begin with sim/"),
    ),
    (
        (*SOMEWHERE, "own/m", "--config", "nowhere.yaml"),
        ("cannot read nowhere.yaml: No such file",),
    ),
    (("bench", "engine/huge"), ("unknown model 'huge'", "engine/tiny or engine/small")),
    (("bench", "--model", "m"), ("--model needs --base-url with it",)),
    (
        ("bench", "http://127.0.0.1:1/v1"),
        ("http://127.0.0.1:1/v1 does not list its models", "Name the model"),
    ),
    (
        ("bench", "http://x/v1", "--api-format", "gemini"),
        ("--model: got '', expected the name of the model", "gemini"),
    ),
    (("bench", "sim/groq", "--api-key-env", "X"), ("--api-key-env needs --base-url with it",)),
    (("bench", "sim/groq", "--api-format", "openai"), ("--api-format needs --base-url with it",)),
    (
        (*SOMEWHERE, "--api-format", "latin"),
        ("--api-format: got 'latin', expected openai or anthropic or",),
    ),
    (
        ("bench", "--base-url", "127.0.0.1", "--model", "m"),
        ("cannot use the URL", "http or https", "https://HOST/v1"),
    ),
    (
        ("bench", "--base-url", "http://x:99999", "--model", "m"),
        ("cannot use the URL 'http://x:99999'", "Port"),
    ),
    (
        ("bench", "--base-url", "http://u:p@x", "--model", "m"),
        ("holds credentials", "Authorization header"),
    ),
    (
        (*SOMEWHERE, "--api-key-env", "SPLITSECOND_NO_KEY"),
        ("no key: SPLITSECOND_NO_KEY is not set",),
    ),
    ((*SOMEWHERE, "-c", "0"), ("-c: got '0', expected whole numbers from 1",)),
    ((*SOMEWHERE, "-c", "a"), ("-c: got 'a'",)),
    ((*SOMEWHERE, "-c", "1,,2"), ("-c: got '1,,2'",)),
    ((*SOMEWHERE, "-c", "2,2"), ("the load c2 is given more than once",)),
    ((*SOMEWHERE, "-n", "-1"), ("--requests: got -1, expected 1 or more",)),
    ((*SOMEWHERE, "-n", "0"), ("--requests: got 0",)),
    ((*SOMEWHERE, "--rate", "0"), ("--rate: got '0', expected numbers above 0",)),
    ((*SOMEWHERE, "--rate", "nan"), ("--rate: got 'nan'",)),
    ((*SOMEWHERE, "--arrivals", "odd"), ("--arrivals: got 'odd'", "poisson")),
    ((*SOMEWHERE, "--arrivals", "trace"), ("--arrivals", "--trace FILE with it")),
    (
        (*SOMEWHERE, "--rate", "1", "--trace", "x"),
        ("--rate: got '1', expected either a rate or a trace",),
    ),
    ((*SOMEWHERE, "--trace", "nowhere"), ("cannot read nowhere: No such file",)),
    ((*SOMEWHERE, "--trace", "x", "-c", "8"), ("-c: got '8', expected either it or a trace",)),
    (
        (*SOMEWHERE, "--trace", "x", "--precision", "5%"),
        ("--precision: got '5%', expected no trace with it",),
    ),
    (
        (*SOMEWHERE, "--trace", "x", "--over", "15m"),
        ("--over: got 900.0, expected no trace with it",),
    ),
    (
        (*SOMEWHERE, "--over", "15m", "--duration", "15m"),
        ("--over: got 900.0, expected no duration with it",),
    ),
    (
        (*SOMEWHERE, "--over", "15m", "--rounds", 1),
        ("--over: got 900.0, expected two rounds or more with it",),
    ),
    ((*SOMEWHERE, "--over", "5x"), ('--over is "5x", expected a duration',)),
    (
        (*SOMEWHERE, "--trace", "x", "--workload", "chat"),
        ("--workload: got ['chat'], expected no trace with it",),
    ),
    (
        (*SOMEWHERE, "--trace", "x", "--time-scale", "0"),
        ("--time-scale: got 0.0, expected a number above 0",),
    ),
    ((*SOMEWHERE, "--time-scale", "2"), ("--time-scale: got 2.0, expected a trace with it",)),
    (
        (*SOMEWHERE, "--trace", TRACES / "README.md"),
        ("README.md:1: got '# Excerpts", "the JSONL of Mooncake"),
    ),
    (
        (*SOMEWHERE, "--trace", TRACES / "azure-code.csv", "--input-tokens", 9),
        ("--input-tokens: got 9, expected no",),
    ),
    (
        (*SOMEWHERE, "--trace", TRACES / "azure-code.csv", "--cache", "reuse"),
        ("--cache: got 'reuse', expected fresh",),
    ),
    ((*SOMEWHERE, "--burstiness", "-1"), ("--burstiness: got -1.0, expected a number above 0",)),
    ((*SOMEWHERE, "--warmup", "-1"), ("the number of warm-ups is -1",)),
    ((*SOMEWHERE, "--rounds", "0"), ("rounds: got 0",)),
    ((*SOMEWHERE, "--processes", "0"), ("--processes: got 0, expected 1 or more",)),
    (
        (*SOMEWHERE, "--input-tokens", "0"),
        ("--input-tokens: got '0', expected a number of tokens",),
    ),
    ((*SOMEWHERE, "--input-tokens", "512,8x"), ("--input-tokens: got '8x'",)),
    ((*SOMEWHERE, "--input-tokens", "512,512"), ("the workload 512 is given twice",)),
    (
        (*SOMEWHERE, "--input-tokens", "512,8k", "--cache", "reuse"),
        ("got '512', expected no cache with it",),
    ),
    (
        (*SOMEWHERE, "--workload", "lunch"),
        ("--workload: got 'lunch', expected autocomplete or chat",),
    ),
    (
        (*SOMEWHERE, "--workload", "chat", "--input-tokens", "8"),
        ("--workload: got 'chat', expected no --input-tokens",),
    ),
    (
        (*SOMEWHERE, "--workloads", "w.toml"),
        ("--workloads: got 'w.toml', expected --workload NAME with it",),
    ),
    ((*SOMEWHERE, "--output-tokens", "-5"), ("--output-tokens: got -5",)),
    ((*SOMEWHERE, "--timeout", "inf"), ("--timeout: got inf",)),
    ((*SOMEWHERE, "--cache", "cold"), ("--cache: got 'cold', expected fresh or reuse",)),
    ((*SOMEWHERE, "--body", "[1]"), ("--body: got '[1]', expected a JSON object",)),
    ((*SOMEWHERE, "--body", "{"), ("--body: got '{'",)),
    ((*SOMEWHERE, "--header", "x"), ("--header: got 'x', expected 'Name: value'",)),
    ((*SOMEWHERE, "--header", "a: b\r\nc: d"), ("--header: got",)),
    (
        (*SOMEWHERE, "--slo", "nonsense"),
        ("cannot read the limits 'nonsense'", "ttft=300ms", "voice"),
    ),
    (
        (*SOMEWHERE, "--owned", "1500"),
        ("--owned: got '1500', expected USD,YEARS,WATTS,USD/KWH", "rtx-4090"),
    ),
    ((*SOMEWHERE, "--owned", "rtx-4090"), ("--owned: got 'rtx-4090'",)),
    ((*SOMEWHERE, "--owned", "1500,0,450,0.15"), ("--owned: got",)),
    (
        (*SOMEWHERE, "--fail-if", "speed < 1"),
        ("cannot read the gate 'speed < 1': there is no figure 'speed'",),
    ),
    (
        (*SOMEWHERE, "--fail-if", "tps.p50 < -5%"),
        ("one run has nothing to compare with", "splitsecond compare"),
    ),
    ((*SOMEWHERE, "--slo", "ttft=3"), ("ttft needs a time with its unit",)),
    (
        (*SOMEWHERE, "--input-tokens", "99999999"),
        ("--input-tokens: got '99,999,999', expected at most 10,000,000",),
    ),
    (
        (*SOMEWHERE, "--input-tokens", "512,99M"),
        ("--input-tokens: got '99,000,000'", "expected at most 10,000,000"),
    ),
    ((*SOMEWHERE, "--images", "big"), ("--images: got 'big', expected WxH[,N][,jpeg]",)),
    ((*SOMEWHERE, "--prompts", "nowhere"), ("cannot read the prompts nowhere: No such file",)),
    ((*SOMEWHERE, "--prompts", "."), ("cannot read the prompts .: Is a directory",)),
    (
        (*SOMEWHERE, "--json", "nowhere/x.json"),
        ("cannot write to nowhere/x.json: there is no folder nowhere",),
    ),
    ((*SOMEWHERE, "--json", "."), ("cannot write to .: it is a folder",)),
    (
        ("report", "nowhere"),
        ("no run at nowhere: No such file", "A run is a folder with run.json in it"),
    ),
    (
        ("report", "."),
        ("no run at .: the folder has no run.json. Name the folder of a run: it has run.json",),
    ),
    (("report", ".", "--json", "nowhere/x"), ("there is no folder nowhere",)),
    (("compare", "nowhere", "."), ("no run at nowhere",)),
    (
        ("compare", ".", ".", "--fail-if", "nonsense"),
        ("cannot read the gate 'nonsense'", "docs/reference/figures.md"),
    ),
    (("compare", ".", ".", "--fail-if", "errors > 5%"), ("errors is a count",)),
    (("doctor", "--model", "m"), ("--model needs --base-url with it",)),
    (("doctor", "--levels", "1,x"), ("--levels: got '1,x'",)),
    (("doctor", "--json", "nowhere/x"), ("there is no folder nowhere",)),
    (("simulate",), ("no profile given",)),
    (("simulate", "grok"), ("unknown profile 'grok'",)),
    (("simulate", "groq", "--log", "nowhere/x"), ("cannot write the log nowhere/x: No such file",)),
]


@pytest.mark.system
def test_wrong_use_of_the_demo_gets_one_sentence(split: Split, tmp_path: Path) -> None:
    refused_in_one_sentence(
        split, tmp_path, ("demo", "--json", "nowhere/x"), ("there is no folder nowhere",)
    )


@sampled_cases(2)
@each_case(("arguments", "words"), WRONG, ids=lambda each: " ".join(map(str, each))[:60])
def test_wrong_use_is_reported_in_one_sentence(
    split: Split, tmp_path: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    refused_in_one_sentence(split, tmp_path, arguments, words)


def refused_in_one_sentence(
    split: Split, tmp_path: Path, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    ended = split(*arguments)
    assert ended.code == 2
    assert not ended.out
    for each in words:
        assert each in ended.complaint
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@each_case(
    ("arguments", "words"),
    [
        (("frob",), "No such command 'frob'"),
        (("--frob",), "No such option: --frob"),
        (("-x", "bench"), "No such option: -x"),
        (("--version=1",), "does not take a value"),
        (("bench", "--frob"), "No such option: --frob"),
        (("bench", "sim/groq", "--seed", "x"), "Invalid value for '--seed'"),
        (("bench", "sim/groq", "-n", "many"), "Invalid value for '-n' / '--requests'"),
        (("compare", "one"), "Missing argument 'AFTER'"),
        (("report",), "Missing argument 'RUN...'"),
        (("demo", "what"), "unexpected extra argument"),
        (("bench", "sim/groq", "-n", "1e9"), "Invalid value for '-n' / '--requests'"),
        (("simulate", "groq", "--port", "70000"), "Invalid value for '--port'"),
    ],
)
def test_parser_refuses_wrong_arguments(
    split: Split, arguments: tuple[object, ...], words: str
) -> None:
    ended = split(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.complaint
    assert ended.complaint.endswith("` shows the options.")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "JSON is malformed"),
        ('{"messages": []}', "expected at least one message, got none"),
        ('{"text": "hello"}', 'an object with "messages"'),
        ('[{"content": "hello"}]', "missing required field `role`"),
    ],
)
def test_a_bad_prompt_is_named_by_file_and_line(
    split: Split, tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "prompts.jsonl").write_text('[{"role": "user", "content": "hi"}]\n\n' + line + "\n")
    ended = split(*SOMEWHERE, "--prompts", "prompts.jsonl")
    assert ended.code == 2
    assert "prompts.jsonl:3: " in ended.complaint
    assert words in ended.complaint


@pytest.mark.parametrize(
    ("folder", "words"),
    [("file", "File exists"), ("file/x", "Not a directory"), ("taken", "already contains a run")],
)
def test_a_folder_that_cannot_take_a_run(
    split: Split, tmp_path: Path, folder: str, words: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "run.json").touch()
    ended = split(*SOMEWHERE, "--out", folder)
    assert ended.code == 2
    assert words in ended.complaint
    assert "Name another folder with --out." in ended.complaint


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param(
            "routes: {a: {policy: sim/togeter}, b: {policy: sim/groq2}, c: {policy: sim/groq}}\n",
            [
                "routes.a: sim/togeter is not a profile of the simulator. Did you mean together…",
                "routes.b: sim/groq2 is not a profile of the simulator. Did you mean groq?",
            ],
            id="unknown profiles",
        ),
        pytest.param(
            "log: mysql://host/log\n"
            "listen: {host: 0.0.0.0}\n"
            "providers: {mine: {base_url: 'ftp://host'}}\n"
            "routes: {one: {policy: 'rase(\"mine/x\")'}, two: {policy: sim/grok}}\n",
            [
                "providers.mine.base_url: cannot use the URL 'ftp://host': got scheme 'ftp', "
                "expected http or https. Try https://HOST/v1.",
                "routes.one.policy: at character 1: unknown policy rase. Did you mean race or "
                "fastest?",
                "without keys the gateway listens only on this machine, not on 0.0.0.0. "
                "Add keys: [{name: web, key: env:WEB_KEY}] to the configuration, or listen on "
                "127.0.0.1.",
                "the log cannot be kept in 'mysql': sqlite and postgresql are known. "
                "Write sqlite:///splitsecond.db, or postgresql://USER@HOST/DATABASE.",
                "routes.two: sim/grok is not a profile of the simulator. "
                "Did you mean groq or mock?",
            ],
            id="every kind",
        ),
        pytest.param(
            "routes:\n"
            '  one: {policy: \'weighted("sim/groq", "sim/together", weights="3")\'}\n'
            '  two: {policy: \'hedge("sim/groq", "sim/groq")\'}\n'
            '  three: {policy: \'weighted("sim/groq", "nobody/x", weights="3")\'}\n',
            ["routes.three.policy: …", "routes.one.policy: …", "routes.two.policy: …"],
            id="policies that cannot be built",
        ),
        pytest.param(
            UNKNOWN_FIELD,
            ["the file: unknown field `lgo`. Did you mean log?", "routes.one.policy: …"],
            id="an unknown field",
        ),
    ],
)
def test_a_check_lists_all_mistakes(
    split: Split, tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text(text)
    ended = split("serve", str(file), "--check")
    assert (ended.code, ended.out) == (2, "")
    *lines, last = ended.err.splitlines()
    for line, mistake in zip(lines, mistakes, strict=True):
        beginning, more, _ = f"splitsecond: {file}: {mistake}".partition("…")
        assert line == beginning or (more and line.startswith(beginning))
    assert last == f"{len(mistakes)} mistakes"


def test_the_gateway_names_one_mistake_and_refers_to_the_check(
    split: Split, tmp_path: Path
) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text(UNKNOWN_FIELD)
    assert "another mistake: `splitsecond serve --check` lists all." in " ".join(
        split("serve", str(file)).err.split()
    )


@each_case(
    ("log", "words"),
    [
        ("sqlite:///nosuch/x.db", "/nosuch for the log's file. Make it, or name another."),
        ("sqlite:////tmp", "the log's file /tmp is a folder. Name a file in it."),
        ("mysql://host/log", "the log cannot be kept in 'mysql'"),
        ("nosuch/x.db", "/nosuch for the log's file. Make it, or name another."),
        ("calls", "the log's URL is not one. Write sqlite:///splitsecond.db"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--workers", "2"), ("--check",)])
def test_serve_and_its_check_refuse_the_same_logs(
    split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: str,
    words: str,
    options: tuple[str, ...],
) -> None:
    for module in (server, supervisor):
        monkeypatch.setattr(module, "serve", lambda *_: pytest.fail("the gateway starts"))
    file = tmp_path / "splitsecond.yaml"
    file.write_text(f"log: {log}\nroutes: {{one: {{policy: sim/groq}}}}\n")
    ended = split("serve", str(file), *options)
    assert ended.code == 2
    assert ended.err.startswith(f"splitsecond: {file}: ")
    assert words in ended.err
