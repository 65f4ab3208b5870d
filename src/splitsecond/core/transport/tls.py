"""TLS between the socket and the parser, by `ssl.MemoryBIO`: we read the socket, so that arrival
times stay ours.

Verification is always on. Trust comes from the system, or from SSL_CERT_FILE and SSL_CERT_DIR,
which OpenSSL's defaults use.
"""

import asyncio
import socket
import ssl

from splitsecond.core.errors import NetworkFault
from splitsecond.core.transport.exchange import Origin

_READ_BYTES = 64 * 1024


def prepare_context(context: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return `context`, or one with the system's certificates, set to HTTP/1.1 by ALPN and no
    renegotiation.

    Creating one takes some 10 ms, as it reads all of the system's certificates: do it before a
    measurement begins.
    """
    context = context or ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class TlsSession:
    __slots__ = ("_incoming", "_object", "_outgoing", "broken", "finished")

    def __init__(
        self, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._object, self._incoming, self._outgoing = tls, incoming, outgoing
        self.finished = False
        """Whether the peer announced the end (close_notify). Without it, an end may be an
        attack."""
        self.broken: ssl.SSLError | None = None

    def decrypt(self, records: bytes | memoryview) -> bytes:
        """Return all plain bytes that `records` complete. Never raises: a failure is in `broken`
        afterwards."""
        incoming, tls = self._incoming, self._object
        incoming.write(records)
        pieces: list[bytes] = []
        try:
            while piece := tls.read(_READ_BYTES):
                pieces.append(piece)
                # Another read would raise, so do it only if something is left.
                if not incoming.pending and not tls.pending():
                    break
            else:
                self.finished = True
        except ssl.SSLWantReadError:
            # the rest of a record has not arrived, or it had no plain bytes (a session ticket)
            pass
        except ssl.SSLError as error:
            self.broken = error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def encrypt(self, plain: bytes) -> bytes:
        rest = memoryview(plain)
        while rest:  # each write takes one record, 16 KiB
            rest = rest[self._object.write(rest) :]
        return self._outgoing.read()

    def pending(self) -> bytes:
        """Return what OpenSSL itself needs to send (a reply to a key update, an alert); usually
        nothing."""
        return self._outgoing.read() if self._outgoing.pending else b""


async def handshake(sock: socket.socket, context: ssl.SSLContext, origin: Origin) -> TlsSession:
    """Establish TLS with `origin` over a connected socket. Raises `NetworkFault` of kind
    "certificate" or "tls"."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=origin.host)
    established = False
    try:
        while not established:
            try:
                tls.do_handshake()
                established = True
            except ssl.SSLWantReadError:
                pass
            if outgoing.pending:
                await loop.sock_sendall(sock, outgoing.read())
            if not established:
                data = await loop.sock_recv(sock, _READ_BYTES)
                if not data:
                    raise _failed(
                        origin,
                        "the server closed the connection in the middle of the TLS handshake",
                    )
                incoming.write(data)
    except ssl.SSLCertVerificationError as error:
        raise NetworkFault(
            f"the certificate of {origin.host} is not trusted: {error.verify_message}",
            kind="certificate",
            phase="tls",
            hint="If your own authority or a proxy signed it, set SSL_CERT_FILE to its PEM file.",
        ) from error
    except OSError as error:
        raise _failed(origin, f"the TLS handshake failed: {error.strerror or error}") from error
    return TlsSession(tls, incoming, outgoing)


def _failed(origin: Origin, what: str) -> NetworkFault:
    return NetworkFault(
        f"{what} ({origin})",
        kind="tls",
        phase="tls",
        hint="Does the server speak TLS on this port, or plain http?",
    )
