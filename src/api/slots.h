// The slots that handles name: what a slot holds, how a handle names it, and the table of all slots
// with its free lists. It has its own file so that handles.cpp deals only with leases.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "api/kind.h"
#include "api/stripes.h"

namespace pkv::api {

// Whether readers of such an object are counted in stripes, as many threads read it at once.
constexpr bool is_striped(Kind kind) {
  return kind == Kind::pool || kind == Kind::cache || kind == Kind::compute;
}

// word = generation << 32 | state. Each slot has its own cache line: each call changes the word of
// its session, which would slow down readers of a pool in the same line.
struct alignas(64) Slot {
  std::atomic<uint64_t> word{uint64_t{1} << 32};
  std::atomic<uint64_t> holder{0};  // the batch that holds this session
  std::atomic<uint64_t> parent{0};
  std::atomic<uint32_t> next{0};  // the index of the next slot in the free list
  uint32_t index = 0;
  std::atomic<Kind> kind{};
  // Written before the word becomes live, and read only under a lease.
  void* object = nullptr;
  void (*destroy)(void* object) = nullptr;
  // Created for the first striped object in this slot, and kept for later ones.
  std::atomic<Stripes*> stripes{nullptr};
  // The fork epoch in which the object was created. It is also read without a lease: a thread that
  // reads the epoch of the slot's next object then fails to take the lease.
  std::atomic<uint64_t> epoch{0};
  // The epoch of a forked child that is closing an inherited object; 0 for none.
  std::atomic<uint64_t> closed_in{0};
};

// handle = generation << 32 | kind << 28 | index
constexpr uint32_t index_bits = 24;
constexpr uint32_t no_index = (1u << index_bits) - 1;
constexpr uint32_t kind_shift = 28;
constexpr uint32_t chunk_slots = 1024;
constexpr uint32_t max_chunks = 4096;
static_assert(max_chunks * chunk_slots <= no_index);

// The state of a slot.
constexpr uint64_t live = 1u << 31;     // the handle is open
constexpr uint64_t written = 1u << 30;  // one call has an exclusive lease
constexpr uint64_t held = 1u << 29;     // a batch holds the session
constexpr uint64_t one_getter = 1, one_reader = 1u << 14;
constexpr uint64_t getters = one_reader - one_getter;  // how many getters there are
constexpr uint64_t readers = held - one_reader;        // how many readers there are
constexpr uint64_t state_mask = 0xFFFFFFFF;

constexpr uint64_t generation_of(uint64_t word) { return word >> 32; }

// All slots of the process, in chunks that are created on demand, and two free lists. It takes no
// lock.
class SlotTable {
 public:
  // The slot with this index, or NULL if its chunk was never created.
  Slot* at(uint32_t index) const {
    if (index >= max_chunks * chunk_slots) return nullptr;
    // Acquire: the slots of a chunk are initialised before it is published.
    Slot* const chunk = chunks_[index / chunk_slots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % chunk_slots];
  }

  // Takes a slot from a free list. Slots with stripes are kept for objects that need stripes, so
  // there are never more stripes than the most such objects that were open at one time.
  Slot* take(bool striped);
  void give_back(Slot* slot);

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& chunk : chunks_) {
      Slot* const slots = chunk.load(std::memory_order_acquire);
      if (slots == nullptr) return;
      for (uint32_t i = 0; i < chunk_slots; i++) visit(slots[i]);
    }
  }

 private:
  // A slot of a free list: its chunk exists.
  Slot* existing(uint64_t index) const {
    return &chunks_[index / chunk_slots].load(std::memory_order_acquire)[index % chunk_slots];
  }
  Slot* pop(std::atomic<uint64_t>& list);
  void push(std::atomic<uint64_t>& list, Slot* slot);
  void add_chunk();

  std::array<std::atomic<Slot*>, max_chunks> chunks_{};
  std::atomic<uint64_t> free_{no_index};
  std::atomic<uint64_t> free_striped_{no_index};
};

// The table exists before any code runs and is never destroyed, because handles may be used while
// the process ends.
inline SlotTable& slot_table() {
  static constinit SlotTable table;
  return table;
}

}  // namespace pkv::api
