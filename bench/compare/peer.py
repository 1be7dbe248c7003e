"""What the modules of the peers share.

A peer module has NAME, PACKAGE (None where importlib.metadata does not find it) and

    version(library)                    where PACKAGE is None: "" where it is missing
    start(threads, library)             loads the engine
    Step(shape, dtype, rows)            makes caches and fills them up to the new tokens
      .calls()                          {variant: function that does the step once}
      .output()                         [row][query head][dim] of the last step, float32

Where an engine has several ways, Step takes the fastest. Anything the engine cannot do raises, and
the message is the reason that is printed.
"""

import time


class Unsupported(Exception):
    """A dtype or a shape that this engine does not offer on this processor."""


def fastest(ways, call=lambda way: way):
    """The one of `ways` whose call(way)() takes least time, second of three."""

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
