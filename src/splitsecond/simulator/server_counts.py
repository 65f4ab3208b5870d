"""What a simulated server counts for its `/metrics` beside its engines. Loads no library of
Prometheus."""

import msgspec

from splitsecond.core.wire.api_format import ServerTimes


class Times(msgspec.Struct):
    """A histogram without limits: the number of requests, and the sum of their times in ns."""

    count: int = 0
    sum_ns: int = 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.sum_ns += ns


class ServerCounts(msgspec.Struct):
    """What the server counts beside its engines: tokens of prompts, and the times of requests.

    Times to the first token are counted when it is sent, the others when a response is complete, as
    vLLM does.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft: Times = msgspec.field(default_factory=Times)
    queue: Times = msgspec.field(default_factory=Times)
    prefill: Times = msgspec.field(default_factory=Times)
    decode: Times = msgspec.field(default_factory=Times)
    e2e: Times = msgspec.field(default_factory=Times)

    def began(self, times: ServerTimes, prompt_tokens: int, cached_tokens: int) -> None:
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        self.ttft.add(times.queue_ns + times.prompt_ns)

    def completed(self, times: ServerTimes) -> None:
        self.queue.add(times.queue_ns)
        self.prefill.add(times.prompt_ns)
        self.decode.add(times.output_ns)
        self.e2e.add(times.total_ns)
