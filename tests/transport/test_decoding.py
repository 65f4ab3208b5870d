"""Inflating in pieces, and the bound on it."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.transport.decoding import (
    FREE_BYTES,
    MAX_RATIO,
    BadEncoding,
    Inflater,
    inflater_for,
)


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeeze.compress(data) + squeeze.flush()


@given(
    data=st.binary(max_size=2000),
    squeeze=st.sampled_from([gzip.compress, zlib.compress, raw_deflate]),
    size=st.integers(1, 200),
)
def test_pieces_of_any_size_give_the_whole(data: bytes, squeeze: object, size: int) -> None:
    assert callable(squeeze)
    packed = squeeze(data)
    inflater = Inflater()
    out = b""
    for start in range(0, len(packed), size):
        assert not inflater.whole or start == 0
        out += inflater.feed(packed[start : start + size])
    assert out == data
    assert inflater.whole


@pytest.mark.parametrize("size", [100, 65536])
def test_compression_bomb_is_refused_early(size: int) -> None:
    packed = gzip.compress(bytes(50_000_000))
    inflater = Inflater()
    out: list[bytes] = []

    def inflate_all() -> None:
        out.extend(
            inflater.feed(packed[start : start + size]) for start in range(0, len(packed), size)
        )

    with pytest.raises(BadEncoding, match="grow to more than"):
        inflate_all()
    assert sum(map(len, out)) <= FREE_BYTES + MAX_RATIO * len(packed)


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
def test_identity_coding_needs_no_inflater(coding: str) -> None:
    assert inflater_for(coding) is None


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_unsupported_codings_are_refused(coding: str) -> None:
    with pytest.raises(BadEncoding, match="expected none, gzip or deflate"):
        inflater_for(coding)


def test_uncompressed_bytes_are_refused() -> None:
    inflater = Inflater()
    with pytest.raises(BadEncoding):
        inflater.feed(b"\xff\xff" + b"plain text")
