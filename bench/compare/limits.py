"""What the machine can do: reading memory, and multiplying and adding with each of its units."""

import json
import subprocess

UNITS = {
    "f32": "f32 multiply-adds",
    "f16": "f16 multiply-adds",
    "bf16": "bf16 dot products",
    "matrix": "matrix unit, bf16",
}


def measure(program, threads):
    """{"read": bytes per second, unit: operations per second}; units that are not there do 0."""
    output = subprocess.run([program, str(threads)], check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


def best(measured):
    """Of several moments: on a shared machine most of them are slower than the machine is."""
    return {name: max(m[name] for m in measured) for name in measured[0]}
