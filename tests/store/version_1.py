"""A log as the first version of the tables had it, with one call that was answered by a groq/fast of then.

Its words are those that the database was given, and stay as they are whatever the tables become.
"""

TABLES = """\
CREATE TABLE calls (n {key}, came_us BIGINT NOT NULL, call TEXT NOT NULL, route TEXT NOT NULL, client TEXT NOT NULL,
  operation TEXT NOT NULL, stream BOOLEAN NOT NULL, status BIGINT NOT NULL, cache TEXT NOT NULL, target TEXT NOT NULL,
  outcome TEXT NOT NULL, fault TEXT NOT NULL, first_token_ns BIGINT, end_ns BIGINT NOT NULL, attempts BIGINT NOT NULL,
  input_tokens BIGINT, cached_tokens BIGINT, cache_write_tokens BIGINT, output_tokens BIGINT, reasoning_tokens BIGINT,
  token_source TEXT NOT NULL, PRIMARY KEY (n));
CREATE INDEX calls_by_time ON calls (came_us);
CREATE TABLE attempts (n {key}, came_us BIGINT NOT NULL, call TEXT NOT NULL, id TEXT NOT NULL, client TEXT NOT NULL,
  target TEXT NOT NULL, role TEXT NOT NULL, outcome TEXT NOT NULL, streamed BOOLEAN NOT NULL, fault_type TEXT NOT NULL,
  fault TEXT NOT NULL, phase TEXT NOT NULL, message TEXT NOT NULL, fault_status BIGINT NOT NULL,
  status BIGINT NOT NULL, finish_reason TEXT NOT NULL, dns_ns BIGINT NOT NULL, tcp_ns BIGINT NOT NULL,
  tls_ns BIGINT NOT NULL, reused BOOLEAN NOT NULL, resent BOOLEAN NOT NULL, rtt_ns BIGINT, sent_ns BIGINT,
  head_ns BIGINT, first_token_ns BIGINT, first_answer_ns BIGINT, last_token_ns BIGINT, end_ns BIGINT NOT NULL,
  first_event_tokens BIGINT, input_tokens BIGINT, cached_tokens BIGINT, cache_write_tokens BIGINT,
  output_tokens BIGINT, reasoning_tokens BIGINT, token_source TEXT NOT NULL, lag_max_ns BIGINT NOT NULL,
  kernel_time BOOLEAN NOT NULL, PRIMARY KEY (n));
CREATE INDEX attempts_by_time ON attempts (came_us);
CREATE INDEX attempts_by_target ON attempts (target, came_us);
CREATE INDEX attempts_by_client ON attempts (client, came_us);
CREATE TABLE splitsecond_log (version INTEGER NOT NULL);
INSERT INTO splitsecond_log VALUES (1)"""
ROWS = """\
INSERT INTO calls (came_us, call, route, client, operation, stream, status, cache, target, outcome, fault,
  first_token_ns, end_ns, attempts, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
  token_source)
VALUES (1600000000000000, '{call}', 'fast', 'team', 'chat', true, 200, '', 'groq/fast', 'ok', '',
  200000000, 501000000, 1, 100, 40, NULL, 20, NULL, 'usage');
INSERT INTO attempts (came_us, call, id, client, target, role, outcome, streamed, fault_type, fault, phase, message,
  fault_status, status, finish_reason, dns_ns, tcp_ns, tls_ns, reused, resent, rtt_ns, sent_ns, head_ns,
  first_token_ns, first_answer_ns, last_token_ns, end_ns, first_event_tokens, input_tokens, cached_tokens,
  cache_write_tokens, output_tokens, reasoning_tokens, token_source, lag_max_ns, kernel_time)
VALUES (1600000000000000, '{call}', '{call}.1', 'team', 'groq/fast', 'winner', 'ok', true, '', '', '', '', 0, 200,
  'stop', 0, 0, 0, false, false, NULL, 1000000, 199000000, 200000000, 200000000, 500000000, 501000000, 5, 100, 40,
  NULL, 20, NULL, 'usage', 0, false)"""


def statements(key: str) -> list[str]:
    """Those that make the log with a call "req-1". `key`: how the database numbers rows by itself."""
    return [*TABLES.format(key=key).split(";"), *a_call("req-1")]


def a_call(name: str) -> list[str]:
    """Those with which a process of that version adds a call."""
    return ROWS.format(call=name).split(";")
