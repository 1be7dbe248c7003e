"""What is known of a processor's family, beside what is measured on it."""

import json
import pathlib

FILE = pathlib.Path(__file__).parents[1] / "data" / "machines.json"


def _cpuinfo():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def here():
    """{"processor": as it calls itself, "family": the name of its family}"""
    info = _cpuinfo()
    numbers = [info.get(name) for name in ("vendor_id", "cpu family", "model")]
    known = (f["name"] for f in json.loads(FILE.read_text()) if numbers in f["numbers"])
    processor = info.get("model name", "unknown processor")
    return {"processor": processor, "family": next(known, processor)}


def recorded(family):
    """What the file has of this family; {} where it has nothing."""
    return next((f for f in json.loads(FILE.read_text()) if f["name"] == family), {})
