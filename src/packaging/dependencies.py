"""Makes DEPENDENCIES.md from dependencies.json, and a bill of materials (SPDX 2.3).

usage: dependencies.py                       writes DEPENDENCIES.md
       dependencies.py --check               prints a diff and fails if that page is outdated
       dependencies.py --spdx [CONTENTS...]  prints the bill of materials

A file CONTENTS has the name of a wheel with .txt at its end, and lists what is in it: lines of the
name of a dependency, the exact version and the package URL, with tabs between them.
src/packaging/wheel writes it.
"""

import difflib
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
# The SPDX relationship of each use: its type, and whether pagedkv is the first of the packages.
RELATIONS = {
    "linked": ("DYNAMIC_LINK", True),
    "compiled": ("DEPENDS_ON", True),
    "binding": ("RUNTIME_DEPENDENCY_OF", False),
    "build": ("BUILD_TOOL_OF", False),
    "test": ("TEST_DEPENDENCY_OF", False),
    "bench": ("DEV_DEPENDENCY_OF", False),
}
# The uses that the page lists: what authors of programs have to know.
SHIPPED = ["linked", "compiled", "binding"]
PURLS = {
    "pypi": "pkg:pypi/",
    "cargo": "pkg:cargo/",
    "go": "pkg:golang/",
    "npm": "pkg:npm/",
    "apt": "pkg:deb/debian/",
}


def version():
    return re.search(r"version: '([^']+)'", (HERE.parent.parent / "meson.build").read_text())[1]


def identifier(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]+", "-", name)


def ours(name):
    return {
        "name": name,
        "SPDXID": identifier(name),
        "versionInfo": version(),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
    }


def package(entry, exact=None, url=None):
    """A dependency, or one exact version of it."""
    urls = [prefix + name for kind, prefix in PURLS.items() for name in entry.get(kind, [])]
    references = [
        {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": locator,
        }
        for locator in ([url] if exact else urls)
    ]
    return {
        "name": entry["name"],
        "SPDXID": identifier(" ".join([entry["name"], *([exact] if exact else [])])),
        "versionInfo": exact or entry["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": entry["licence"],
        "copyrightText": "NOASSERTION",
        "comment": entry["for"],
        "externalRefs": references,
    }


def relation(first, kind, second):
    return {"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second}


def relationship(entry):
    kind, ours_first = RELATIONS[entry["use"]]
    ends = ["SPDXRef-pagedkv", identifier(entry["name"])]
    first, second = ends if ours_first else reversed(ends)
    optional = {"comment": "optional"} if entry.get("optional") else {}
    return relation(first, kind, second) | optional


def wheels(listed, files):
    """Each wheel, what is in them, and the relationships of both."""
    entries = {entry["name"]: entry for entry in listed["dependencies"]}
    packages, relations = {}, []
    for file in files:
        wheel = ours(file.stem)
        packages[wheel["SPDXID"]] = wheel
        relations.append(relation(wheel["SPDXID"], "GENERATED_FROM", "SPDXRef-pagedkv"))
        for line in file.read_text().splitlines():
            name, exact, url = line.split("\t")
            part = package(entries[name], exact, url)
            packages[part["SPDXID"]] = part
            relations.append(relation(wheel["SPDXID"], "CONTAINS", part["SPDXID"]))
    return list(packages.values()), relations


def spdx(listed, files):
    of_wheels, relations_of_wheels = wheels(listed, files)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"pagedkv-{version()}",
        "documentNamespace": f"https://example.org/spdx/pagedkv-{version()}-{listed['updated']}",
        "creationInfo": {
            "created": f"{listed['updated']}T00:00:00Z",
            "creators": ["Tool: dependencies.py"],
        },
        "documentDescribes": ["SPDXRef-pagedkv"],
        "packages": [ours("pagedkv"), *map(package, listed["dependencies"]), *of_wheels],
        "relationships": [
            relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-pagedkv"),
            *map(relationship, listed["dependencies"]),
            *relations_of_wheels,
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def table(listed):
    lines = [
        "# Dependencies",
        "",
        "What programs on pagedkv depend on directly, with SPDX identifiers of the licences.",
        "[dependencies.py](dependencies.py) makes this page from",
        "[dependencies.json](dependencies.json), which also lists tools of builds and tests.",
        "",
    ]
    for use in SHIPPED:
        meaning = listed["uses"][use]
        lines += [
            f"## {meaning[0].upper()}{meaning[1:]}",
            "",
            "| name | version | licence | for |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {e['name']} | {e['version']} | {e['licence']} | "
            f"{e['for']}{' (optional)' if e.get('optional') else ''} |"
            for e in listed["dependencies"]
            if e["use"] == use
        ]
        lines.append("")
    return "\n".join(lines)


def main():
    listed = json.loads((HERE / "dependencies.json").read_text())
    page, made = HERE / "DEPENDENCIES.md", table(listed)
    if sys.argv[1:2] == ["--spdx"]:
        print(spdx(listed, map(pathlib.Path, sys.argv[2:])), end="")
    elif sys.argv[1:] == []:
        page.write_text(made)
    elif sys.argv[1:] != ["--check"]:
        sys.exit(__doc__.partition("\n\n")[2])
    elif made != page.read_text():
        old = page.read_text().splitlines(True)
        difference = difflib.unified_diff(old, made.splitlines(True), page.name, "the list")
        sys.exit("".join(difference) + "python3 src/packaging/dependencies.py updates it")


if __name__ == "__main__":
    main()
