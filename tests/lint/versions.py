"""All build systems have the version of project() in meson.build, and so do the names of files and
packages in scripts and documents."""

import re

import harness

VERSION = re.compile(r"project\('pagedkv'.*?\bversion: '([^']+)'", re.S)
PLACES = [
    ("bindings/python/pyproject.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv-sys/Cargo.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv/Cargo.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv/Cargo.toml", r'^pagedkv-sys = \{ version = "=([^"]+)"'),
    ("bindings/engines/candle/Cargo.toml", r'^pagedkv\S* = \{ version = "=([^"]+)"'),
    ("bindings/engines/candle/Cargo.lock", r'^name = "pagedkv(?:-sys)?"\nversion = "([^"]+)"'),
    ("src/packaging/vcpkg/vcpkg.json", r'^  "version": "([^"]+)"'),
    ("bindings/rust/Cargo.lock", r'^name = "pagedkv(?:-sys)?"\nversion = "([^"]+)"'),
]
# Names of files and packages, with the whole version or only its first number.
NAMES = re.compile(
    r"\blibpagedkv(?:-redis|-llama)?(?:\.so\.|-)?(\d+(?:\.\d+\.\d+)?)(?![A-Za-z\d]|\.\d)"
    r"|\bpagedkv(?:-sys-|-|/)(\d+\.\d+\.\d+)\b|\bPAGEDKV_(?:REDIS_|LLAMA_)?(\d+)\b"
    r"|\bbindings/go/v(\d+\.\d+\.\d+)\b"
)
MEASURED = ("bench/data/", "tests/lint/")  # with earlier versions, and the samples of lints


def check_names(root, version):
    for path in harness.committed(root):
        name = path.relative_to(root).as_posix()
        data = b"" if name.startswith(MEASURED) else path.read_bytes()
        if b"\0" in data:
            continue
        found = {match[0]: match for match in NAMES.finditer(data.decode(errors="replace"))}
        for words, match in found.items():
            if next(filter(None, match.groups())) not in (version, version.split(".")[0]):
                yield f"{name} says {words}, meson.build {version}"


def check(root):
    version = VERSION.search((root / "meson.build").read_text())[1]
    found = list(check_names(root, version))
    for name, pattern in PLACES:
        if not (root / name).exists():
            continue
        versions = re.findall(pattern, (root / name).read_text(), re.M)
        found += [f"{name}: no version where {pattern} looks for it"] * (not versions)
        found += [
            f"{name} says {other}, meson.build {version}" for other in versions if other != version
        ]
    return found


harness.run(check)
