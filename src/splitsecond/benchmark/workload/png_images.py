"""PNG files in base64. Each row of a PNG can be stored as differences from the row above. All rows
but the first are the same small random differences, compressed once. Only the first row differs
between images, and with it every pixel. PNG: RFC 2083; deflate: RFC 1951.
"""

import struct
import zlib
from binascii import b2a_base64
from functools import lru_cache
from random import Random
from typing import NamedTuple

SIZES = 8
"""Sizes that are kept."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP = b"\x02"
"""Filter of a row whose bytes are differences from the row above."""
_CHANNELS = 3
_DIFFERENCES = bytes((value % 5 - 2) % 256 for value in range(256))
"""Maps random bytes to differences of −2 to 2: an image then has about 1 byte a pixel, as
photographs in PNG."""
_ADLER = 65521


class _Rows(NamedTuple):
    """All rows but the first: their chunk in base64 and its last bytes, which are less than three,
    and the checksum and the length of the rows."""

    text: str
    end: bytes
    adler: int
    length: int


def png_base64(width: int, height: int, seed: str) -> str:
    """Return an image whose pixels depend on `seed`."""
    first = b"\0" + Random(seed).randbytes(width * _CHANNELS)
    rest = _rest(width, height)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    compressor = _compressor()
    end = zlib.Z_FULL_FLUSH if rest.length else zlib.Z_FINISH
    start = b"\x78\x01" + compressor.compress(first) + compressor.flush(end)
    start = _chunk(b"IDAT", start)
    # base64 has groups of three bytes, so what was encoded before must begin after a multiple
    fill = _chunk(b"tEXt", b"fill\0" + b"." * (-(len(start) + 17) % 3))
    adler = _combined(zlib.adler32(first), rest.adler, rest.length)
    return "".join(
        (
            _base64(_SIGNATURE + _chunk(b"IHDR", header) + fill + start),
            rest.text,
            _base64(rest.end + _chunk(b"IDAT", struct.pack(">I", adler)) + _chunk(b"IEND", b"")),
        )
    )


@lru_cache(maxsize=SIZES)
def _rest(width: int, height: int) -> _Rows:
    random, compressor, adler = Random(f"{width}x{height}"), _compressor(), 1
    parts = []
    for _ in range(height - 1):
        row = _UP + random.randbytes(width * _CHANNELS).translate(_DIFFERENCES)
        adler = zlib.adler32(row, adler)
        parts.append(compressor.compress(row))
    parts.append(compressor.flush())
    chunk = _chunk(b"IDAT", b"".join(parts)) if height > 1 else b""
    whole = len(chunk) // 3 * 3
    length = (height - 1) * (1 + width * _CHANNELS)
    return _Rows(_base64(chunk[:whole]), chunk[whole:], adler, length)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _compressor() -> "zlib._Compress":
    return zlib.compressobj(wbits=-15, strategy=zlib.Z_HUFFMAN_ONLY)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _combined(first: int, second: int, length: int) -> int:
    """Return the Adler-32 checksum of two parts from those of each; `length` is that of the
    second."""
    low_1, high_1, low_2, high_2 = first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16
    low = (low_1 + low_2 - 1) % _ADLER
    high = (high_1 + high_2 + (low_1 - 1) * length) % _ADLER
    return high << 16 | low
