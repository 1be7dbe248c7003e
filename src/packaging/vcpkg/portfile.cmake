# Builds the tree that this port stands in, such as an unpacked source archive:
# vcpkg install pagedkv --overlay-ports=src/packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

# The interface is C, so programs of any configuration use the same library.
set(VCPKG_BUILD_TYPE release)
vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -Dtests=false
    -Dbindings=false
    -Dbenchmarks=disabled
    -Dredis=disabled
    -Dsodium=enabled
    -Dopenssl=enabled)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()

# This moves the files for CMake up by one folder.
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/pagedkv)
vcpkg_replace_string("${CURRENT_PACKAGES_DIR}/share/pagedkv/pagedkvConfig.cmake"
  "\"../../..\"" "\"../..\"")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
