"""Makes DEPENDENCIES.md from dependencies.json, and a bill of materials (SPDX 2.3).

usage: dependencies.py            writes DEPENDENCIES.md
       dependencies.py --check    prints a diff and fails if that page is outdated
       dependencies.py --spdx     prints the bill of materials
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


def package(entry):
    references = [
        {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": prefix + name,
        }
        for kind, prefix in PURLS.items()
        for name in entry.get(kind, [])
    ]
    return {
        "name": entry["name"],
        "SPDXID": identifier(entry["name"]),
        "versionInfo": entry["version"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": entry["licence"],
        "copyrightText": "NOASSERTION",
        "comment": entry["for"],
        "externalRefs": references,
    }


def relationship(entry):
    kind, ours_first = RELATIONS[entry["use"]]
    ends = ["SPDXRef-pagedkv", identifier(entry["name"])]
    first, second = ends if ours_first else reversed(ends)
    optional = {"comment": "optional"} if entry.get("optional") else {}
    return {
        "spdxElementId": first,
        "relationshipType": kind,
        "relatedSpdxElement": second,
    } | optional


def spdx(listed):
    ours = {
        "name": "pagedkv",
        "SPDXID": "SPDXRef-pagedkv",
        "versionInfo": version(),
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
    }
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
        "packages": [ours, *map(package, listed["dependencies"])],
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": "SPDXRef-pagedkv",
            },
            *map(relationship, listed["dependencies"]),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def table(listed):
    lines = [
        "# Dependencies",
        "",
        "[dependencies.py](dependencies.py) makes this page from",
        "[dependencies.json](dependencies.json); with `--spdx` it prints the same as SPDX 2.3. The",
        "page lists direct dependencies; licences are SPDX identifiers.",
        "",
    ]
    for use, meaning in listed["uses"].items():
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
    page, made, bill = HERE / "DEPENDENCIES.md", table(listed), spdx(listed)
    if sys.argv[1:] == ["--spdx"]:
        print(bill, end="")
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
