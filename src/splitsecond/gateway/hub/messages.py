"""The messages between the workers of a gateway and its hub: one tagged union in each direction."""

from splitsecond.gateway.fleet.view import FleetView, WorkerReport
from splitsecond.gateway.records.metrics import AllMetrics, AskMetrics, Inherited, WorkerMetrics
from splitsecond.log.store.hub_connection import Hello, Settled

FromWorker = Hello | WorkerMetrics | AskMetrics | WorkerReport
"""Beside these, workers send records for the log."""
ToWorker = Settled | AllMetrics | Inherited | FleetView
