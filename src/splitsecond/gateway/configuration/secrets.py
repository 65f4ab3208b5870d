"""Secrets of the configuration. They stand in it only as references: ``env:NAME`` or ``file:PATH``."""

from collections.abc import Mapping
from pathlib import Path

from splitsecond.gateway.configuration.mistakes import bad
from splitsecond.upstream.spec import keys_like


class Secrets:
    """References to secrets, and what they refer to. Relative paths begin at `folder`.

    `found`: each secret by its reference. `files`: those that were looked at, so that a change of one can be noticed.
    `keys`: whether those of providers are needed; where not, each reference stands for itself.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, *, keys: bool = True) -> None:
        self.found: dict[str, str] = {}
        self.files: list[Path] = []
        self.environment = environment
        self._folder = folder
        self._keys = keys

    def take(self, place: str, reference: str) -> str:
        """What `reference` refers to. Raises `CallerFault`, which says `place`, where there is nothing usable."""
        if not self._keys and place.startswith("providers.") and is_reference(reference):
            self.found[reference] = reference
            return reference
        kind, _, name = reference.partition(":")
        if kind == "env" and name:
            value = self.environment.get(name, "").strip()
            missing, hint = f"the environment variable {name} is not set", keys_like([name], self.environment).rstrip()
        elif kind == "file" and name:
            value = self._read(place, self._folder / name)
            missing, hint = f"the file {name} is empty", ""
        else:
            raise bad(place, "a secret must not stand in the file", "Write env:NAME or file:PATH.")
        if not value:
            raise bad(place, missing, hint)
        if not value.isascii() or not value.isprintable():
            raise bad(place, "the secret has characters that no HTTP header can carry")
        self.found[reference] = value
        return value

    def _read(self, place: str, file: Path) -> str:
        self.files.append(file)
        try:
            return file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise bad(place, f"cannot read the secret: {error}") from None


def is_reference(text: str) -> bool:
    """Whether `text` refers to a secret."""
    return text.startswith(("env:", "file:"))
