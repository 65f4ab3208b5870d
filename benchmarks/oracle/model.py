"""A model folder made on the spot: a Llama of a given shape, and a tokenizer whose tokens are all
words.

Engines fill such a model with random weights. Every token is printable text and none is special, so
each output token becomes one piece of text in the stream, and prompts have as many tokens as words.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from splitsecond.simulator.llama_cpp import vocabulary

UNKNOWN = "unknown"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class Shape(Struct, frozen=True):
    """The size of a Llama."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    words: int
    """Entries of the vocabulary."""


SHAPES = {
    "tiny": Shape(layers=2, hidden=256, intermediate=512, heads=4, kv_heads=2, words=500),
    "1b": Shape(layers=16, hidden=2048, intermediate=8192, heads=32, kv_heads=8, words=128_000),
    "8b": Shape(layers=32, hidden=4096, intermediate=14_336, heads=32, kv_heads=8, words=128_000),
}
"""`1b` and `8b` have the shapes of Llama 3.2 1B and of Llama 3.1 8B."""


def words(count: int) -> list[str]:
    """Return `count` different words: the listed ones, then pairs of them."""
    listed = [token.text[1:] for token in vocabulary.build().tokens if token.word]
    pairs = (f"{one}-{two}" for one, two in itertools.product(listed, listed))
    return list(itertools.islice(itertools.chain(listed, pairs), count))


def write(folder: Path, shape: Shape) -> None:
    """Write the configuration and the tokenizer, without weights."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.hidden // shape.heads,
        "vocab_size": shape.words,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": None,
    }
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {
                word: number for number, word in enumerate([UNKNOWN, *words(shape.words - 1)])
            },
            "unk_token": UNKNOWN,
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 8192,
    }
    files: dict[str, Any] = {
        "config.json": config,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def prompts(count: int, tokens: int, shape: Shape, seed: int = 0) -> Sequence[str]:
    """Return `count` prompts of `tokens` random words each."""
    random = Random(seed)
    known = words(shape.words - 1)
    return [" ".join(random.choices(known, k=tokens)) for _ in range(count)]
