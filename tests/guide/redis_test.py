"""The guide's example of a store in Redis: without a server it reports that; with a server it
stores all whole blocks of its text.

usage: redis_test.py PROGRAM"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]
server = shutil.which("redis-server") or shutil.which("valkey-server")

refused = subprocess.run(
    [program, "redis://127.0.0.1:1"], capture_output=True, text=True, timeout=60
)
assert (
    refused.returncode == 1 and "127.0.0.1" in refused.stderr and refused.stderr.count("\n") == 1
), refused
if server is None:
    print("redis-server and valkey-server are missing: only the refusal was tested")
    sys.exit(77)

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
with tempfile.TemporaryDirectory() as folder:
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            result = subprocess.run(
                [program, f"redis://127.0.0.1:{port}"], capture_output=True, text=True, timeout=60
            )
            if result.returncode == 0:
                break
            time.sleep(0.1)
        # 60 letters are three blocks of 16 and a part of one, which is not stored.
        assert result.stdout == "3 blocks are in the store\n", result
    finally:
        process.terminate()
        process.wait()
