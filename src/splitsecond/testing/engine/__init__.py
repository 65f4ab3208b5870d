"""A real inference engine for tests and demonstrations: llama.cpp's own C++ server, on a model written on the spot.

`EngineProcess` starts and stops one; ``python -m splitsecond.testing.engine`` is the same by hand. The engine is the
extra ``splitsecond[engine]``; `available` says whether it is installed.
"""

from splitsecond.testing.engine.process import EngineProcess, available

__all__ = ["EngineProcess", "available"]
