"""Shared by the modules of the peers.

A peer module has NAME, PACKAGE (None if importlib.metadata does not find it) and

    version(library)           if PACKAGE is None: the version, or "" if it is missing
    start(threads, library)    loads the engine
    Step(shape, dtype, rows)   makes caches and fills them up to the new tokens
      .run()                   does the step once
      .calls()                 {variant: function that does the step once}
      .output()                [row][query head][dim] of the last step, float32
      .close()

If an engine has several ways, Step takes the fastest. For anything that the engine cannot do, it
raises an exception, whose message is printed as the reason.
"""

import time


class BaseStep:
    def calls(self):
        return {"step": self.run}

    def close(self):
        pass


class Unsupported(Exception):
    """A dtype or a shape that this engine does not offer on this processor."""


def fastest(ways, call=lambda way: way):
    """The one of `ways` whose call(way)() takes the least time, by the median of three."""

    def seconds(way):
        if len(ways) == 1:
            return 0.0
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            call(way)()
            times.append(time.perf_counter() - begin)
        return sorted(times)[1]

    return min(ways, key=seconds)
