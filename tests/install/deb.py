"""Checks the lists of the Debian packages, without a build: each file that `meson install` installs
is in exactly one package, and each package has all files of its list; the build requires the
versions that meson requires; the list of symbols has each function and the version in which it
appeared.

usage: deb.py TREE BUILD MESON..."""

import fnmatch
import json
import pathlib
import re
import sys
import tempfile

from install import install, run

# libpagedkv-dev is installed with dh_install -Xpagedkv/redis.h.
LEFT_OUT = {"libpagedkv-dev": "pagedkv/redis.h"}


def patterns(debian):
    return {path.stem: path.read_text().split() for path in debian.glob("*.install")}


def matches(name, pattern):
    """A pattern that names a folder means all files below it."""
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, pattern + "/*")


def owners(name, lists):
    """Returns the packages that have a file."""
    return [
        package
        for package, globs in lists.items()
        for pattern in globs
        if matches(name, pattern) and LEFT_OUT.get(package, "\0") not in name
    ]


def check_files(names, lists):
    found = [(name, owners(name, lists)) for name in names]
    return [f"{name} is in {has or 'no package'}" for name, has in found if len(has) != 1] + [
        f"{package}: nothing is {pattern}"
        for package, globs in lists.items()
        for pattern in globs
        if not any(matches(name, pattern) for name in names)
    ]


def check_versions(meson, control):
    """Returns the dependencies whose version in debian/control is not that of meson.build."""
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


def files_of_options(tree, meson):
    """Returns the files that Debian's options add to the libraries, without a build."""
    options = ["-Dtools=true", "-Dllama=true", "-Dtests=false", "-Dbenchmarks=disabled"]
    options += ["--wrap-mode=nodownload", "--libdir=lib/triplet"]
    with tempfile.TemporaryDirectory() as build:
        run(*meson, "setup", build, tree, "--prefix=/usr", *options)
        installed = json.loads(run(*meson, "introspect", "--installed", build))
    added = "/usr/(bin/|share/|include/pagedkv-llama|lib/triplet/(pagedkv/|.*pagedkv-llama))"
    return [name[1:] for name in installed.values() if re.match(added, name)]


def check_symbols(listed, functions):
    """Compares a list of symbols with the functions of the headers."""
    versions = dict(re.findall(r"^ (\w+)@PAGEDKV_1 ([\d.]+)$", listed, re.M))
    versions.pop("PAGEDKV_1")
    since = {function["name"]: function["since"] for function in functions}
    return [
        f"libpagedkv1.symbols: {name} {versions.get(name)}, the headers: {since.get(name)}"
        for name in sorted(versions.keys() | since.keys())
        if versions.get(name) != since.get(name)
    ]


def main():
    tree, build, *meson = sys.argv[1:]
    tree = pathlib.Path(tree)
    debian = tree / "src/packaging/debian"
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        _, prefix = install(meson, build, root)
        # In Debian the folder of libraries may have one level more than here.
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
    names = sorted({*names, *files_of_options(tree, meson)})
    assert "usr/bin/pkv-serve" in names, "-Dtools=true installs no pkv-serve"
    lists = patterns(debian)
    found = check_files([*names, "usr/bin/new"], lists)
    assert found == ["usr/bin/new is in no package"], found
    shared = [name for name in names if not name.endswith(".a")]
    assert check_files(shared, lists), "a missing archive is not noticed"
    sources = (tree / "meson.build").read_text() + (tree / "src/redis/meson.build").read_text()
    control = (debian / "control.in").read_text()
    assert check_versions(sources, control) == [], check_versions(sources, control)
    older = control.replace("2021.5", "2021.4")
    assert check_versions(sources, older), "an older oneTBB is not noticed"
    sys.path.insert(0, str(tree / "bindings/api"))
    import describe

    functions = describe.describe()["functions"]
    listed = (debian / "libpagedkv1.symbols").read_text()
    assert check_symbols(listed, functions) == [], check_symbols(listed, functions)
    assert check_symbols(listed, functions[1:]), "a function that was removed is not noticed"
    added = [*functions, {"name": "pkv_new", "since": "1.1"}]
    assert check_symbols(listed, added), "a new function is not noticed"
    print(f"{len(names)} files in {len(lists)} packages")


main()
