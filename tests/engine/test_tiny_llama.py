"""The model file: the same bytes each time, and a consistent vocabulary."""

import hashlib
from pathlib import Path

import gguf
import numpy as np

from splitsecond.simulator.llama_cpp import tiny_llama, vocabulary


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        tiny_llama.write(tmp_path / name)
    one, two = (
        hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("one", "two")
    )
    assert one == two


def test_only_word_tokens_have_output_weights(tmp_path: Path) -> None:
    tiny_llama.write(tmp_path / "model")
    output = next(
        t for t in gguf.GGUFReader(tmp_path / "model").tensors if t.name == "output.weight"
    )
    rows = gguf.quants.dequantize(output.data, output.tensor_type)
    assert [bool(said) for said in np.any(rows != 0, axis=1)] == [
        t.word for t in vocabulary.build().tokens
    ]


def test_each_merge_joins_two_tokens_to_a_third() -> None:
    words = vocabulary.build()
    known = {token.text for token in words.tokens}
    assert len(known) == len(words.tokens)
    for merge in words.merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= known


def test_every_byte_has_a_printable_character_of_its_own() -> None:
    alphabet = vocabulary.gpt2_alphabet()
    assert len(set(alphabet)) == 256
    assert all(character.isprintable() and not character.isspace() for character in alphabet)
    assert (alphabet[ord("A")], alphabet[ord(" ")], alphabet[ord("\n")], alphabet[0xAD]) == (
        "A",
        "Ġ",
        "Ċ",
        "Ń",
    )
