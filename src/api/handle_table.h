// The entries that handles name: what an entry holds, how a handle names it, and the table of all
// entries with its free lists. It has its own file so that handles.cpp deals only with leases.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "api/kind.h"
#include "api/stripes.h"

namespace pkv::api {

// Whether users of such an object are counted in stripes, as many threads use it at once.
constexpr bool is_striped(Kind kind) {
  return kind == Kind::pool || kind == Kind::cache || kind == Kind::compute;
}

// handle = generation << 32 | kind << 28 | index
constexpr uint32_t index_bits = 24;
constexpr uint32_t no_entry = (1u << index_bits) - 1;  // all bits of an index: the end of a list
constexpr uint32_t kind_shift = 28;
constexpr uint32_t chunk_entries = 1024;
constexpr uint32_t max_chunks = 4096;
constexpr uint32_t run_entries = 16;
static_assert(max_chunks * chunk_entries <= no_entry && chunk_entries % run_entries == 0);

// word = generation << 32 | state. Each entry has its own cache lines: each call changes the word
// of its session, which would slow down users of a pool in the same line.
struct alignas(64) HandleEntry {
  std::atomic<uint64_t> word{uint64_t{1} << 32};
  std::atomic<uint64_t> holder{0};  // the batch that holds this session
  std::atomic<uint32_t> next{0};    // the index of the next entry in the free list
  uint32_t index = 0;
  std::atomic<Kind> kind{};
  // Written before the word becomes live, and read only under a lease.
  uint64_t parent = 0;
  void* object = nullptr;
  // Created for the first striped object in this entry, and kept for later ones.
  std::atomic<Stripes*> stripes{nullptr};
  // The fork epoch in which the object was created. It is also read without a lease: a thread that
  // reads the epoch of the entry's next object then fails to take the lease.
  std::atomic<uint64_t> epoch{0};

  // The second line has what opening and closing change.
  alignas(64) void (*destroy)(void* object) = nullptr;  // as object
  // The epoch of a forked child that is closing an inherited object; 0 for none.
  std::atomic<uint64_t> closed_in{0};
  // The entries of children: the runs that they are in, and which of them are free.
  std::atomic<uint64_t> runs{no_entry}, free{no_entry};
  // In the first entry of a run, the index of the next run.
  std::atomic<uint32_t> next_run{0};
  // How many entries this object and its children have taken. The entry and its runs are returned
  // when this falls to 0, not when the object is closed: a thread that closed a child may give its
  // entry back after the cache was closed.
  std::atomic<uint32_t> taken{1};
};
static_assert(sizeof(HandleEntry) == 128);

// The state of an entry.
constexpr uint64_t live = 1u << 31;     // the handle is open
constexpr uint64_t written = 1u << 30;  // one call has an exclusive lease
constexpr uint64_t held = 1u << 29;     // a batch holds the session
constexpr uint64_t one_getter = 1, one_reader = 1u << 14;
constexpr uint64_t getters = one_reader - one_getter;  // how many getters there are
constexpr uint64_t readers = held - one_reader;        // how many readers there are
constexpr uint64_t state_mask = 0xFFFFFFFF;

constexpr uint64_t generation_of(uint64_t word) { return word >> 32; }

// All entries of the process, in chunks that are created on demand. Each cache takes runs of
// entries for its children, so that they are found without a look at those of others; the rest
// belong to an entry without an object, the root. It takes no lock.
class HandleTable {
 public:
  // The entry with this index, or NULL if its chunk was never created.
  HandleEntry* at(uint32_t index) const {
    if (index >= max_chunks * chunk_entries) return nullptr;
    // Acquire: the entries of a chunk are initialised before it is published.
    HandleEntry* const chunk = chunks_[index / chunk_entries].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % chunk_entries];
  }

  // Takes an entry for a child of the object with the handle `parent`, which must be leased, or for
  // an object without one (0). Entries with stripes are kept for objects that need stripes, so
  // there are never more stripes than the most such objects that were open at one time. Throws
  // bad_alloc or LIMIT_REACHED.
  HandleEntry* take(bool striped, uint64_t parent);
  // An entry that has used all its generations stays out of use.
  void give_back(HandleEntry* entry);

  // Visits all entries that were taken for children of an object.
  template <class Visit>
  void for_each_child(uint64_t parent, const Visit& visit) const {
    uint64_t run = existing(parent)->runs.load(std::memory_order_acquire);
    while ((run & no_entry) != no_entry) {
      HandleEntry* const entries = existing(run);
      for (uint32_t i = 0; i < run_entries; i++) visit(entries[i]);
      run = entries->next_run.load(std::memory_order_relaxed);
    }
  }

 private:
  using List = std::atomic<uint64_t>;
  using Link = std::atomic<uint32_t> HandleEntry::*;

  // The entry that a handle or an entry of a list names: its chunk exists.
  HandleEntry* existing(uint64_t named) const {
    const uint64_t index = named & no_entry;
    return &chunks_[index / chunk_entries].load(std::memory_order_acquire)[index % chunk_entries];
  }
  HandleEntry* pop(List& list, Link link);
  void push(List& list, Link link, HandleEntry* entry);
  void add_run(HandleEntry& parent);
  void add_chunk();

  std::array<std::atomic<HandleEntry*>, max_chunks> chunks_{};
  HandleEntry root_;
  List free_runs_{no_entry};
  List free_striped_{no_entry};
};

// The table exists before any code runs and is never destroyed, because handles may be used while
// the process ends.
inline HandleTable& handle_table() {
  static constinit HandleTable table;
  return table;
}

}  // namespace pkv::api
