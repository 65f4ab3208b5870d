"""Secrets of the configuration, which the file contains only as references: ``env:NAME`` or
``file:PATH``."""

from collections.abc import Mapping
from pathlib import Path

from splitsecond.core.errors import read_file
from splitsecond.core.upstream.spec import keys_like
from splitsecond.routing.configuration.error_messages import bad


class Secrets:
    """Resolved references to secrets. Paths are relative to `folder`.

    `found`: each secret by its reference. `files`: the files that were read, to detect changes.
    `keys`: whether the keys of providers are needed; if not, a reference resolves to itself.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path, *, keys: bool = True) -> None:
        self.found: dict[str, str] = {}
        self.files: list[Path] = []
        self.environment = environment
        self._folder = folder
        self._keys = keys

    def take(self, place: str, reference: str) -> str:
        """Return the secret that `reference`, found at `place`, refers to. Raises `CallerFault` if
        it is unusable."""
        if not self._keys and place.startswith("providers.") and is_reference(reference):
            self.found[reference] = reference
            return reference
        kind, _, name = reference.partition(":")
        if kind == "env" and name:
            value = self.environment.get(name, "").strip()
            missing, hint = (
                f"the environment variable {name} is not set",
                keys_like([name], self.environment).rstrip(),
            )
        elif kind == "file" and name:
            value = self._read(place, self._folder / name)
            missing, hint = f"the file {name} is empty", ""
        else:
            raise bad(place, "the file must not contain a secret", "Write env:NAME or file:PATH.")
        if not value:
            raise bad(place, missing, hint)
        if not value.isascii() or not value.isprintable():
            raise bad(place, "the secret has characters that no HTTP header can carry")
        self.found[reference] = value
        return value

    def _read(self, place: str, file: Path) -> str:
        self.files.append(file)
        try:
            return read_file(file).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise bad(place, f"cannot read the secret: {error}") from None


def is_reference(text: str) -> bool:
    return text.startswith(("env:", "file:"))
