"""The answer that a client of gRPC gets if a limit refuses its request: RESOURCE_EXHAUSTED, with the time after which it may try again.

INGESTD names the daemon's program.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub

from receiver import Receiver, receiving, until

SERIES_MAX = 3
DETAILS = "grpc-status-details-bin"


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Receiver]:
    with receiving(tmp_path, f"series_max = {SERIES_MAX}\nbody_max = '64KiB'") as receiver:
        yield receiver


def gauges(*series: int, text: str = "") -> ExportMetricsServiceRequest:
    """Return a request with one point of each of these series."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", "shop"), ("service.instance.id", "i1")):
        resource.resource.attributes.add(key=key).value.string_value = value
    metric = resource.scope_metrics.add().metrics.add(name="g", description=text)
    for one in series:
        point = metric.gauge.data_points.add(time_unix_nano=time.time_ns(), as_double=one)
        point.attributes.add(key="of").value.string_value = str(one)
    return request


def send(receiver: Receiver, request: ExportMetricsServiceRequest) -> ExportMetricsServiceResponse:
    with grpc.insecure_channel(receiver.address) as channel:
        return MetricsServiceStub(channel).Export(request, timeout=30)


def refused(receiver: Receiver, request: ExportMetricsServiceRequest) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refusal:
        send(receiver, request)
    return refusal.value


def test_a_limit_of_new_series_says_when_to_come_again_and_known_series_go_on(limited: Receiver) -> None:
    known, later = range(SERIES_MAX), range(SERIES_MAX, 2 * SERIES_MAX)
    for series in (known, later):
        assert send(limited, gauges(*series)).partial_success.rejected_data_points == 0
    refusal = refused(limited, gauges(100, 101))
    assert refusal.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "series_max" in refusal.details()
    (details,) = [value for key, value in refusal.trailing_metadata() if key == DETAILS]
    status, retry = Status.FromString(details), RetryInfo()
    assert status.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    (detail,) = status.details
    assert detail.Unpack(retry)
    assert retry.retry_delay.seconds == 60
    # If a limit refuses only a part, the rest is stored and the answer counts the refused part.
    partial = send(limited, gauges(0, 102)).partial_success
    assert (partial.rejected_data_points, "series_max" in partial.error_message) == (1, True)
    assert send(limited, gauges(*known)).partial_success.rejected_data_points == 0
    assert limited.ask("SELECT count(DISTINCT labels) FROM loom_series(DIR, 'g')") == (2 * SERIES_MAX,)
    until(lambda: limited.losses() == 3)


def test_a_request_that_is_too_long_is_refused_and_counted(limited: Receiver) -> None:
    refusal = refused(limited, gauges(1, text="x" * (100 << 10)))
    # No retry helps. A client that gets RESOURCE_EXHAUSTED without a time drops the request, as it does with OUT_OF_RANGE.
    assert refusal.code() in {grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert DETAILS not in {key for key, _ in refusal.trailing_metadata()}
    assert send(limited, gauges(1)).partial_success.rejected_data_points == 0
    until(lambda: limited.losses() == 1)
