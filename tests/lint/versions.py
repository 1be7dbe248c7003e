"""All build systems have the version of project() in meson.build."""

import re

import harness

VERSION = re.compile(r"project\('pagedkv'.*?\bversion: '([^']+)'", re.S)
PLACES = [
    ("bindings/python/pyproject.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv-sys/Cargo.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv/Cargo.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/pagedkv/Cargo.toml", r'^pagedkv-sys = \{ version = "=([^"]+)"'),
    ("bindings/rust/engines/pagedkv-candle/Cargo.toml", r'^version = "([^"]+)"'),
    ("bindings/rust/engines/pagedkv-candle/Cargo.toml", r'^pagedkv\S* = \{ version = "=([^"]+)"'),
    ("bindings/rust/engines/Cargo.lock", r'^name = "pagedkv(?:-\w+)?"\nversion = "([^"]+)"'),
    ("bindings/rust/Cargo.lock", r'^name = "pagedkv(?:-sys)?"\nversion = "([^"]+)"'),
]


def check(root):
    version = VERSION.search((root / "meson.build").read_text())[1]
    found = []
    for name, pattern in PLACES:
        if not (root / name).exists():
            continue
        versions = re.findall(pattern, (root / name).read_text(), re.M)
        found += [f"{name}: no version where {pattern} looks for it"] * (not versions)
        found += [
            f"{name} says {other}, meson.build {version}" for other in versions if other != version
        ]
    return found


MESON = "project('pagedkv', ['c'],\n  version: '1.2.3')\n"
harness.run(
    check,
    [
        (
            "pyproject.toml says 1.2.4",
            {
                "meson.build": MESON,
                "bindings/python/pyproject.toml": '[project]\nversion = "1.2.4"\n',
            },
        ),
        (
            "Cargo.lock says 1.2.2",
            {
                "meson.build": MESON,
                "bindings/rust/Cargo.lock": 'name = "pagedkv"\nversion = "1.2.2"\n',
            },
        ),
        (
            "no version",
            {
                "meson.build": MESON,
                "bindings/rust/Cargo.lock": 'name = "half"\nversion = "1.2.3"\n',
            },
        ),
        (
            None,
            {
                "meson.build": MESON,
                "bindings/rust/pagedkv-sys/Cargo.toml": '[package]\nversion = "1.2.3"\n',
            },
        ),
    ],
)
