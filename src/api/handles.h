// Handles: an index and a generation that lead to an object, and leases that keep the object while
// a call uses it.
//
// A slot's word holds its generation and who uses it now: nobody, several readers, one writer, or a
// batch. One compare-and-swap checks the generation and takes the lease, so that a stale or forged
// handle is told before anything is followed, and an object cannot be closed under a call. Readers
// of a pool or a cache do not write to the word: each thread counts itself in a stripe of the slot.
// Slots are never freed, nor are their stripes. Nothing here takes a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace pkv::api {

enum class Kind : uint8_t { pool = 1, cache, session, batch, snapshot };

const char* kind_name(Kind kind);

enum class Access {
  read,   // beside other readers; a session in a batch is reached through the batch's own lease
  write,  // alone
  close   // alone, and also in a child that inherited the handle by fork()
};

struct Slot;

class Lease {
 public:
  // Throws INVALID_ARGUMENT (NULL), STALE_HANDLE, BUSY, FORKED.
  Lease(uint64_t handle, Kind kind, Access access);
  ~Lease();
  Lease(Lease&& other) noexcept;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  template <class Object>
  Object& object() const {
    return *static_cast<Object*>(address());
  }
  uint64_t handle() const { return handle_; }
  uint64_t parent() const;  // handle of the cache it belongs to
  // True in a child of the process that made the object. A thread that fork() left behind may have
  // been in the middle of changing it, so it can be retired but not destroyed: its memory stays
  // until the process ends.
  bool inherited() const;

  // Ends the handle: it is stale from now on. The object is the caller's to delete.
  void retire() noexcept;
  // The lease of a session turns into the hold of a batch, until unhold().
  void hold_for(uint64_t batch) noexcept;

 private:
  explicit Lease(Slot* locked) noexcept;  // of lock_children()
  friend void lock_child(uint64_t handle, Kind kind, std::vector<Lease>& leases);
  void* address() const;
  void check(uint64_t word) const;
  void take_inherited();
  bool acquire();
  void enter();
  void shut_out();
  bool has_readers() const;
  bool read_through_batch();

  Slot* slot_;
  uint64_t handle_;
  Access access_;
  uint64_t through_ = 0;                    // the batch whose lease stands for this one
  std::atomic<uint64_t>* count_ = nullptr;  // of the stripe this reader is counted in
};

// A handle to be. Nobody can use or find it before open(), which cannot fail: so whoever has
// several objects to hand out finishes all of them first. One that is dropped before that never
// was.
class NewHandle {
 public:
  // parent: the handle of the object's cache, 0 for none. Throws bad_alloc.
  NewHandle(Kind kind, void* object, uint64_t parent);
  NewHandle(NewHandle&& other) noexcept;
  NewHandle(const NewHandle&) = delete;
  ~NewHandle();
  uint64_t open() noexcept;

 private:
  Slot* slot_;
};

// A new handle for an object, open at once. Throws bad_alloc.
uint64_t add_handle(Kind kind, void* object, uint64_t parent);

// Ends the hold of a batch on a session.
void unhold(uint64_t session) noexcept;

// Leases of everything that belongs to a cache, for its destruction: batches, then snapshots, then
// sessions. The cache itself is leased for closing, so it gets no more of them: whoever makes one
// leases the cache, too. Throws BUSY where a call is under way, with everything as it was.
std::vector<Lease> lock_children(uint64_t parent);

Kind handle_kind(uint64_t handle);

// How many handles can be open at once, of all kinds.
size_t most_handles();

// The handles of one kind that belong to a cache now.
std::vector<uint64_t> list_children(uint64_t parent, Kind kind);

}  // namespace pkv::api
