"""A client of the gateway with OpenAI's own library: one call, and what the gateway did for it."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("SPLITSECOND_URL", "http://127.0.0.1:8800/v1"),
    api_key=os.environ["SPLITSECOND_KEY"],
)
raw = client.chat.completions.with_raw_response.create(
    model=os.environ.get("SPLITSECOND_ROUTE", "default"),
    messages=[{"role": "user", "content": "What is a split second?"}],
    max_tokens=40,
)
reply = raw.parse()
print(reply.choices[0].message.content)
print()
print("target:   ", raw.headers["x-splitsecond-target"])
print("attempts: ", raw.headers["x-splitsecond-attempts"])
print("cost:     ", f"${raw.headers.get('x-splitsecond-cost-usd', '?')}")
print("log entry:", raw.headers["x-request-id"])
