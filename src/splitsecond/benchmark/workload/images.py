"""Synthetic images: PNG files that differ in every pixel from request to request, and compress like
photographs.

Each row of a PNG can be stored as differences from the row above. All rows but the first are the
same small random differences, compressed once. Only the first row differs, so an image takes
microseconds, and no cache of images applies. PNG: RFC 2083; deflate: RFC 1951.
"""

import base64
import re
import struct
import zlib
from functools import lru_cache
from random import Random

from msgspec import Struct

from splitsecond.core.validation import wrong

MAX_SIDE, MAX_IMAGES = 8192, 64
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_UP = b"\x02"
"""Filter of a row whose bytes are differences from the row above."""
_CHANNELS = 3
_DIFFERENCES = bytes((value % 5 - 2) % 256 for value in range(256))
"""Maps random bytes to differences of −2 to 2: an image then has about 1 byte a pixel, as
photographs in PNG."""
_ADLER = 65521


class Images(Struct, frozen=True):
    """The images of a request: how many, and their size in pixels."""

    width: int
    height: int
    count: int = 1


def parse_images(text: str) -> Images:
    """Parse ``WIDTHxHEIGHT`` or ``WIDTHxHEIGHT,COUNT``. Raises `CallerFault`."""
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})(?:,(\d{1,3}))?", text.strip())
    if found:
        images = Images(int(found[1]), int(found[2]), int(found[3] or 1))
        sides = images.width, images.height
        if all(1 <= side <= MAX_SIDE for side in sides) and 1 <= images.count <= MAX_IMAGES:
            return images
    raise wrong(
        "images",
        text,
        f"WIDTHxHEIGHT or WIDTHxHEIGHT,COUNT, up to {MAX_SIDE} pixels and {MAX_IMAGES} images",
    )


def image_parts(images: Images, seed: str) -> list[dict[str, object]]:
    """Return the content parts of a message with images that depend on `seed`."""
    return [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}
        for number in range(images.count)
        for text in [
            base64.b64encode(png(images.width, images.height, f"{seed}/{number}")).decode()
        ]
    ]


def png(width: int, height: int, seed: str) -> bytes:
    """Return an image whose pixels depend on `seed`."""
    first = b"\0" + Random(seed).randbytes(width * _CHANNELS)
    rest, rest_adler, rest_length = _rest(width, height)
    start = b"\x78\x01" + _deflated(first, last=not rest_length)
    adler = _combined(zlib.adler32(first), rest_adler, rest_length)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", start),
            rest,
            _chunk(b"IDAT", struct.pack(">I", adler)),
            _chunk(b"IEND", b""),
        )
    )


@lru_cache(maxsize=8)
def _rest(width: int, height: int) -> tuple[bytes, int, int]:
    """Return the chunk of all rows but the first, with the checksum and the length of the rows."""
    random = Random(f"{width}x{height}")
    rows = b"".join(
        _UP + random.randbytes(width * _CHANNELS).translate(_DIFFERENCES) for _ in range(height - 1)
    )
    chunk = _chunk(b"IDAT", _deflated(rows, last=True)) if rows else b""
    return chunk, zlib.adler32(rows), len(rows)


def _deflated(data: bytes, *, last: bool) -> bytes:
    compressor = zlib.compressobj(level=6, wbits=-15)
    return compressor.compress(data) + compressor.flush(
        zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _combined(first: int, second: int, length: int) -> int:
    """Return the Adler-32 checksum of two parts from those of each; `length` is that of the
    second."""
    low_1, high_1, low_2, high_2 = first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16
    low = (low_1 + low_2 - 1) % _ADLER
    high = (high_1 + high_2 + (low_1 - 1) * length) % _ADLER
    return high << 16 | low
