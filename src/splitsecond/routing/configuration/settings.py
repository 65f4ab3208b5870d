"""Settings of a gateway: those of its router, its clients' keys, and where it listens."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct, structs

from splitsecond.core.errors import CallerFault
from splitsecond.core.loading import loading
from splitsecond.core.wording import counted_as
from splitsecond.routing.construction.expression import LONGEST, parse
from splitsecond.routing.construction.user_policies import PolicyFile
from splitsecond.routing.router.settings import ClientKey, RouterSettings, TelemetrySettings

MetricsFor = Literal["loopback", "key", "off"]
"""Who may read /metrics, /explain and the dashboard: "loopback" admits clients on this machine and
keys for all routes, "key" only the latter, "off" nobody. A proxy on this machine that sends no
header about its own clients makes them look local."""


class Listen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address of the gateway, and what it accepts there."""

    host: Annotated[
        str,
        Meta(
            description="The address to listen on. Without keys, only an address of this machine."
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0: a free one.")] = 8800
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Worker processes, which share the port.")
    ] = 1
    cors: Annotated[
        tuple[str, ...],
        Meta(
            description="Origins whose pages may send requests from a browser: "
            '"https://app.example", or "*".'
        ),
    ] = ()
    metrics: Annotated[
        MetricsFor,
        Meta(
            description="Who may read /metrics, /explain and /dashboard: this machine without a "
            "key, and keys for all "
            "routes or for that page; only such keys; nobody."
        ),
    ] = "loopback"
    client: Annotated[
        str, Meta(max_length=64, description="Name of clients without a key in logs and metrics.")
    ] = ""
    max_body_mib: Annotated[int, Meta(ge=1, le=1024, description="Largest request.")] = 32
    drain_s: Annotated[
        int,
        Meta(
            ge=1, le=3600, description="Seconds that responses in flight have to end after SIGTERM."
        ),
    ] = 30

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class FleetSettings(Struct, frozen=True):
    """The PostgreSQL database that the gateways of a fleet share. The repr omits the URL: it may
    contain a password."""

    url: str

    def __repr__(self) -> str:
        return "FleetSettings()"


STANDARD_OUTPUT = "-"
"""As the path of the access log."""


class GatewaySettings(RouterSettings, frozen=True, kw_only=True):
    """Settings of a gateway. `policies`: the file of the user's policies. `files`: it, and the
    files with secrets. `telemetry`: where spans and metrics go; None: nowhere. `access_log`: the
    path of the access log; "-": standard output; None: there is none. `shared`: the database of a
    fleet; None: the gateway is alone."""

    listen: Listen = Listen()
    keys: tuple[ClientKey, ...] = ()
    policies: PolicyFile | None = None
    telemetry: TelemetrySettings | None = None
    access_log: str | None = None
    shared: FleetSettings | None = None
    files: tuple[Path, ...] = ()


def encode(settings: GatewaySettings) -> bytes:
    """Return `settings`, with their secrets, as one line of JSON for a worker process.

    Variables of the environment that are not UTF-8 are left out: they cannot be keys or addresses.
    """
    fields = structs.asdict(settings)
    fields["environment"] = {
        name: value
        for name, value in settings.environment.items()
        if _is_unicode(name) and _is_unicode(value)
    }
    fields["routes"] = {name: repr(policy) for name, policy in settings.routes.items()}
    return msgspec.json.encode(fields, enc_hook=str) + b"\n"


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def decode(line: bytes) -> GatewaySettings:
    """Return the settings that `encode` wrote. Raises `CallerFault` if the file of policies cannot
    be run here."""
    types = {field.name: field.type for field in structs.fields(GatewaySettings)} | {
        "routes": dict[str, str]
    }
    fields = {
        name: msgspec.json.decode(value, type=types[name], dec_hook=lambda kind, text: kind(text))
        for name, value in msgspec.json.decode(line, type=dict[str, Raw]).items()
    }
    longest = 2 * LONGEST  # the text of a parsed policy has spaces that the file may not have
    own = fields["policies"].policies() if fields["policies"] else {}
    fields["routes"] = {
        name: parse(policy, own, longest=longest) for name, policy in fields["routes"].items()
    }
    return GatewaySettings(**fields)


def check_reach(settings: GatewaySettings) -> None:
    """Raise `CallerFault` if other machines could use the gateway, and so our providers' keys,
    without a key."""
    if not settings.keys and not settings.listen.is_loopback:
        raise CallerFault(
            f"without keys the gateway listens only on this machine, not on {settings.listen.host}",
            kind="no_keys",
            hint="Add keys: [{name: web, key: env:WEB_KEY}] to the configuration, or listen on "
            "127.0.0.1.",
        )


def check_log(settings: GatewaySettings) -> None:
    """Raise `CallerFault` if no log can be kept where the configuration names one."""
    if settings.log is not None:
        with loading():  # SQLAlchemy, which a gateway without a log does not need
            from splitsecond.log.store.database import check_url

        check_url(settings.log.url)


def summary(settings: GatewaySettings) -> str:
    return f"{counted_as(len(settings.routes), 'route')}, {counted_as(len(settings.keys), 'key')}"
