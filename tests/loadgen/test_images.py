import asyncio
import base64
import io
import struct
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from splitsecond.benchmark.load import worker
from splitsecond.benchmark.load.messages import Command, SetWorkload
from splitsecond.benchmark.workload.images import (
    MAX_SIZES,
    ImageFormat,
    Images,
    check_sizes,
    image_parts,
    parse_images,
    prepare_images,
)
from splitsecond.benchmark.workload.jpeg_images import jpeg_base64
from splitsecond.benchmark.workload.png_images import png_base64
from splitsecond.benchmark.workload.workload import Composer, Workload, WorkloadVariant
from splitsecond.core.errors import CallerFault
from splitsecond.core.pacing import Pacer
from splitsecond.core.upstream.target import connect
from splitsecond.testing.virtual_time import run_virtual

MADE = {"png": png_base64, "jpeg": jpeg_base64}


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


def made(form: str, width: int, height: int, seed: str) -> bytes:
    return base64.b64decode(MADE[form](width, height, seed), validate=True)


def pixels_of(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB").tobytes()


@given(width=st.integers(1, 70), height=st.integers(1, 70), seed=st.text(max_size=5))
def test_png_has_its_size_and_right_checksums(width: int, height: int, seed: str) -> None:
    data = made("png", width, height, seed)
    pixels = zlib.decompress(b"".join(content for kind, content in chunks(data) if kind == b"IDAT"))
    assert len(pixels) == height * (1 + 3 * width)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.size == (width, height)


@given(width=st.integers(1, 70), height=st.integers(1, 200), seed=st.text(max_size=5))
def test_jpeg_has_its_size_and_all_of_its_rows(width: int, height: int, seed: str) -> None:
    data = made("jpeg", width, height, seed)
    scan = data[data.index(b"\xff\xda") :].replace(b"\xff\0", b"")
    markers = [scan[at + 1] for at in range(2, len(scan) - 1) if scan[at : at + 1] == b"\xff"]
    rows = -(-height // 16)
    assert [marker for marker in markers if marker != 0xFF] == [
        *(0xD0 + row % 8 for row in range(rows - 1)),
        0xD9,
    ]
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.size == (width, height)
        assert image.format == "JPEG"


@pytest.mark.parametrize(("form", "least", "most"), [("png", 0.5, 1.5), ("jpeg", 0.15, 0.35)])
def test_images_differ_and_are_as_long_as_photographs(form: str, least: float, most: float) -> None:
    first, second = made(form, 256, 256, "a"), made(form, 256, 256, "b")
    assert first == made(form, 256, 256, "a")
    pixels = [pixels_of(each) for each in (first, second)]
    same = sum(
        pixels[0][at : at + 3] == pixels[1][at : at + 3] for at in range(0, len(pixels[0]), 3)
    )
    assert same < 0.06 * 256**2
    assert least < len(first) / 256**2 < most


def test_jpeg_of_one_row_is_another_file_each_time() -> None:
    assert len({made("jpeg", 8, 8, str(number)) for number in range(100)}) == 100


@pytest.mark.parametrize("form", ["png", "jpeg"])
def test_prepared_image_compresses_nothing_of_its_size(
    form: ImageFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(300, 200, 1, form)
    prepare_images(images)
    compressed: list[int] = []
    original = zlib.compressobj

    def compressobj(**options: int) -> object:
        compressed.append(1)
        return original(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(zlib, "compressobj", compressobj)
    image_parts(images, "seed")
    assert len(compressed) == (form == "png"), "only the first row of a PNG is compressed"


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
    "text", ["", "10", "0x10", "10x10,0", "10x10x10", "9999x1", "1x1,65", "axb", "1x1,gif"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CallerFault, match=r"WxH\[,N\]\[,jpeg\]"):
        parse_images(text)


def test_run_with_too_many_sizes_is_refused() -> None:
    sizes = [Images(width, 1, number) for width in range(1, MAX_SIZES + 1) for number in (1, 2)]
    check_sizes([*sizes, None])
    with pytest.raises(CallerFault, match="got '9 sizes', expected at most 8 in one run"):
        check_sizes([*sizes, Images(1, 1, 1, "jpeg")])


def test_worker_prepares_images_when_it_gets_the_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[Images] = []
    monkeypatch.setattr(worker, "prepare_images", prepared.append)

    async def commands() -> AsyncIterator[Command]:
        yield SetWorkload("t", Workload(run="r", images=Images(3, 3)))
        await asyncio.sleep(1)
        assert prepared == [Images(3, 3)]

    async def play() -> None:
        loader = worker.LoadWorker(connect, lambda _: None, Pacer(asyncio.get_running_loop()))
        await loader.run(commands())

    run_virtual(play())


def test_parts_are_those_of_the_seed() -> None:
    assert image_parts(Images(3, 3), "s") == image_parts(Images(3, 3), "s")
    assert parse_images("1024x768,3") == Images(1024, 768, 3)
    assert parse_images("1024x768,jpeg") == Images(1024, 768, 1, "jpeg")
    assert parse_images("1024x768,3,jpeg") == Images(1024, 768, 3, "jpeg")
