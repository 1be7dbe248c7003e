"""pkv-scenarios plays the shared scenarios, and finds what is wrong in changed ones. usage:
scenarios_test.py PROGRAM LIBRARY FILE API.JSON. $PKV_EMULATOR is the command that runs a program
for another machine.
"""

import json
import os
import subprocess
import sys
import tempfile

program, library, file, api = sys.argv[1:]
emulator = os.environ.get("PKV_EMULATOR", "").split()


def play(document):
    with tempfile.TemporaryDirectory() as folder:
        changed, stores = (os.path.join(folder, name) for name in ("changed.json", "stores"))
        os.mkdir(stores)
        with open(changed, "w") as to:
            json.dump(document, to)
        result = subprocess.run(
            [*emulator, program, changed, api, stores],
            capture_output=True,
            text=True,
            env=os.environ | {"PAGEDKV_LIBRARY": library},
        )
    return result.returncode, result.stdout + result.stderr


def changed(step, **fields):
    document = json.load(open(file))
    document["scenarios"] = document["scenarios"][:1]
    document["scenarios"][0]["steps"][step - 1].update(fields)
    return document


code, said = play(json.load(open(file)))
print(said, end="")
if code != 0:
    sys.exit("a scenario differs")
for document, sentence in [
    (changed(3, length=1), "'prefill', step 3 (length): length: expected 1, got 0"),
    (changed(3, status="PKV_BUSY"), "step 3 (length): status: expected PKV_BUSY, got PKV_OK"),
    (
        changed(4, out=[[39, 0, 0, 0, 0.5]]),
        "step 4 (step): output of row 39, layer 0, head 0, dim 0: expected 0.5000000, got -0.0",
    ),
    (changed(7, count=2), "step 7 (table): entries: expected 2, got 3"),
    (
        changed(8, values=[["v", 8, 0, 0, 2.0]]),
        "step 8 (read): v of position 8, head 0, dim 0: expected 2.0",
    ),
    (changed(9, fields={"free_blocks": 9}), "step 9 (pool_stats): free_blocks: expected 9, got 5"),
]:
    code, said = play(document)
    if code != 1 or sentence not in said:
        sys.exit(f"a wrong expectation was not found: {sentence!r} is not in {said!r}")
