"""Client role: the output of a prediction to events.

A stream has events with four kinds of names: ``output`` (its data is the text itself, not JSON),
``error``, ``done``, and others without content. ``done`` ends the output, as a failure if it has a
reason. An answer that was not streamed is the prediction as JSON: ``output`` is a text or a list of
its pieces, and ``metrics`` holds the only counts.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.events import Event, Finish, Quiet, Token, Usage
from splitsecond.core.validation import read_json
from splitsecond.core.wire.provider_errors import ProviderError, error_of, parse_error
from splitsecond.core.wire.sse import SseEvent
from splitsecond.core.wire.streaming import ABSENT, Count, Decoder

_RUNNING = ("starting", "processing")


class _Urls(Struct):
    stream: str | None = None


class _Counts(Struct, gc=False):
    input_token_count: Count | None = None
    output_token_count: Count | None = None


class _Times(Struct, gc=False):
    predict_time: float | None = None
    time_to_first_token: float | None = None
    total_time: float | None = None


class Prediction(Struct, gc=False):
    """A prediction, as it is created or when it has ended. `metrics` (`_Counts` and `_Times`) is
    raw, so that a wrong number in it fails no answer."""

    status: str | None = None
    output: Any = None
    error: Any = None
    detail: Any = None
    metrics: Raw = ABSENT
    urls: _Urls | None = None


class _DoneEvent(Struct, gc=False):
    reason: str | None = None


_PREDICTION = msgspec.json.Decoder(Prediction)
decode_prediction = _PREDICTION.decode
_decode_counts = msgspec.json.Decoder(_Counts, strict=False).decode
_decode_times = msgspec.json.Decoder(_Times).decode
_decode_done = msgspec.json.Decoder(_DoneEvent).decode


class ReplicateDecoder(Decoder):
    """Decoder of one answer. `server_timings` holds the metrics of one that was not streamed, in
    seconds, under Replicate's names."""

    whole_form = _PREDICTION
    end_name = "done"

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
            self._report_error(at, out, parse_error(data), data)
        else:
            out.append(Quiet(at, event.name or "empty"))

    def _take_done(self, data: bytes, at: int, out: list[Event]) -> None:
        try:
            reason = _decode_done(data).reason
        except (ValueError, RecursionError) as error:
            self._break(at, out, "malformed", f"the done event is not valid JSON: {error}", data)
            return
        if reason:
            self._report_error(
                at, out, ProviderError(f"the prediction ended with the reason: {reason}"), data
            )
            return
        out.append(Finish(at, "done"))
        self._complete(at, out, marker=True)

    def _take_whole(self, prediction: Prediction, body: bytes, at: int, out: list[Event]) -> None:
        failure = prediction.error or prediction.detail
        if failure or prediction.status in ("failed", "canceled"):
            self._report_error(
                at,
                out,
                error_of(failure) if failure else ProviderError(f"status is {prediction.status}"),
                body,
            )
        elif prediction.status in _RUNNING:
            message = f"the prediction is not complete: its status is {prediction.status}"
            self._break(at, out, "truncated", message, body)
        elif prediction.status is None:
            self._break(at, out, "malformed", "the body is JSON, but not a prediction", body)
        else:
            self._take_prediction(prediction, body, self._fed_at, out)

    def _take_prediction(
        self, prediction: Prediction, body: bytes, at: int, out: list[Event]
    ) -> None:
        output = prediction.output
        text = (
            "".join(each for each in output if isinstance(each, str))
            if isinstance(output, list)
            else output
        )
        if text and isinstance(text, str):
            self._tokens += 1
            out.append(Token(at, text))
        self._add_finish(at, out, prediction.status or "succeeded", body)
        if self._ended:
            return
        counts = self._read_counts(prediction.metrics, _decode_counts, at, out) or _Counts()
        self._add_usage(out, Usage(at, counts.input_token_count, counts.output_token_count))
        self._note_times(read_json(prediction.metrics, _decode_times))
        self._complete(at, out, marker=False)
