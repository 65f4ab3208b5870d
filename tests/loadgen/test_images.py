import base64
import io
import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from splitsecond.benchmark.workload.images import Images, image_parts, parse_images, png
from splitsecond.benchmark.workload.workload import Composer, Workload, WorkloadVariant
from splitsecond.core.errors import CallerFault


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks of a PNG file, whose checksums must be right."""
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (
            zlib.crc32(kind + content),
        )
        yield kind, content
        at += 12 + length


@given(width=st.integers(1, 70), height=st.integers(1, 70), seed=st.text(max_size=5))
def test_image_has_its_size_and_right_checksums(width: int, height: int, seed: str) -> None:
    data = png(width, height, seed)
    pixels = zlib.decompress(b"".join(content for kind, content in chunks(data) if kind == b"IDAT"))
    assert len(pixels) == height * (1 + 3 * width)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.size == (width, height)


def test_every_pixel_differs_and_size_is_that_of_a_photograph() -> None:
    first, second = png(256, 256, "a"), png(256, 256, "b")
    assert first == png(256, 256, "a")
    pixels = [Image.open(io.BytesIO(each)).convert("RGB").tobytes() for each in (first, second)]
    same = sum(
        pixels[0][at : at + 3] == pixels[1][at : at + 3] for at in range(0, len(pixels[0]), 3)
    )
    assert same < 10
    assert 0.5 < len(first) / 256**2 < 1.5


def test_request_has_its_own_images_after_the_text() -> None:
    workload = Workload(run="r", images=Images(8, 4, 2))
    one, other = (
        Composer(workload).body(call, 0)["messages"][-1]["content"] for call in ("1", "2")
    )
    assert [part["type"] for part in one] == ["text", "image_url", "image_url"]
    urls = {part["image_url"]["url"] for part in (*one[1:], *other[1:])}
    assert len(urls) == 4
    for url in urls:
        data = base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True)
        assert Image.open(io.BytesIO(data)).size == (8, 4)


def test_variant_has_the_images_of_its_own_or_of_the_run() -> None:
    variants = {
        "small": WorkloadVariant(input_tokens=9, images=Images(1, 1)),
        "run": WorkloadVariant(input_tokens=9),
    }
    workload = Workload(run="r", images=Images(2, 2), variants=variants)
    assert [workload.of_target(f"t#{name}", 9)[0].images for name in variants] == [
        Images(1, 1),
        Images(2, 2),
    ]


@pytest.mark.parametrize(
    "text", ["", "10", "0x10", "10x10,0", "10x10x10", "9999x1", "1x1,65", "axb"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CallerFault, match="WIDTHxHEIGHT"):
        parse_images(text)


def test_parts_are_those_of_the_seed() -> None:
    assert image_parts(Images(3, 3), "s") == image_parts(Images(3, 3), "s")
    assert parse_images("1024x768,3") == Images(1024, 768, 3)
