"""HTTP/1.1 client that reports byte chunks with their arrival times: connections, pools, TLS,
proxies.

Nothing here knows about models.
"""

from splitsecond.core.transport.client import Client
from splitsecond.core.transport.exchange import Connected, Exchange, Origin, Receiver, Request
from splitsecond.core.transport.pool import PoolStatistics

__all__ = ["Client", "Connected", "Exchange", "Origin", "PoolStatistics", "Receiver", "Request"]
