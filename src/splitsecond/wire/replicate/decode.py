"""The client role, reading: the output of a prediction to events.

A stream has events of four names: ``output`` (its data is the text itself, not JSON), ``error``, ``done``, and others
that say nothing. ``done`` ends the output, well unless it gives a reason. An answer that was not streamed is the
prediction as JSON, whose ``output`` is a text or a list of its pieces, and whose ``metrics`` are the only counts.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from splitsecond.events import Done, Event, Finish, Quiet, Token, Usage
from splitsecond.service import Operation
from splitsecond.wire.refusals import Said, error_said, said_in
from splitsecond.wire.sse import SseEvent
from splitsecond.wire.streaming import StreamDecoder

_Count = Annotated[int, Meta(ge=0, lt=1 << 53)]
_UNDER_WAY = ("starting", "processing")
_TIMES = ("predict_time", "time_to_first_token", "total_time")


class _Metrics(Struct, gc=False):
    input_token_count: _Count | None = None
    output_token_count: _Count | None = None
    predict_time: float | None = None
    time_to_first_token: float | None = None
    total_time: float | None = None


class _Prediction(Struct, gc=False):
    status: str | None = None
    output: Any = None
    error: Any = None
    detail: Any = None
    metrics: _Metrics | None = None


class _Ending(Struct, gc=False):
    reason: str | None = None


_decode_prediction = msgspec.json.Decoder(_Prediction).decode
_decode_ending = msgspec.json.Decoder(_Ending).decode


def decoder(operation: Operation, stream: bool = True) -> "ReplicateDecoder":
    """A decoder for one answer. The body itself shows whether it is streamed, so any will do."""
    return ReplicateDecoder()


class ReplicateDecoder(StreamDecoder):
    """One answer's body in, events out. See `splitsecond.wire.dialect.Decoder`.

    `server_timings` holds the metrics of an answer that was not streamed, in seconds, by their own names.
    """

    def _take(self, event: SseEvent, at: int, out: list[Event]) -> None:
        data = event.data
        if data is None:
            out.append(Quiet(at, "comment"))
            return
        self._chunks += 1
        if event.name == "output":
            if data:
                self._tokens += 1
                out.append(Token(at, data.decode("utf-8", "replace")))
            else:
                out.append(Quiet(at, "output"))
        elif event.name == "done":
            self._take_done(data, at, out)
        elif event.name == "error":
            self._report(at, out, said_in(data), data)
        else:
            out.append(Quiet(at, event.name or "empty"))

    def _take_done(self, data: bytes, at: int, out: list[Event]) -> None:
        try:
            reason = _decode_ending(data).reason
        except ValueError as error:
            self._break(at, out, "malformed", f"the event done is not the JSON of one: {error}", data)
            return
        if reason:
            self._report(at, out, Said(f"the prediction ended because of: {reason}"), data)
            return
        self._ended = True
        out += [Finish(at, "done"), Done(at, True)]

    def _take_whole(self, body: bytes, at: int, out: list[Event]) -> None:
        """A prediction. Its text arrived when its last byte did."""
        prediction = self._whole(_decode_prediction, body, "a prediction", at, out)
        if prediction is None:
            return
        failure = prediction.error or prediction.detail
        if failure or prediction.status in ("failed", "canceled"):
            self._report(at, out, error_said(failure) if failure else Said(f"status is {prediction.status}"), body)
        elif prediction.status in _UNDER_WAY:
            words = f"the answer is not there yet: its status is {prediction.status}"
            self._break(at, out, "truncated", words, body)
        elif prediction.status is None:
            self._break(at, out, "malformed", "the body is JSON, but no prediction", body)
        else:
            self._take_prediction(prediction, self._json_at, out)

    def _take_prediction(self, prediction: _Prediction, at: int, out: list[Event]) -> None:
        output = prediction.output
        text = "".join(map(str, output)) if isinstance(output, list) else output
        if text and isinstance(text, str):
            self._tokens += 1
            out.append(Token(at, text))
        self._ended = True
        out.append(Finish(at, prediction.status or "succeeded"))
        metrics = prediction.metrics or _Metrics()
        if metrics.input_token_count is not None or metrics.output_token_count is not None:
            out.append(Usage(at, metrics.input_token_count, metrics.output_token_count))
        for name in _TIMES:
            if (value := getattr(metrics, name)) is not None:
                self.server_timings[name] = value
        out.append(Done(at, False))

    def _end(self, at: int, out: list[Event], *, marker: bool = False, cut: bool = False) -> None:
        self._break_off(at, out, "done", cut=cut)
