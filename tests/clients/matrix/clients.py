"""The clients that the table names."""

from msgspec import Struct


class Client(Struct, frozen=True):
    """A client: its `name` in the scripts, the `api` that it uses, and the `packages` whose versions are shown."""

    name: str
    api: str
    packages: tuple[str, ...]
    python: bool = True


CLIENTS = (
    Client("openai", "chat", ("openai",)),
    Client("anthropic", "messages", ("anthropic",)),
)
