"""Conan's recipe for libpagedkv, from the tree that it stands in: conan create src/packaging/conan

It uses the libraries of the distribution and the installed meson, and downloads nothing."""

import pathlib
import re
import shutil

from conan import ConanFile
from conan.tools.files import copy, rmdir
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain
from conan.tools.system.package_manager import Apt

required_conan_version = ">=2.0"

# The files that meson.build reads if everything but the library is switched off.
FILES = ("meson.build", "meson_options.txt", "LICENSE")
FOLDERS = ("include", "src", "bindings", "fuzz", "bench", "tests/support")
LEFT_OUT = ("*__pycache__/*", "*target/*", "*node_modules/*", "data/*")


class Pagedkv(ConanFile):
    name = "pagedkv"
    description = "KV cache and paged attention of an inference engine"
    license = "Apache-2.0"
    topics = ("llm", "inference", "kv-cache", "attention")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": True, "fPIC": True}
    implements = ["auto_shared_fpic"]

    @property
    def tree(self):
        return pathlib.Path(self.recipe_folder).resolve().parents[2]

    def set_version(self):
        text = (self.tree / "meson.build").read_text()
        self.version = re.search(r"version: '([^']+)'", text)[1]

    def export_sources(self):
        tree, to = self.tree, pathlib.Path(self.export_sources_folder)
        for name in FILES:
            shutil.copy(tree / name, to)
        for name in FOLDERS:
            copy(self, "*", src=str(tree / name), dst=str(to / name), excludes=LEFT_OUT)

    def layout(self):
        basic_layout(self)

    def system_requirements(self):
        """Prints which packages are missing on Debian and Ubuntu."""
        Apt(self).install(
            ["libtbb-dev", "libxsimd-dev", "libxxhash-dev", "libsodium-dev", "libssl-dev"]
        )

    def generate(self):
        tc = MesonToolchain(self)
        # Only the library needs this; its interface is C, so programs may use any standard.
        tc.cpp_std = "c++20"
        tc.project_options |= {
            "tests": False,
            "bindings": False,
            "benchmarks": "disabled",
            "redis": "disabled",
            "sodium": "enabled",
            "openssl": "enabled",
        }
        tc.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=f"{self.package_folder}/licenses")
        # Conan generates these for each program.
        for folder in ("pkgconfig", "cmake"):
            rmdir(self, f"{self.package_folder}/lib/{folder}")

    def package_info(self):
        info = self.cpp_info
        info.libs = ["pagedkv"]
        info.set_property("pkg_config_name", "pagedkv")
        info.set_property("cmake_file_name", "pagedkv")
        info.set_property("cmake_target_name", "pagedkv::pagedkv")
        if not self.options.shared:
            info.system_libs = ["tbb", "sodium", "crypto", "stdc++", "m", "pthread"]
