"""A streaming client of the gateway, with the time to first token as the client sees it."""

import os
import time

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("SPLITSECOND_URL", "http://127.0.0.1:8800/v1"),
    api_key=os.environ["SPLITSECOND_KEY"],
)
began = time.monotonic()
stream = client.chat.completions.create(
    model=os.environ.get("SPLITSECOND_ROUTE", "default"),
    messages=[{"role": "user", "content": "What is a split second?"}],
    max_tokens=40,
    stream=True,
    stream_options={"include_usage": True},
)
first_s, tokens = None, 0
# raises openai.APIError if the response breaks: half an answer never looks whole
for chunk in stream:
    if chunk.choices and (text := chunk.choices[0].delta.content):
        first_s = first_s or time.monotonic() - began
        print(text, end="", flush=True)
    if chunk.usage:
        tokens = chunk.usage.completion_tokens
assert first_s is not None, "the response has no text"
print(f"\n\nTTFT {first_s * 1000:.0f} ms, {tokens} tokens in {time.monotonic() - began:.2f} s")
