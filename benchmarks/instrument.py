"""The instrument's own error and cost: `python -m benchmarks.instrument` (about two minutes), for docs/performance.md.

The bench's worker times a simulated provider that logs when it handed each token to the kernel. Beside it runs a bare
reader in the same minutes: one epoll loop that does nothing but read the same streams with the same system call. What
it costs is what this machine's kernel asks of any client that reads each token by itself; ours divided by it is a
figure that machines can be compared by.
"""

import resource
import select
import socket
import statistics
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from splitsecond import clock
from splitsecond.analysis.accuracy import Accuracy
from splitsecond.cli.self_check import YARDSTICK, measure_instrument
from splitsecond.simulator.process import Running, running

LEVELS = (32, 256)
REPEATS = 3
TOKENS = 512
"""Length of an answer: what `bench` asks for by default."""
REACH = {32: (0.3, 1.0), 256: (0.8, 2.0)}
REACH_CPU_MS = 8.0


def bare_cpu_ms_per_1000_tokens(provider: Running, streams: int) -> float:
    """CPU time of reading `streams` answers with epoll and recvmsg alone: no HTTP, no JSON, no timing."""
    address = urlsplit(provider.base_url)
    body = b'{"model":"%b","messages":[{"role":"user","content":"x"}],"max_tokens":%d,"stream":true}' % (
        provider.model.encode(),
        TOKENS,
    )
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    buffers = [memoryview(bytearray(65536))]
    for _ in range(streams):
        sock = socket.create_connection((address.hostname, address.port))
        sock.setsockopt(socket.SOL_SOCKET, 35, 1)
        sock.setblocking(False)
        sockets[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    begin = clock.now_ns()
    waiting = list(sockets.values())
    before = resource.getrusage(resource.RUSAGE_SELF)
    while sockets:
        # The requests leave spread over the time to first token, as the bench sends them.
        while waiting and clock.now_ns() - begin >= (streams - len(waiting)) * 300 * clock.NS_PER_MS // streams:
            waiting.pop().send(request)
        for descriptor, _ in poll.poll(0.001 if waiting else -1):
            sock = sockets[descriptor]
            if not sock.recvmsg_into(buffers, 64)[0]:
                poll.unregister(descriptor)
                sockets.pop(descriptor).close()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used_s * 1000 / (streams * TOKENS) * 1000


def medians(levels: Sequence[Accuracy]) -> tuple[float, float, float]:
    """Medians over the repeats: the error of TTFT at p50 and p99 in ms, and CPU ms per 1,000 tokens."""
    p50 = statistics.median(level.ttft_error_ms.p50 or 0 for level in levels)
    p99 = statistics.median(level.ttft_error_ms.p99 or 0 for level in levels)
    return p50, p99, statistics.median(level.cpu_ms_per_1000_tokens or 0 for level in levels)


def main() -> int:
    """Prints a Markdown table; returns 1 where a row is not reached."""
    measured: dict[int, list[Accuracy]] = {level: [] for level in LEVELS}
    bare: list[float] = []
    for _ in range(REPEATS):
        for result in measure_instrument(LEVELS, tokens=TOKENS):
            measured[result.streams].append(result)
        with running(YARDSTICK) as (provider,):
            bare.append(bare_cpu_ms_per_1000_tokens(provider, max(LEVELS)))
    missed = 0
    print(f"| streams x 100 tokens/s, median of {REPEATS} | TTFT error p50 | p99 | reach | CPU ms per 1,000 tokens |")
    print("|---|---|---|---|---|")
    for streams, results in measured.items():
        p50, p99, cpu = medians(results)
        reached = p50 <= REACH[streams][0] and p99 <= REACH[streams][1]
        failed = sum(result.failed for result in results)
        missed += not reached or failed > 0
        limits = f"{REACH[streams][0]} / {REACH[streams][1]} ms"
        print(f"| {streams} | {p50:.3f} ms | {p99:.3f} ms | {limits}{'' if reached else ' MISSED'} | {cpu:.1f} |")
    cpu, floor = medians(measured[max(LEVELS)])[2], statistics.median(bare)
    missed += cpu > REACH_CPU_MS
    print(
        f"\nA bare reader (epoll and recvmsg, nothing else) of {max(LEVELS)} streams cost {floor:.1f} ms per 1,000 "
        f"tokens in the same minutes; ours cost {cpu:.1f}, which is {cpu / floor:.2f} times that "
        f"(reach: {REACH_CPU_MS:g} ms{'' if cpu <= REACH_CPU_MS else ' MISSED'})."
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
