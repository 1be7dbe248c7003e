"""Makes pagedkv/generated in a clone, and puts the files of $PAGEDKV_BUNDLE (paths separated as in
$PATH) into the wheel: libpagedkv, other libraries, and texts such as licences. $PAGEDKV_PLATFORM is
the platform in the wheel's name, such as win_amd64, if it is not this one.
"""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Bundle(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = pathlib.Path(self.root)
        if (root.parent / "api").exists():
            subprocess.run([sys.executable, "-B", root / "generate_raw.py"], check=True)
        bundle = os.environ.get("PAGEDKV_BUNDLE", "").split(os.pathsep)
        named = [pathlib.Path(path) for path in bundle if path]
        for path in named:
            if not path.is_file():
                raise FileNotFoundError(f"PAGEDKV_BUNDLE: there is no file {path}")
            name = soname(path.name) if ".so." in path.name else path.name
            build_data["force_include"][str(path.resolve())] = f"pagedkv/{name}"
        if named:
            platform = os.environ.get("PAGEDKV_PLATFORM", sysconfig.get_platform())
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + re.sub("[-.]", "_", platform)


def soname(file: str) -> str:
    """The name by which the library is opened: libpagedkv.so.1 for libpagedkv.so.1.0.0."""
    name = ".".join(file.split(".")[:3])
    return name if name.rsplit(".", 1)[1].isdigit() else f"{name}.0"
