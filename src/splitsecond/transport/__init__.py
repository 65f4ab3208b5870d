"""Sockets to byte chunks with arrival times: connections, pools, TLS, proxies. Knows nothing of models.

Use: a `Client` sends a `Request` to an `Origin`, and a `Receiver` is told of the answer as it arrives, each piece
with the time at which the kernel received it. `Exchange` is the handle on a request under way.
"""

from splitsecond.transport.client import Client
from splitsecond.transport.exchange import Connected, Exchange, Origin, Receiver, Request
from splitsecond.transport.pool import PoolStatistics

__all__ = ["Client", "Connected", "Exchange", "Origin", "PoolStatistics", "Receiver", "Request"]
