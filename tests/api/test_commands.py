"""Commands in Python: each returns what its command writes, and a notebook shows it."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import splitsecond as ss
from splitsecond import sync
from splitsecond.api.commands import notebook_html


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with 30 calls, imported from a file."""
    folder = tmp_path_factory.mktemp("log")
    began = datetime.now(UTC) - timedelta(hours=1)
    lines = [
        f"{(began + timedelta(seconds=second)).isoformat()},groq/openai/gpt-oss-120b,900,50,100"
        for second in range(30)
    ]
    header = "time,model,duration_ms,input_tokens,output_tokens"
    (folder / "calls.csv").write_text("\n".join([header, *lines]))
    found = sync.import_log(folder / "calls.csv", log=folder / "calls.db")
    assert (found.data["result"]["written"], "30 calls imported" in str(found)) == (30, True)
    return folder / "calls.db"


@pytest.mark.system
def test_speed_has_the_data_tables_and_page_of_the_command(log: Path) -> None:
    found = sync.speed("gpt-oss", log=log)
    assert found.data["schema"].startswith("splitsecond.speed/")
    assert [each["answered"] for each in found.data["speeds"]] == [30]
    assert "gpt-oss-120b" in found.text
    assert found.page.startswith("<!doctype html>")
    assert 'srcdoc="&lt;!doctype html&gt;' in found._repr_html_()


@pytest.mark.system
def test_cost_and_recommend_have_what_the_commands_write(log: Path) -> None:
    cost, recommended = sync.cost(log=log, by="day"), sync.recommend("chat", log=log)
    assert (cost.data["by"], len(cost.data["rows"]), bool(cost.page)) == ("day", 1, True)
    assert [each["use"] for each in recommended.data["uses"]] == ["chat"]
    assert (recommended.page, "<iframe" in recommended._repr_html_()) == ("", False)


@pytest.mark.system
def test_a_wrong_option_raises_what_the_command_says(log: Path) -> None:
    with pytest.raises(ss.CallerFault, match="--by"):
        asyncio.run(ss.speed(log=log, by="moon"))


def test_text_and_page_are_escaped_for_a_notebook() -> None:
    shown = notebook_html("a < b", '<p title="x">')
    assert ">a &lt; b</pre>" in shown
    assert 'srcdoc="&lt;p title=&quot;x&quot;&gt;"' in shown
