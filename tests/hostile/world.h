// One of each object that the library hands out, in a known state. Every cell of the matrix begins
// with it.
#pragma once

#include <memory>

#include "../support/memory_store.h"
#include "../support/test_clock.h"
#include "support.h"

namespace hostile {

inline constexpr size_t state_bytes = 40;

// Where the caches of a world have keys and values.
struct Place {
  constexpr Place(pkv_storage kind, const char* in = nullptr, bool only_engine = false)
      : storage(kind), directory(in), elsewhere(only_engine) {}
  pkv_storage storage;
  const char* directory;  // of the file that the memory is
  bool elsewhere;         // Only the engine can read the blocks: groups are opaque.
  constexpr bool has_store() const { return storage == PKV_STORAGE_INTERNAL || elsewhere; }
};
// The directory's name is so long that each copy of it takes memory.
inline constexpr Place in_file{PKV_STORAGE_INTERNAL, "/dev/shm/././././././././."};
inline constexpr Place elsewhere{PKV_STORAGE_EXTERNAL, nullptr, true};
inline constexpr Place places[] = {PKV_STORAGE_INTERNAL, in_file, PKV_STORAGE_EXTERNAL, elsewhere};
std::string name_of(const Place& place);

// The hooks of a device that forgets all that is written to it.
extern const pkv_block_io forgetful_device;

// What the layers of a world's caches keep. Mixed: layer 0 has a window, layer 1 has states.
enum class Layers { plain, window, sinks, states, mixed, group_memory };
std::string name_of(Layers kind);

class World {
 public:
  // If `stored`, the cache has a store that keeps its items, and waits for it. Otherwise its store
  // has no items. Storage NONE has no store, except for opaque groups.
  explicit World(const Place& kept_in = PKV_STORAGE_INTERNAL, uint32_t threads = 1,
                 bool stored = false);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Hooks hooks;
  cache_test::MemoryStore items;  // Used by a world that is stored.
  cache_test::TestClock clock;    // Of the first cache.
  const Place place;
  pkv_cache cache = nullptr, other = nullptr;
  pkv_session session = nullptr;  // Has 20 tokens. Its blocks are shared with the snapshot.
  // Has 5 tokens, and 3 more in the batch.
  pkv_session stepping = nullptr;
  pkv_session foreign = nullptr;  // Belongs to the other cache.
  pkv_batch batch = nullptr;      // Has begun, with both layers written.
  // A cache of a hybrid model: layer 0 has keys and values, layer 1 keeps states of state_bytes.
  // Its session has 20 tokens, and 3 more in its batch.
  pkv_cache hybrid = nullptr;
  pkv_session recurrent = nullptr;
  pkv_batch recurring = nullptr;
  // Batches that a cell begins, and caches that it makes.
  std::vector<pkv_batch> more_batches;
  std::vector<pkv_cache> more_caches;
  pkv_snapshot snapshot = nullptr, foreign_snapshot = nullptr;
  pkv_pool pool = nullptr;  // Has 128 blocks of 16 slots.
  // 100 of them, held once; the last one is held twice.
  std::vector<pkv_block_ref> blocks;
  pkv_compute compute = nullptr;
  // Handles that were closed.
  pkv_pool closed_pool = nullptr;
  pkv_cache closed_cache = nullptr;
  pkv_session closed_session = nullptr;
  pkv_batch closed_batch = nullptr;
  pkv_snapshot closed_snapshot = nullptr;
  pkv_compute closed_compute = nullptr;

  // The place of the memory of arguments: anywhere, directly before inaccessible memory, or at the
  // beginning of 64 GiB of zeros, so that a larger size may be given.
  enum class Rooms { anywhere, exact, vast };
  static inline Rooms rooms_lie = Rooms::anywhere;
  // What the layers of later worlds' caches keep.
  static inline Layers layers_keep = Layers::plain;

  // Returns memory for arguments. remember() keeps a copy of all of it.
  unsigned char* room(size_t size, unsigned char fill = 0xA5);
  template <class T>
  T* keep(const T& value) {
    return keep_list(std::vector<T>{value});
  }
  template <class T>
  T* keep_list(const std::vector<T>& values) {
    unsigned char* const at = room(values.size() * sizeof(T));
    std::copy_n(reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(T),
                at);
    return reinterpret_cast<T*>(at);
  }
  // Returns rows with numbers in them.
  pkv_tensor rows(size_t floats) { return tensor(keep_list(numbers(floats, 1))); }

  // remember() notes the memory of arguments and what the library says about its objects.
  // check_memory() and check_state() fail if any of it differs.
  void remember();
  // Returns the config of a small model in this world's memory.
  ModelConfig make_config(uint64_t capacity) const;
  // Waits until the cache's store has nothing to do.
  void rest();
  void check_memory() const;
  void check_state();
  void validate();

  // Closes everything and checks that all memory and all descriptors came back.
  void close();
  // Closes everything in a forked child. The handles end, but the memory belongs to the parent.
  void close_inherited();

 private:
  struct Region {
    std::shared_ptr<unsigned char> memory;
    size_t size;
    std::vector<unsigned char> before;
  };
  void fill(pkv_session target, size_t tokens, uint64_t seed);
  void write_layers(pkv_batch step, size_t tokens, uint64_t seed);
  void close_some();
  void make_hybrid();
  pkv_store keeping_store();
  void store_some();
  void pin_some();
  std::string state();

  const size_t descriptors_;  // that were open before
  std::vector<Region> regions_;
  std::string state_;
};

// Makes a call whose k-th allocation is refused, and all after it: those of the hooks of a world,
// or of operator new. Returns whether one was refused.
bool refuse(World& world, bool hooks, uint64_t k, const std::function<void()>& call);

// Makes the objects that the library keeps for the whole process now, so that they do not count as
// leaks.
void warm_up();

}  // namespace hostile
