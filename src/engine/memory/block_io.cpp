// Puts the bytes of all blocks of a call side by side, as the hooks expect them, and calls a hook.
#include "engine/memory/block_io.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "base/status.h"

namespace pkv::memory {

namespace {

// Memory for the bytes of n blocks.
class Blocks {
 public:
  Blocks(HookMemory& memory, const Group& group, size_t n)
      : memory_(memory),
        stride_(static_cast<size_t>(group.layout.block_bytes())),
        size_(static_cast<size_t>(checked_mul(stride_, n, "bytes of blocks"))),
        bytes_(static_cast<unsigned char*>(memory.allocate(size_, storage_alignment))) {}
  ~Blocks() { memory_.deallocate(bytes_, size_, storage_alignment); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  unsigned char* data() { return bytes_; }
  unsigned char* block(size_t i) { return bytes_ + i * stride_; }
  size_t stride() const { return stride_; }
  size_t size() const { return size_; }

 private:
  HookMemory& memory_;
  const size_t stride_, size_;
  unsigned char* const bytes_;
};

std::vector<uint32_t> numbers(std::span<const BlockIo::Copy> copies, uint32_t BlockIo::Copy::* of) {
  std::vector<uint32_t> result;
  for (const BlockIo::Copy& copy : copies) result.push_back(copy.*of);
  return result;
}

}  // namespace

template <class Call>
void BlockIo::call(const char* name, uint32_t index, size_t n, const Call& hook) {
  int32_t result;
  moving_[index] += n;
  {
    HookScope scope;
    result = hook();
  }
  moving_[index] -= n;
  if (result == 0) return;
  failures_ += 1;
  if (result > 0)
    fail(io_details(EIO),
         "block_io: %s of %zu blocks of group %u returned %d; it must be 0 or a negative errno",
         name, n, index, result);
  const int error = -std::max(result, -INT_MAX);
  fail(io_details(error), "block_io: %s of %zu blocks of group %u failed: %s (errno %d)", name, n,
       index, errno_text(error), error);
}

void BlockIo::read(uint32_t index, const Group& group, std::span<const Copy> copies) {
  std::vector<std::vector<Copy>> calls;
  std::unordered_map<uint32_t, size_t> named;  // by block: how many calls name it so far
  for (const Copy& copy : copies) {
    const size_t call = named[copy.id]++;
    if (call == calls.size()) calls.emplace_back();
    calls[call].push_back(copy);
  }
  for (const std::vector<Copy>& of_call : calls) read_once(index, group, of_call);
}

// Reads blocks of which each is named once.
void BlockIo::read_once(uint32_t index, const Group& group, std::span<const Copy> copies) {
  const std::vector<uint32_t> ids = numbers(copies, &Copy::id),
                              tokens = numbers(copies, &Copy::tokens);
  Blocks blocks(memory_, group, copies.size());
  std::memset(blocks.data(), 0, blocks.size());
  call("read", index, copies.size(), [&] {
    return hooks_.read(hooks_.user, index, ids.size(), ids.data(), tokens.data(), blocks.data());
  });
  for (size_t i = 0; i < copies.size(); i++)
    std::memcpy(copies[i].bytes, blocks.block(i), blocks.stride());
}

void BlockIo::write(uint32_t index, const Group& group, std::span<const Copy> copies) {
  if (copies.empty()) return;
  const std::vector<uint32_t> ids = numbers(copies, &Copy::id);
  Blocks blocks(memory_, group, copies.size());
  for (size_t i = 0; i < copies.size(); i++)
    std::memcpy(blocks.block(i), copies[i].bytes, blocks.stride());
  call("write", index, copies.size(),
       [&] { return hooks_.write(hooks_.user, index, ids.size(), ids.data(), blocks.data()); });
}

}  // namespace pkv::memory
