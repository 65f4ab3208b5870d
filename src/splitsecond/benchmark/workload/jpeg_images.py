"""JPEG files in base64, without compressing pixels. Each row of blocks is one restart interval, so
rows can be exchanged: an image is a random choice of rows that were made before.

A row is random bits between the codes of a fixed pattern: every block has the same kinds of
coefficients, and the file's own Huffman tables have only these. JPEG: ITU-T T.81.
"""

import struct
from binascii import b2a_base64
from functools import lru_cache
from hashlib import blake2b
from random import Random

SIZES = 8
"""Sizes that are kept."""
VARIANTS = 32
"""Rows to choose from at each place."""
BLOCK = [("0", 3), *[("110", 4)] * 2, *[("10", 2)] * 8, *[("0", 1)] * 13, ("1110", 0)]
"""The codes of a block, each with its number of random bits: a difference of brightness, 23
coefficients from the lowest frequency on, smaller and smaller, and the end. These are 80 bits, so
an image has about 0.23 bytes a pixel, as photographs of good quality."""
BLOCKS = 6
"""Blocks of 16 x 16 pixels: four of brightness, two of colour."""
RESTARTS, END = range(0xD0, 0xD8), 0xD9
"""The markers that end rows, in turns, and the last one."""
_DC_TABLE = bytes((0x00, 1, *[0] * 15, 3))
_AC_TABLE = bytes((0x10, 1, 1, 1, 1, *[0] * 12, 0x01, 0x02, 0x04, 0x00))
"""Huffman tables: how many codes have each length, and what they stand for."""
_STEPS = bytes((8, *[5] * 63))
"""The quantization table: what a coefficient is multiplied with."""


def jpeg_base64(width: int, height: int, seed: str) -> str:
    """Return an image whose pixels depend on `seed`."""
    header, rows, last = _prepared(width, height)
    random = Random(seed)
    between = [random.choice(rows[place % len(rows)]) for place in range(-(-height // 16) - 1)]
    return "".join((_base64(_begin(seed) + header), *between, random.choice(last)))


@lru_cache(maxsize=SIZES)
def _prepared(width: int, height: int) -> tuple[bytes, list[list[str]], list[str]]:
    """Return the header, the rows by the restart marker that ends them, and rows for the end."""
    parts = ((1, 0x22), (2, 0x11), (3, 0x11))
    header = b"".join(
        (
            _segment(0xDB, b"\0" + _STEPS),
            _segment(
                0xC0,
                struct.pack(">BHHB", 8, height, width, len(parts)),
                *(bytes((*part, 0)) for part in parts),
            ),
            _segment(0xC4, _DC_TABLE, _AC_TABLE),
            _segment(0xDD, struct.pack(">H", -(-width // 16))),
            _segment(0xDA, bytes((3, 1, 0, 2, 0, 3, 0, 0, 63, 0))),
        )
    )
    fill = _segment(0xFE, bytes(-(len(_begin("")) + len(header) + 4) % 3))
    rows_by_marker = [_rows(width, height, marker) for marker in (*RESTARTS, END)]
    return fill + header, rows_by_marker[:-1], rows_by_marker[-1]


def _begin(seed: str) -> bytes:
    """Return the beginning of a file. Its comment makes files of images of a single row differ, of
    which there are few."""
    return b"\xff\xd8" + _segment(0xFE, blake2b(seed.encode(), digest_size=32).digest())


def _rows(width: int, height: int, marker: int) -> list[str]:
    """Return rows of blocks with the marker that ends them, in whole groups of three bytes."""
    blocks = -(-width // 16) * BLOCKS
    codes = int("".join(code + "0" * bits for code, bits in BLOCK) * blocks, 2)
    mask = int("".join("0" * len(code) + "1" * bits for code, bits in BLOCK) * blocks, 2)
    length = blocks * sum(len(code) + bits for code, bits in BLOCK)
    random = Random(f"{width}x{height}/{marker}")
    rows = []
    for _ in range(VARIANTS):
        data = (codes | (random.getrandbits(length) & mask)).to_bytes(length // 8)
        # a byte 0xFF of the data is followed by 0; more of them before a marker are skipped
        data = data.replace(b"\xff", b"\xff\0")
        rows.append(_base64(data + b"\xff" * (-(len(data) + 2) % 3) + bytes((0xFF, marker))))
    return rows


def _segment(marker: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
