"""Observations of whole calls: which attempt answered, and how long the caller waited.

Every attempt has its own observation, made where policies are not known: a winner and a loser look
like an answer and a cancelled one. Here those of one call are put together when it is over. Each
gets its role, and the call gets an observation of its own, so that a policy is timed like a target:
the answer is the winner's, but the wait begins with the first request of the call, whichever
attempt sent it.

The winner is the attempt that has a token and was not closed: a policy returns a reply only after
all other attempts are closed. If the caller itself closed the answer, the winner is the last
attempt to end.
"""

from collections.abc import Sequence

import msgspec

from splitsecond.core.observation import FaultRecord, Observation, Outcome, Role


def call_observations(
    attempts: Sequence[Observation],
    *,
    target: str,
    condition: str,
    role: Role,
    fault: FaultRecord | None = None,
) -> list[Observation]:
    """Return the `attempts` of one call with their roles, then the observation of the call.

    The call's own observation has the policy as its `target`, the given `role`, and the id
    "CALL.0".
    """
    winner = None if fault is not None else _winner(attempts)
    observations = [
        msgspec.structs.replace(
            attempt, condition=condition, role="winner" if attempt is winner else "loser"
        )
        for attempt in attempts
    ]
    sent = [attempt for attempt in attempts if attempt.sent_ns is not None]
    first = min(sent, key=lambda attempt: attempt.sent_ns or 0) if sent else attempts[0]
    outcome: Outcome = (
        "failed" if fault is not None else winner.outcome if winner is not None else "cancelled"
    )
    whole = msgspec.structs.replace(
        winner or Observation(id="", call=first.call, target="", fault=fault),
        id=f"{first.call}.0",
        target=target,
        condition=condition,
        role=role,
        outcome=outcome,
        due_ns=first.due_ns,
        start_ns=first.start_ns,
        dns_ns=first.dns_ns,
        tcp_ns=first.tcp_ns,
        tls_ns=first.tls_ns,
        reused=first.reused,
        sent_ns=first.sent_ns,
        end_ns=max(attempt.end_ns for attempt in attempts),
    )
    return [*observations, whole]


def _winner(attempts: Sequence[Observation]) -> Observation | None:
    with_token = [attempt for attempt in attempts if attempt.first_token_ns is not None]
    ended_with_token = [attempt for attempt in with_token if attempt.outcome != "cancelled"]
    # complete, without a token
    ended = [attempt for attempt in attempts if attempt.outcome != "cancelled"]
    for candidates in (ended_with_token, with_token, ended):
        if candidates:
            return candidates[-1]
    return None
