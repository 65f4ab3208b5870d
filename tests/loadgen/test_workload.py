"""What requests say: the nonce first, the same length each time, files read with their lines
named."""

import io
from typing import Any

import msgspec

from splitsecond.benchmark.workload.prompt_files import parse_prompts
from splitsecond.benchmark.workload.words import WORDS
from splitsecond.benchmark.workload.workload import QUESTION, SYSTEM, Composer, Workload


def composer(shared: str = "", **fields: Any) -> Composer:
    return Composer(
        Workload(**{"run": "r1", "system_words": 20, "user_words": 30, **fields}),
        shared,
        alike=bool(shared),
    )


def system_prompt(body: dict[str, Any]) -> str:
    content = body["messages"][0]["content"]
    assert isinstance(content, str)
    return content


def test_there_are_256_distinct_words() -> None:
    assert len(WORDS) == len(set(WORDS)) == 256


def test_prompt_starts_with_a_nonce_of_run_and_call() -> None:
    texts = [
        system_prompt(made.body(call, 0))
        for made in (composer(), composer(run="r2"))
        for call in ("t@c1-0", "t@c1-1", "t@c8-0")
    ]
    nonces = [text.split(".\n")[0] for text in texts]
    assert len(set(nonces)) == len(texts)
    assert all(len(nonce.split()) == 7 and set(nonce.split()) <= set(WORDS) for nonce in nonces)
    assert {text.split(".\n", 1)[1] for text in texts} == {texts[0].split(".\n", 1)[1]}


def test_shared_beginning_is_equal_within_a_condition_and_run() -> None:
    made = composer("t@c1-reuse", questions=True)
    one, two = (made.body(f"t@c1-reuse-{number}", number) for number in range(2))
    assert system_prompt(one) == system_prompt(two)
    others = (
        composer("t@c8-reuse", questions=True),
        composer("t@c1-reuse", questions=True, run="r2"),
    )
    assert len({system_prompt(made.body("x", 0)) for made in (made, *others)}) == 3
    assert made.hints == {"prompt_cache": "mark"}
    assert composer().hints == {}


def test_questions_differ_between_calls() -> None:
    for made in (
        composer("shared", questions=True, user_words=0),
        composer(questions=True, user_words=0),
    ):
        asked = [made.body(f"a-{number}", number)["messages"][1]["content"] for number in range(5)]
        assert len(set(asked)) == 5
        assert all(
            said.startswith(QUESTION) and len(said.split()) == len(QUESTION.split()) + 4
            for said in asked
        )


def test_cache_reuse_changes_only_the_first_words() -> None:
    alike, apart = (
        composer(shared, questions=True).body("a", 0)["messages"] for shared in ("s", "")
    )
    assert alike[1] == apart[1]
    (one, rest), (two, other_rest) = (said[0]["content"].split(".\n") for said in (alike, apart))
    assert rest == other_rest
    assert rest.startswith(SYSTEM)
    assert len(one.split()) == len(two.split()) == 7
    assert one != two


def test_the_same_seed_gives_the_same_prompt_and_another_another() -> None:
    assert composer(seed=1).body("a", 0) == composer(seed=1).body("a", 0)
    assert composer(seed=1).body("a", 0) != composer(seed=2).body("a", 0)


def test_a_shorter_prompt_is_the_beginning_of_a_longer_one() -> None:
    short, long = composer(system_words=5).body("a", 0), composer(system_words=9).body("a", 0)
    assert system_prompt(long).startswith(system_prompt(short))


def test_output_length_and_extra_fields() -> None:
    assert composer(output_tokens=9).body("a", 0)["max_tokens"] == 9
    assert "max_tokens" not in composer(output_tokens=None).body("a", 0)
    body = composer(extra={"ignore_eos": True, "max_completion_tokens": 5}).body("a", 0)
    assert body["ignore_eos"] is True
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


def test_prompts_take_turns_with_a_nonce_at_their_start() -> None:
    lines = (
        b'[{"role": "user", "content": "one"}]',
        b"",
        b'{"messages":[{"role": "user", "content": [{"type": "text", "text": "two"}]}], "top_p": '
        b'0.5, "model": ""}',
        b'{"messages":[{"role": "assistant", "content": null}, {"role": "user", "content": "i"}], '
        b'"max_tokens": 3}',
    )
    prompts = parse_prompts(io.BytesIO(b"\n".join(lines)), "f").prompts
    made = composer(prompts=prompts, output_tokens=7)
    one, two, three, again = (made.body(f"a-{number}", number) for number in range(4))
    assert one["messages"][0]["content"].endswith(".\none")
    assert [part["type"] for part in two["messages"][0]["content"]] == ["text", "text"]
    assert two["messages"][0]["content"][1]["text"] == "two"
    assert (two["top_p"], two["max_tokens"], "model" in two) == (0.5, 7, False)
    assert three["max_tokens"] == 3
    assert three["messages"][0]["content"].endswith(".\n")
    assert again["messages"][0]["content"].endswith(".\none")
    assert again != one
    shared = [
        composer("s", prompts=prompts).body(call, 0)["messages"][0]["content"] for call in "ab"
    ]
    assert shared[0] == shared[1]
    assert shared[0].endswith(".\none")


def test_a_workload_travels_as_json() -> None:
    workload = Workload(
        run="r",
        prompts=[{"messages": [{"role": "user", "content": "é"}]}],
        extra={"a": [1.5, None]},
    )
    assert msgspec.json.decode(msgspec.json.encode(workload), type=Workload) == workload


def test_inputs_of_a_request_all_begin_differently() -> None:
    made = composer(operation="embeddings", batch=3)
    texts = [text for call in ("a", "b") for text in made.body(call, 0)["input"]]
    assert len({text.split(".\n")[0] for text in texts}) == 6
    assert len({text.split(".\n")[1] for text in texts}) == 1
    ranking = composer(operation="rerank", batch=2).body("a", 0)
    assert ranking.keys() == {"query", "documents"}
    assert len(ranking["documents"]) == 2
