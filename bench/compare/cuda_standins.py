"""Makes PyTorch's wheel from the package index load on a machine without CUDA.

That wheel is linked to the CUDA libraries, 2 GB that nothing on a CPU calls. For each missing
library, this compiles a small one of the same name, next to PyTorch's own. Its functions return an
error, or a sentence if they return text. A wheel without CUDA needs none.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

FAILURE = 100  # cudaErrorNoDevice
# transformers calls this in generate(); an exception means "no".
CHECK = """
import torch
try:
    torch.cuda.is_current_stream_capturing()
except RuntimeError:
    pass
"""


def _output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _needed_versions(library):
    """{library: symbol version} for the versions that the loader looks up."""
    versions, wanted_from = {}, None
    for line in _output("readelf", "--version-info", "--wide", library).splitlines():
        if found := re.search(r"File: (\S+)", line):
            wanted_from = found[1]
        elif found := re.search(r"Name: (\S+)", line):
            versions[wanted_from] = found[1]
    return versions


def _symbols(library, which):
    """(name, version) pairs."""
    lines = _output("nm", "--dynamic", which, library).splitlines()
    return {tuple(re.split("@+", line.split()[-1] + "@")[:2]) for line in lines}


def _result(function):
    if function.startswith("__"):  # __cudaRegister... run when the library is loaded: a handle
        return "0"
    # PyTorch puts the text into its exception. Functions of the driver (cu...) return a status.
    if re.match(r"(cuda|cudnn|cublas|cusparse|nccl|nvrtc)\w*(ErrorString|ErrorName)$", function):
        return '(long) "there is no CUDA here"'
    return str(FAILURE)


def _compile(path, functions, version):
    source = "".join(f"long {f}(void) {{ return {_result(f)}; }}\n" for f in sorted(functions))
    command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{path.name}"]
    command += ["-x", "c", "-", "-o", str(path)]
    with tempfile.NamedTemporaryFile("w", suffix=".map") as script:
        if version:
            script.write(f"{version} {{ global: *; }};\n")
            script.flush()
            command.insert(1, f"-Wl,--version-script={script.name}")
        subprocess.run(command, input=source, text=True, check=True)


def main():
    directory = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
    libraries = [str(p) for p in sorted(directory.glob("lib*.so"))]
    loaded = "".join(_output("ldd", library) for library in libraries)
    missing = set(re.findall(r"(\S+) => not found", loaded))
    if not missing:
        return
    versions, undefined, defined = {}, set(), set()
    for library in libraries:
        versions |= {name: v for name, v in _needed_versions(library).items() if name in missing}
        undefined |= _symbols(library, "--undefined-only")
        defined |= {name for name, _ in _symbols(library, "--defined-only")}
    functions = {}
    for name, version in undefined:
        if name not in defined:
            functions.setdefault(version, set()).add(name)
    loose = {f for f in functions.get("", ()) if re.match(r"(cu|nccl|nv)", f)}
    for name in sorted(missing):
        version = versions.get(name)
        _compile(directory / name, functions.get(version, set()) if version else loose, version)
    subprocess.run([sys.executable, "-c", CHECK], check=True)
    print(f"{len(missing)} CUDA libraries replaced by empty ones", file=sys.stderr)


main()
