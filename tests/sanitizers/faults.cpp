// One fault of each kind, for the sanitizers to find.
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  if (kind == "overflow") {
    volatile char* bytes = new char[8];
    bytes[argc + 6] = 1;
    delete[] bytes;
  } else if (kind == "leak") {
    [[maybe_unused]] void* volatile lost = std::malloc(8);
    lost = nullptr;
  } else if (kind == "shift") {
    volatile int bits = 31 + argc;
    volatile int result = 1 << bits;
    return result & 0;
  } else if (kind == "race") {
    int counter = 0;
    std::thread other([&] { counter++; });
    counter++;
    other.join();
  }
  return 0;
}
