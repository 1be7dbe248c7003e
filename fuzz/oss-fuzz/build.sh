#!/bin/bash -eu
# Builds the fuzz targets for OSS-Fuzz, which sets these variables and runs them elsewhere, so that
# they must need no other library than the C library.
cd "$SRC/pagedkv"

# The system's GoogleTest is for another C++ library.
mkdir -p "$WORK/gtest"
$CXX $CXXFLAGS -I/usr/src/googletest/googletest{,/include} -c \
  /usr/src/googletest/googletest/src/gtest-all.cc -o "$WORK/gtest/gtest-all.o"
ar rcs "$WORK/gtest/libgtest.a" "$WORK/gtest/gtest-all.o"
cat > "$WORK/gtest/gtest.pc" << END
Name: gtest
Description: GoogleTest
Version: 1.12
Cflags: -I/usr/src/googletest/googletest/include
Libs: -L$WORK/gtest -lgtest
END
export PKG_CONFIG_PATH=$WORK/gtest

# The flags of the environment decide all but the kernels' optimisation, which follows b_sanitize.
options=(-Dfuzzers=true -Dfuzzing_engine="$LIB_FUZZING_ENGINE" -Dtests=false -Dbindings=false
  -Dbenchmarks=disabled -Dtbb=disabled -Dredis=disabled -Dsodium=enabled -Dopenssl=enabled
  -Ddefault_library=static -Dprefer_static=true -Dbuildtype=plain --wrap-mode=nodownload)
case $SANITIZER in
  address | undefined) options+=(-Db_sanitize="$SANITIZER") ;;
esac
meson setup "$WORK/build" "${options[@]}"

targets=()
for archive in fuzz/corpus/*.tar.xz; do targets+=("$(basename "$archive" .tar.xz)"); done
ninja -C "$WORK/build" "${targets[@]/#/fuzz/fuzz-}"

for target in "${targets[@]}"; do
  fuzzer=$OUT/fuzz-$target
  cp "$WORK/build/fuzz/fuzz-$target" "$fuzzer"
  python3 -B fuzz/corpus.py unpack "fuzz/corpus/$target.tar.xz" "$WORK/corpus/$target"
  find "$WORK/corpus/$target" -type f | zip -9 -j -q -@ "${fuzzer}_seed_corpus.zip"
  for suffix in dict options; do
    [ ! -f "fuzz/$target.$suffix" ] || cp "fuzz/$target.$suffix" "$fuzzer.$suffix"
  done
done
