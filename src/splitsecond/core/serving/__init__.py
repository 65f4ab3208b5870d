"""HTTP/1.1 from the server's side, for the gateway and for the simulator: our own protocol on
httptools and asyncio.

Why not a public server: we measured this room, uvicorn (ASGI) and granian (RSGI) on uvloop, with
the same small application, 32 connections and one process; medians of three rounds, in µs of CPU
per request with a body of 1 kB:

|                                        | this room | uvicorn | granian |
|----------------------------------------|-----------|---------|---------|
| response of 300 bytes                  |        14 |      25 |      27 |
| … cancelled when the client disconnects|        14 |      30 |      36 |
| 64 chunks in successive loop iterations|       245 |     276 |     151 |

granian's streams are cheaper because it merges chunks that come close together: the first thing
that a gateway for token streams must not do. It buffers without limit for a client that does not
read (125 MB in 0.3 s), starts no cancellation, and accepts requests with two Host headers or with
both Transfer-Encoding and Content-Length. Neither server gives arrival times, resets a connection,
limits trailers or slow headers, or pauses accepting.
"""
