"""HTML from Python with escaping by construction.

A plain string is text, and is escaped when it becomes the content of a tag or the value of an attribute. Only `tag`
and `raw` make `Markup`, which is passed through. `raw` is for our own files, never for anything that came from outside.
"""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


VOID = {"input", "meta", "br", "wbr"}


def raw(text: str) -> Markup:
    """Our own HTML, as it is."""
    return Markup(text)


def tag(name: str, *content: str, **attributes: str | int) -> Markup:
    """An element. Attribute names may end in "_" (class_), and "_" inside stands for "-" (aria_label)."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"' for key, value in attributes.items()
    )
    if name in VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{joined(content)}</{name}>")


def joined(parts: "tuple[str, ...] | list[Markup] | list[str]") -> Markup:
    """The parts one after another, those that are not yet markup escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part, quote=True) for part in parts))
