"""Puts libpagedkv, and what else $PAGEDKV_BUNDLE names (paths separated by colons),
into the wheel.
"""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Bundle(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        named = [
            pathlib.Path(path) for path in os.environ.get("PAGEDKV_BUNDLE", "").split(":") if path
        ]
        for path in named:
            if not path.is_file():
                raise FileNotFoundError(f"PAGEDKV_BUNDLE: there is no file {path}")
            # The name that others ask for: libpagedkv.so.0.1.0 is opened as libpagedkv.so.0.
            soname = ".".join(path.name.split(".")[:3])
            soname = soname if soname.rsplit(".", 1)[1].isdigit() else f"{soname}.0"
            build_data["force_include"][str(path.resolve())] = f"pagedkv/{soname}"
        if named:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-linux_{platform.machine()}"
