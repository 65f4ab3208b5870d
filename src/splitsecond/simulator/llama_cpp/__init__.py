"""A real inference engine for tests and demonstrations: llama.cpp's C++ server with a small
generated model.

`EngineProcess` starts and stops it; ``python -m splitsecond.simulator.llama_cpp`` starts it from a
shell. It needs the extra ``splitsecond[engine]``; `available` tells whether that is installed.
"""

from splitsecond.simulator.llama_cpp.process import EngineProcess, available

__all__ = ["EngineProcess", "available"]
