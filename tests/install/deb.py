"""Each file that `meson install` puts somewhere is in exactly one Debian package, and each package
has all that its list names; the versions that the packages are built with are those that meson
asks for; the list of symbols has each function and the version that it came with. Nothing is
built: src/packaging/deb does that, and is tried by hand.

usage: deb.py TREE BUILD MESON..."""

import fnmatch
import json
import pathlib
import re
import sys
import tempfile

from install import run

# libpagedkv-dev is installed with dh_install -Xredis.
LEFT_OUT = {"libpagedkv-dev": "redis"}


def patterns(debian):
    return {path.stem: path.read_text().split() for path in debian.glob("*.install")}


def owners(name, lists):
    """Returns the packages that have a file. A pattern that is a folder means all below it."""
    return [
        package
        for package, globs in lists.items()
        for pattern in globs
        if (fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, pattern + "/*"))
        and LEFT_OUT.get(package, "\0") not in name
    ]


def check_files(names, lists):
    found = [
        f"{name} is in {owners(name, lists) or 'no package'}"
        for name in names
        if len(owners(name, lists)) != 1
    ]
    return found + [
        f"{package}: nothing is {pattern}"
        for package, globs in lists.items()
        for pattern in globs
        if not any(
            fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, pattern + "/*")
            for name in names
        )
    ]


def check_versions(meson, control):
    """Returns Debian's names of the dependencies that meson asks for."""
    packages = {
        "xsimd": "libxsimd-dev",
        "tbb": "libtbb-dev",
        "libxxhash": "libxxhash-dev",
        "libsodium": "libsodium-dev",
        "hiredis": "libhiredis-dev",
        "openssl": "libssl-dev",
        "libcrypto": "libssl-dev",
    }
    asked = dict(re.findall(r"dependency\('([^']+)', version: '>=([^']+)'", meson)) | {
        "meson": re.search(r"meson_version: '>=([^']+)'", meson)[1]
    }
    built = dict(re.findall(r"([\w-]+) \(>= ([\d.:]+)\)", control))
    return [
        f"{name} {version} is asked for, debian/control says {built.get(packages.get(name, name))}"
        for name, version in asked.items()
        if built.get(packages.get(name, name)) != version
    ]


def files_of_tools(tree, meson):
    """Returns what -Dtools=true installs beside the libraries. Nothing is built for that."""
    options = ["-Dtools=true", "-Dtests=false", "-Dbenchmarks=disabled", "--wrap-mode=nodownload"]
    with tempfile.TemporaryDirectory() as build:
        run(*meson, "setup", build, tree, "--prefix=/usr", *options)
        installed = json.loads(run(*meson, "introspect", "--installed", build))
    return [name[1:] for name in installed.values() if re.match("/usr/(bin|share)/", name)]


def check_symbols(listed, functions):
    """Compares a list of symbols with the functions of the headers."""
    versions = dict(re.findall(r"^ (\w+)@PAGEDKV_0 ([\d.]+)$", listed, re.M))
    versions.pop("PAGEDKV_0")
    since = {function["name"]: function["since"] for function in functions}
    return [
        f"libpagedkv0.symbols: {name} {versions.get(name)}, the headers: {since.get(name)}"
        for name in sorted(versions.keys() | since.keys())
        if versions.get(name) != since.get(name)
    ]


def main():
    tree, build, *meson = sys.argv[1:]
    tree = pathlib.Path(tree)
    debian = tree / "src/packaging/debian"
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        run(*meson, "install", "-C", build, "--no-rebuild", "--destdir", root)
        prefix = next(
            path for path in next(root.rglob("pagedkv.pc")).parents if (path / "include").is_dir()
        )
        # A library's folder has one level more in Debian than it may have here.
        names = [
            re.sub(
                r"^usr/lib\w*/(?:[^/]+-linux-gnu/)?",
                "usr/lib/triplet/",
                f"usr/{path.relative_to(prefix).as_posix()}",
            )
            for path in prefix.rglob("*")
            if not path.is_dir() or path.is_symlink()
        ]
    if not any("redis" in name for name in names):
        print("SKIPPED: libpagedkv-redis was not built")
        sys.exit(77)
    names = sorted({*names, *files_of_tools(tree, meson)})
    assert "usr/bin/pkv-serve" in names, "-Dtools=true installs no pkv-serve"
    lists = patterns(debian)
    assert check_files([*names, "usr/bin/new"], lists) == [
        "usr/bin/new is in no package"
    ], check_files(names, lists)
    assert check_files(
        [name for name in names if not name.endswith(".a")], lists
    ), "a missing archive is not noticed"
    sources = (tree / "meson.build").read_text() + (tree / "src/redis/meson.build").read_text()
    control = (debian / "control.in").read_text()
    assert check_versions(sources, control) == [], check_versions(sources, control)
    assert check_versions(
        sources, control.replace("2021.5", "2021.4")
    ), "an older oneTBB is not noticed"
    sys.path.insert(0, str(tree / "bindings/api"))
    import describe

    functions = describe.describe()["functions"]
    listed = (debian / "libpagedkv0.symbols").read_text()
    assert check_symbols(listed, functions) == [], check_symbols(listed, functions)
    assert check_symbols(listed, functions[1:]) and check_symbols(
        listed, [*functions, {"name": "pkv_new", "since": "0.2"}]
    ), "a function that is not there, or new, is not noticed"
    print(f"{len(names)} files in {len(lists)} packages")


main()
