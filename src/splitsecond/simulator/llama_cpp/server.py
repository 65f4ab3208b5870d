"""Runs llama.cpp's C++ HTTP server with a small model in this process.

Only this module and `tiny_llama` import the packages of the extra `engine`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from xllamacpp.xllamacpp import CommonParams, Server

from splitsecond.core.scratch import scratch_folder
from splitsecond.simulator.llama_cpp import tiny_llama

SHAPES = {
    "tiny": tiny_llama.TINY,
    "small": tiny_llama.Shape(width=512, layers=6, heads=8, kv_heads=4, feed_forward=1536),
}
"""The models by name: thousands of tokens a second for tests, and a pace closer to that of a real
endpoint."""


def serve(
    *,
    model: str,
    port: int,
    slots: int,
    context: int,
    prompt_cache: bool,
    api_key: str,
    until_eof: bool,
) -> NoReturn:
    """Serve on 127.0.0.1 and print one READY line. Does not return: a signal ends the process.

    `port` 0 takes a free one. `slots` requests are decoded at once, each with room for `context`
    tokens; others wait. With `until_eof` the end of standard input also ends the process, with exit
    code 0. Raises `RuntimeError` if llama.cpp cannot start, and `OSError` if the model cannot be
    written to the temporary folder.
    """
    with scratch_folder("engine-") as scratch:
        file = scratch.path / "model.gguf"
        tiny_llama.write(file, SHAPES[model])
        # llama.cpp maps the file and does not need its name after the start.
        server = Server(_settings(file, model, port, slots, context, prompt_cache, api_key))
    print(f"READY {server.listening_address}/v1 model={model}", flush=True)
    # Ctrl-C ends the process at once, as SIGTERM does: Python would see it only when its own code
    # runs again, and llama.cpp's destructor would wait for all open requests.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while not until_eof:
        signal.pause()
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def _settings(
    file: Path, model: str, port: int, slots: int, context: int, prompt_cache: bool, api_key: str
) -> CommonParams:
    settings = CommonParams()
    settings.model.path = str(file)
    settings.model_alias = {model}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.n_parallel = slots
    settings.n_ctx = slots * context
    settings.fit_params = False  # it would shrink the context to the free memory
    # One thread computes. With more, engine and client compete for the cores of a small machine,
    # and both are late.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.cache_prompt = prompt_cache
    settings.cache_ram_mib = 0
    settings.endpoint_slots = settings.endpoint_metrics = True
    settings.ui = False
    settings.offline = True
    settings.verbosity = 1  # errors only
    if api_key:
        settings.api_keys = [api_key]
    return settings
