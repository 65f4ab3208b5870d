"""What each figure means, in the words of the report: for a reader who wants to compare it with another tool's."""

DEFINITIONS = {
    "First token": (
        "The first event that carries content: visible text, reasoning, a refusal, an argument of a tool call, "
        "audio. Never headers, an event that only names the role, an empty event, a ping or a comment."
    ),
    "TTFT": (
        "Time to first token: from the first byte of the request on a ready connection to the arrival of the "
        "first token. Cold TTFT adds the time for DNS, TCP and TLS. TTFT from due counts from the moment when the "
        "schedule wanted the request to leave, so a request that had to wait is not flattered."
    ),
    "First answer": ("From the first byte of the request to the first token that is not reasoning."),
    "TPS": (
        "Tokens per second of one request after its first token: (N − n1) / (last token − first token), with N "
        "the output tokens and n1 those in the first event. There is none below two tokens, or when all arrived "
        "at once."
    ),
    "TPOT, ITL": (
        "TPOT is the time per output token, 1/TPS. ITL are the gaps between events that carry content. ITL per token "
        "shares each gap out over the tokens of the event that ended it: k tokens count as k gaps, each a k-th as "
        "long. k is told by the provider's running count, else by the event's share of the characters, else it is 1."
    ),
    "E2E, response": (
        "E2E is from the first byte of the request to the last token; response is the same from the moment the "
        "request was due."
    ),
    "Total TPS": (
        "Output tokens divided by everything from the moment the call came in until its end, connection and wait "
        "included; of requests that succeeded."
    ),
    "The server's own times": (
        "What a provider itself says of where a request's time went, by its own names: queue, prompt and completion "
        "(Groq, Cerebras), load, prompt eval and eval (Ollama), prompt and predicted (llama.cpp), processing (OpenAI, "
        "until its answer began). What lies between them and ours is the network and the way to the model."
    ),
    "System tokens/s": (
        "Output tokens of all requests together that arrived in the steady window (while the asked number of "
        "requests was under way), divided by its length."
    ),
    "Batching efficiency": ("System tokens/s at this concurrency divided by that at concurrency 1."),
    "Goodput": ("Requests that met every limit, of all requests sent; an error misses."),
    "Cost": (
        "Every kind of token at its own price: input, input from the provider's prompt cache, output with its "
        "reasoning. A row's cost is of all that was sent for it, warm-ups, failures and the losers of a race included; "
        "“≥” says that some attempts were closed before the provider counted their tokens. A million tokens cost what "
        "the row cost divided by all tokens of its answers, so they are in the row's own mix of input and output. A "
        "machine paid by the hour: the hour, divided by the tokens of an hour at the row's system tokens/s."
    ),
    "Cache reuse": (
        "Of a run that asked in two ways: prompts that share all but their last words, so that the provider's prompt "
        "cache can have them. The other way, with as many tokens, begins each prompt differently. Both take turns, and "
        "the cache is filled by warm-ups; “cached” is what the provider says came from it."
    ),
    "N": (
        "The provider's own count of tokens (usage); else a tokenizer's; else the number of events. Which one it "
        "was stands under “counted by”."
    ),
    "p50, p95, p99": (
        "Exact percentiles with linear interpolation, never beyond the largest value. For times p95 is what 95 % "
        "of requests stayed below; for TPS, what 95 % of requests reached or exceeded."
    ),
    "95 % interval": (
        "From order statistics: it assumes nothing about the shape of the distribution. “?” is a bound that this "
        "number of requests cannot give. p50 needs 6 requests, p95 needs 72 and p99 needs 368."
    ),
    "INVALID": (
        "A row whose figures may say more about this machine, or about a proxy, than about the target; the reason "
        "stands with it. Comparisons leave it out."
    ),
    "Read lag": (
        "How long arrived bytes waited until this program read them. Where arrival times are the kernel's, it is "
        "not part of any figure; where they are taken at the read, it is."
    ),
}
