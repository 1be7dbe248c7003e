"""The CPU: its family, its measured limits, and recorded figures of the family."""

import json
import pathlib
import subprocess

UNITS = {
    "f32": "f32 multiply-adds",
    "f16": "f16 multiply-adds",
    "bf16": "bf16 dot products",
    "matrix": "matrix unit, bf16",
}
FILE = pathlib.Path(__file__).parents[1] / "data" / "machines.json"


def _cpuinfo():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def here():
    """{"processor": the name that it reports, "family": the name of its family}"""
    info = _cpuinfo()
    numbers = [info.get(name) for name in ("vendor_id", "cpu family", "model")]
    known = (f["name"] for f in json.loads(FILE.read_text()) if numbers in f["numbers"])
    processor = info.get("model name", "unknown processor")
    return {"processor": processor, "family": next(known, processor)}


def recorded(family):
    """The entry of this family in the file, or {}."""
    return next((f for f in json.loads(FILE.read_text()) if f["name"] == family), {})


def measure(program, threads):
    """{"read": bytes per second, unit: operations per second}; 0 for a missing unit."""
    output = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


def best(measured):
    """The best of several measurements, because other load slows a shared machine down."""
    return {name: max(m[name] for m in measured) for name in measured[0]}
