"""Client role: the output of a prediction to events.

``output`` events hold the text itself, not JSON; ``done`` ends the output, as a failure if it has a
reason. An answer that was not streamed is the prediction as JSON: ``output`` is a text or a list of
its pieces, and ``metrics`` holds the only counts.
"""

from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Finish, Usage
from splitsecond.core.validation import read_json
from splitsecond.core.wire.provider_errors import ProviderError, error_of, parse_error
from splitsecond.core.wire.sse import SseEvent
from splitsecond.core.wire.streaming import ABSENT, Count, Decoder, Shape

_RUNNING = ("starting", "processing")


class _Urls(Shape):
    stream: str | None = None


class _Counts(Shape):
    input_token_count: Count | None = None
    output_token_count: Count | None = None


class _Times(Shape):
    predict_time: float | None = None
    time_to_first_token: float | None = None
    total_time: float | None = None


class Prediction(Shape):
    """A prediction, as it is created or has ended. `metrics` (`_Counts` and `_Times`) is raw, so
    that a wrong number in it fails no answer."""

    status: str | None = None
    output: Any = None
    error: Any = None
    detail: Any = None
    metrics: Raw = ABSENT
    urls: _Urls | None = None


class _DoneEvent(Shape):
    reason: str | None = None


_PREDICTION = msgspec.json.Decoder(Prediction)
decode_prediction = _PREDICTION.decode
_decode_counts = msgspec.json.Decoder(_Counts, strict=False).decode
_decode_times = msgspec.json.Decoder(_Times).decode
_decode_done = msgspec.json.Decoder(_DoneEvent).decode


class ReplicateDecoder(Decoder):
    """Decoder of one answer. `server_timings`: seconds under Replicate's names, if it is not
    streamed."""

    whole_form = _PREDICTION
    end_name = "done"

    def _take(self, event: SseEvent) -> None:
        data = event.data
        if data is None:
            self._add_quiet("comment")
            return
        self._had_event = True
        if event.name == "output":
            if data:
                self._add_token(data.decode("utf-8", "replace"))
            else:
                self._add_quiet("output")
        elif event.name == "done":
            self._take_done(data)
        elif event.name == "error":
            self._report_error(parse_error(data), data)
        else:
            self._add_quiet(event.name or "empty")

    def _take_done(self, data: bytes) -> None:
        try:
            reason = _decode_done(data).reason
        except (ValueError, RecursionError) as error:
            self._break("malformed", f"the done event is not valid JSON: {error}", data)
            return
        if reason:
            self._report_error(
                ProviderError(f"the prediction ended with the reason: {reason}"), data
            )
            return
        self._out.append(Finish(self._at, "done"))
        self._complete(marker=True)

    def _take_whole(self, prediction: Prediction, body: bytes) -> None:
        failure = prediction.error or prediction.detail
        if failure or prediction.status in ("failed", "canceled"):
            self._report_error(
                error_of(failure) if failure else ProviderError(f"status is {prediction.status}"),
                body,
            )
        elif prediction.status in _RUNNING:
            message = f"the prediction is not complete: its status is {prediction.status}"
            self._break("truncated", message, body)
        elif prediction.status is None:
            self._break("malformed", "the body is JSON, but not a prediction", body)
        else:
            self._at = self._fed_at
            self._take_prediction(prediction, body)

    def _take_prediction(self, prediction: Prediction, body: bytes) -> None:
        output = prediction.output
        text = (
            "".join(each for each in output if isinstance(each, str))
            if isinstance(output, list)
            else output
        )
        if isinstance(text, str):
            self._add_token(text)
        self._add_finish(prediction.status or "succeeded", body)
        if self._ended:
            return
        counts = self._read_counts(prediction.metrics, _decode_counts) or _Counts()
        self._add_usage(Usage(self._at, counts.input_token_count, counts.output_token_count))
        self._note_times(read_json(prediction.metrics, _decode_times))
        self._complete(marker=False)
