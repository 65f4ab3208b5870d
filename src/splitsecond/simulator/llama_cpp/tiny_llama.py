"""Writes a small model: a Llama with random weights as a GGUF file, in a fraction of a second.

Its output is random common words, but each request goes through a real tokenizer, KV cache,
scheduler and sampler, so the timing is that of a real engine. The weights are drawn from numpy's
`RandomState`, whose streams are frozen, and quantized to 8 bits like many served models, so the
file is the same each time.

The output rows of all tokens except whole words are zeros: their scores are 0, and the best scores
among hundreds of random words are far above. So a response consists of words, one token each, and
never ends before its `max_tokens`.
"""

from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from splitsecond.simulator.llama_cpp import vocabulary

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{vocabulary.BEGIN}{{{{ message['role'] }}}}\n{{{{ message['content'] }}}}{vocabulary.END}\n"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{vocabulary.BEGIN}assistant\n{{% endif %}}"
)

_Weights = dict[str, NDArray[np.float32]]


class Shape(NamedTuple):
    """The sizes of the network. The defaults are "tiny": 2.2 million parameters, 1 kB of KV cache
    for each token."""

    width: int = 256
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 768
    context: int = 32768

    @property
    def head_width(self) -> int:
        return self.width // self.heads


TINY = Shape()


def write(path: Path, shape: Shape = TINY) -> None:
    words = vocabulary.build()
    writer = gguf.GGUFWriter(path, "llama")
    _describe_network(writer, shape)
    _describe_tokenizer(writer, words)
    for name, weights in _draw(shape, words).items():
        if weights.ndim == 1:  # llama.cpp wants norms in full precision
            writer.add_tensor(name, weights)
        else:
            quantized = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe_network(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("random Llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_layer_norm_rms_eps(1e-5)


def _describe_tokenizer(writer: gguf.GGUFWriter, words: vocabulary.Vocabulary) -> None:
    kinds = gguf.TokenType
    texts = [token.text for token in words.tokens]
    writer.add_tokenizer_model("gpt2")  # byte-level BPE
    writer.add_tokenizer_pre("gpt-2")  # cuts a text into words with the space before them
    writer.add_token_list(texts)
    writer.add_token_types(
        [kinds.CONTROL if token.mark else kinds.NORMAL for token in words.tokens]
    )
    writer.add_token_merges(words.merges)
    writer.add_bos_token_id(texts.index(vocabulary.BEGIN))
    writer.add_eos_token_id(texts.index(vocabulary.END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _draw(shape: Shape, words: vocabulary.Vocabulary) -> _Weights:
    random = np.random.RandomState(0)
    bound = 0.05 * 3**0.5
    size, kv_width = len(words.tokens), shape.kv_heads * shape.head_width

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.uniform(-bound, bound, (rows, columns)).astype(np.float32)

    norm = np.ones(shape.width, np.float32)
    weights: _Weights = {"token_embd.weight": matrix(size, shape.width)}
    for layer in range(shape.layers):
        weights |= {
            f"blk.{layer}.attn_norm.weight": norm,
            f"blk.{layer}.attn_q.weight": matrix(shape.width, shape.width),
            f"blk.{layer}.attn_k.weight": matrix(kv_width, shape.width),
            f"blk.{layer}.attn_v.weight": matrix(kv_width, shape.width),
            f"blk.{layer}.attn_output.weight": matrix(shape.width, shape.width),
            f"blk.{layer}.ffn_norm.weight": norm,
            f"blk.{layer}.ffn_gate.weight": matrix(shape.feed_forward, shape.width),
            f"blk.{layer}.ffn_up.weight": matrix(shape.feed_forward, shape.width),
            f"blk.{layer}.ffn_down.weight": matrix(shape.width, shape.feed_forward),
        }
    sayable = np.array([[token.word] for token in words.tokens], np.float32)
    return weights | {
        "output_norm.weight": norm,
        "output.weight": matrix(size, shape.width) * sayable,
    }
