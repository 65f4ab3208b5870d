"""`resume(a, b, ..., how="replay", stall="10s")`: an answer that breaks off is carried on at another target.

It is the one policy that touches an answer after its first token; all others leave it alone. Mostly it stands as a
setting of another, ``fallback(a, b, resume="replay")``, or of a route.

What it does. `a` is asked, and what it says goes to the client byte for byte. If that breaks (the connection is cut, an
error comes inside the stream, or no further token for `stall`), the next branch is asked, in turn. With one branch,
``resume(fastest(a, b))``, that is asked again. No target is asked again whose answer to this call broke off. Before the
first token `resume` does nothing: a failure is raised as it is.

`how="replay"`: it is asked the same again. What the client already has is held back, and compared with it to the byte;
from there on the client gets what is new, a token that is half known cut in two. Where it says something else the next
branch is asked. That works where an answer is repeatable: the same model, and a temperature of 0.

`how="prefill"`: it is given the beginning of the answer as a message of the assistant's (without white space at its
end, which many refuse), and goes on from there, with `max_tokens` less what was said. Only targets are asked of which
it is known that they can. It is done for one plain text alone: not with tools, a form of the answer, several choices,
or thoughts.

Neither is done for audio and pictures, nor where log-probabilities were asked for. Where nobody can carry on, the
client gets the error that broke the answer, whatever those who were asked after it said. There is one end, never a
second and never a made-up one. The client goes on to see the id and the model of the first target, in its own dialect,
with parts and events numbered on. Not told from the middle on are thoughts that come signed or hidden, and whatever
tools that the provider uses itself would put into the answer. Who asks for Responses is served by replay alone.

An answer that was not wanted as a stream is held back until it is whole, so one that breaks is simply asked for anew.

What it costs. While nothing breaks each chunk is decoded once more. A broken answer is paid for twice: by replay the
prompt and all that was said, by prefill the prompt and the rest. While it is said again the client waits.

When it helps. On long answers, and on streams that are cut by what stands between.

When it hurts. By replay, where models do not repeat themselves: then it is paid for nothing, and the error comes later.
By prefill, where the other model is worse, or writes in another tone.

Where it stands. Around the policies that choose, inside `deadline`, `limit`, `cap` and `cache`. The usage that the
client is told is by replay the second target's; by prefill that and what had been said before. A bench gets
the break as it is.
"""

from collections.abc import Sequence

import msgspec

from splitsecond.policy.answers.carrying import How, MakeTeller, Plan, Story, reply_of
from splitsecond.policy.choosing.branch import Branch, branches
from splitsecond.policy.settings import duration, one_of, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service


def way(name: str, value: object) -> How:
    """How an answer is carried on: "replay" or "prefill"."""
    return "prefill" if one_of(name, value, ("replay", "prefill")) == "prefill" else "replay"


def resume(
    first: Service,
    *others: Service,
    how: str | None = None,
    stall: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
    teller: MakeTeller | None = None,
) -> Service:
    """The service that asks `first`, and `others` in turn where its answer breaks off.

    None is carried on without `teller`.
    """
    given = branches((first, *others), names)
    return Resume(
        first,
        given[1:] or given,
        way("how", how or "replay"),
        standing or Standing(),
        teller,
        stall_ns=None if stall is None else duration("stall", stall),
        text=written("resume", (first, *others), how=how, stall=stall),
    )


def carried_on(
    service: Service, names: Sequence[str], how: How, standing: Standing, teller: MakeTeller, *, stall_ns: int | None
) -> Service:
    """`service`, whose answers are carried on by itself, and which is written as if nothing stood around it.

    `names`: of all targets in it.
    """
    return Resume(service, [Branch(service, names)], how, standing, teller, stall_ns=stall_ns)


class Resume:
    """See `resume`. `text`: how it is written, "" for as its service is."""

    def __init__(
        self,
        service: Service,
        others: Sequence[Branch],
        how: How,
        standing: Standing,
        teller: MakeTeller | None,
        *,
        stall_ns: int | None = None,
        text: str = "",
    ) -> None:
        self._service = service
        self._plan = None if teller is None else Plan(others, how, standing, teller)
        self._stall_ns = stall_ns
        self._text = text

    def __repr__(self) -> str:
        return self._text or repr(self._service)

    async def __call__(self, call: Call) -> Reply:
        if self._stall_ns is not None:
            call = with_stall(call, self._stall_ns)
        reply = await self._service(call)
        telling = None if self._plan is None else self._plan.teller(call)
        if self._plan is None or telling is None or reply.empty:
            return reply
        return reply_of(Story(reply, call, self._plan, telling), watched=call.watched)


def with_stall(call: Call, stall_ns: int) -> Call:
    """`call`, whose answer may be silent for `stall_ns` at most."""
    if call.stall_ns is not None and call.stall_ns <= stall_ns:
        return call
    return msgspec.structs.replace(call, stall_ns=stall_ns)
