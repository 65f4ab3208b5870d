"""Synthetic images of requests: PNG or JPEG files that differ from request to request, and are as
long as photographs of their size.

A process that measures must not compress images meanwhile. So `prepare_images` makes nearly all of
a file before, already in base64. What differs between images takes less than a millisecond.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from splitsecond.benchmark.workload import jpeg_images, png_images
from splitsecond.core.validation import wrong

MAX_SIDE, MAX_IMAGES = 8192, 64
MAX_SIZES = min(png_images.SIZES, jpeg_images.SIZES)
"""Most sizes in a run, because what images of a size share is kept."""
ImageFormat = Literal["png", "jpeg"]
_MAKERS: Mapping[ImageFormat, Callable[[int, int, str], str]] = {
    "png": png_images.png_base64,
    "jpeg": jpeg_images.jpeg_base64,
}


class Images(Struct, frozen=True):
    """The images of a request: how many, their size in pixels, and their format."""

    width: int
    height: int
    count: int = 1
    format: ImageFormat = "png"


def parse_images(text: str) -> Images:
    """Parse ``WIDTHxHEIGHT``, then ``,COUNT`` and ``,jpeg`` or ``,png`` if given. Raises
    `CallerFault`."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(?:,(\d{1,3}))?(?:,(png|jpeg))?", text.strip())
    if match:
        form: ImageFormat = "jpeg" if match[4] == "jpeg" else "png"
        images = Images(int(match[1]), int(match[2]), int(match[3] or 1), form)
        sides = images.width, images.height
        if all(1 <= side <= MAX_SIDE for side in sides) and 1 <= images.count <= MAX_IMAGES:
            return images
    raise wrong(
        "images",
        text,
        f"WxH[,N][,jpeg] such as 1024x1024,2 or 1024x1024,jpeg, up to {MAX_SIDE} pixels and "
        f"{MAX_IMAGES} images",
    )


def check_sizes(images: Iterable[Images | None]) -> None:
    """Raise `CallerFault` if the images of a run have more sizes than are kept."""
    sizes = {(each.width, each.height, each.format) for each in images if each}
    if len(sizes) > MAX_SIZES:
        raise wrong("images", f"{len(sizes)} sizes", f"at most {MAX_SIZES} in one run")


def prepare_images(images: Images) -> None:
    """Make what all images of this size share, which takes up to seconds."""
    _MAKERS[images.format](images.width, images.height, "")


def image_parts(images: Images, seed: str) -> list[dict[str, object]]:
    """Return the content parts of a message with images that depend on `seed`."""
    make = _MAKERS[images.format]
    return [
        {
            "type": "image_url",
            "image_url": {
                "url": f"data:image/{images.format};base64,"
                + make(images.width, images.height, f"{seed}/{number}")
            },
        }
        for number in range(images.count)
    ]
