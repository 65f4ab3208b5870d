"""The parts of a row that several nodes sent, each with the error of its own instrument.

The percentiles of a row are those of the requests of all nodes together, never averages. Here each node has its number
of requests and the quality of its measurements.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from splitsecond.analysis.findings import NodeFindings
from splitsecond.analysis.lateness import instrument_of, ordered_ms
from splitsecond.analysis.steady import in_flight, tokens_in
from splitsecond.analysis.summary import percentile
from splitsecond.analysis.validity import CheckInputs, invalid_of_node
from splitsecond.clock import NS_PER_MS
from splitsecond.observation import Observation


def node_findings(inputs: CheckInputs, sent: Sequence[Observation]) -> list[NodeFindings]:
    """Return the part of each node, by its name; nothing for a row of one machine. `sent`: the load of the row."""
    names = {o.node for o in sent} | {reading.node for reading in inputs.readings}
    return [_part(name, inputs, [o for o in sent if o.node == name]) for name in sorted(names - {""})]


def _part(name: str, inputs: CheckInputs, sent: Sequence[Observation]) -> NodeFindings:
    load = replace(inputs.load, curve=in_flight(sent, open_loop=inputs.asked.open_loop)) if sent else inputs.load
    own = replace(
        inputs,
        measured=[o for o in inputs.measured if o.node == name],
        answered=[o for o in inputs.answered if o.node == name],
        readings=[reading for reading in inputs.readings if reading.node == name],
        load=load,
    )
    ttft_ms = ordered_ms([o.ttft_ns for o in own.answered if o.ttft_ns is not None])
    return NodeFindings(
        node=name,
        requests=len(own.measured),
        errors=len(own.measured) - len(own.answered),
        ttft_p50_ms=percentile(ttft_ms, 0.5) if len(ttft_ms) else None,
        clock_offset_ms=own.readings[0].clock_offset_ns / NS_PER_MS if own.readings else None,
        clock_error_ms=max((reading.clock_error_ns / NS_PER_MS for reading in own.readings), default=None),
        instrument=instrument_of(own.measured, own.readings, load, tokens_in(sent, load.whole)),
        invalid=invalid_of_node(own),
    )
