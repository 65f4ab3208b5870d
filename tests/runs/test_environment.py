"""The location of the measuring machine."""

from pathlib import Path

import pytest

from splitsecond.benchmark.runs.environment import location


@pytest.mark.parametrize(
    ("given", "environment", "found"),
    [
        ("Frankfurt", {"AWS_REGION": "us-east-1"}, "Frankfurt"),
        ("", {"AWS_REGION": "us-east-1", "TZ": "UTC"}, "us-east-1 (AWS_REGION)"),
        ("", {"TZ": ":Europe/Berlin"}, "time zone Europe/Berlin"),
        ("", {}, ""),
    ],
)
def test_the_best_source_is_taken(
    given: str, environment: dict[str, str], found: str, tmp_path: Path
) -> None:
    assert location(given, environment, tmp_path / "localtime") == found


def test_the_time_zone_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert location("", {}, tmp_path / "localtime") == "time zone Asia/Tokyo"
