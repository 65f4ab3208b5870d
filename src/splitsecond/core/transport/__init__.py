"""HTTP/1.1 client that reports byte chunks with their arrival times: connections, pools, TLS, proxies.

A `Client` sends a `Request` to an `Origin` and calls a `Receiver` as the response arrives, with the time at which the
kernel received each chunk. The `Exchange` is the handle on a request in flight. Nothing here knows about models.
"""

from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Connected, Exchange, Origin, Receiver, Request
from splitsecond.core.transport.pool import PoolStatistics

__all__ = ["Client", "Connected", "Exchange", "Origin", "PoolStatistics", "Receiver", "Request"]
