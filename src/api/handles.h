// Handles, which identify objects by an index and a generation, and leases, which keep an object
// from being closed while a call uses it.
//
// The index selects an entry in a table. The entry's atomic word holds the generation and how calls
// use the object now: not at all, several read it, one writes it, or a batch has it. A call that
// writes waits for getters, which are short; in any other conflict one of the calls is refused. So
// a call that reads for long begins as a getter, and becomes a reader once nothing but a lack of
// memory can make it fail. Thus a call that fails its own checks never causes BUSY in others. A
// call that reads a session in a batch leases the batch. One compare-and-swap checks the generation
// and takes the lease. So a stale or forged handle is found before any pointer is followed, and no
// object is closed while a call uses it. Many threads use pools, caches and computes at once, and
// would contend for that word; so these users are counted in stripes (stripes.h) instead. Entries
// and stripes are never freed.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "api/kind.h"
#include "api/stripes.h"

namespace pkv::api {

enum class Access {
  get,    // shared and short: a call that needs exclusive access waits for its end
  write,  // exclusive
  close,  // exclusive, and also allowed in a child that inherited the handle by fork()
  read    // shared, by become_reader() only: a call that needs exclusive access is refused
};

struct HandleEntry;

class Lease {
 public:
  // Waits for getters if the access is exclusive. Users of striped objects are never waited for: a
  // call that closes such an object is refused. Throws INVALID_ARGUMENT (the handle is NULL),
  // STALE_HANDLE, BUSY or WRONG_PROCESS.
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
  // Returns the handle of the object's cache.
  uint64_t parent() const;

  // Lets a getter of an object without stripes work for long: calls that need exclusive access are
  // refused from now on. Throws BUSY if one waits already; the lease is a getter's then.
  void become_reader();
  // Deletes the object, unless it is inherited, and makes the handle stale.
  void destroy() noexcept;
  // Passes this lease of a session on to a batch, which has it until end_batch_hold().
  void give_to_batch(uint64_t batch) noexcept;

 private:
  // For lock_child(): a lease of an entry that is already locked.
  explicit Lease(HandleEntry* locked) noexcept;
  friend void lock_child(uint64_t handle, Kind kind, std::vector<Lease>& leases);
  void* address() const;
  // Returns whether this is a forked child and its parent process created the object. Another
  // thread of the parent may have been changing the object at the fork, so the child retires the
  // handle but does not destroy the object: its memory is kept until the process ends.
  bool inherited() const;
  void retire() noexcept;
  void check(uint64_t word) const;
  void acquire_inherited();
  bool acquire_plain();
  void acquire_striped_shared();
  void acquire_striped_exclusive();
  bool has_striped_users() const;
  bool acquire_through_batch();
  // The entry whose word counts this lease: that of the session, or of its batch.
  HandleEntry& leased() const;

  HandleEntry* entry_;
  uint64_t handle_;
  Access access_;
  uint64_t batch_ = 0;      // the batch that is leased instead of its session; 0 for none
  Stripes::Ticket ticket_;  // for users of objects with stripes: where this one is counted
};

// A handle that is not valid before open(), which cannot fail. Code that makes several handles
// makes all of them before it opens the first, so that the caller gets all or none. A handle that
// is destroyed before it is opened has no effect.
class NewHandle {
 public:
  // parent is the handle of the object's cache, which must be leased, or 0. Throws bad_alloc.
  template <class Object>
  NewHandle(Kind kind, Object* object, uint64_t parent)
      : NewHandle(kind, object, [](void* made) { delete static_cast<Object*>(made); }, parent) {}
  NewHandle(NewHandle&& other) noexcept;
  NewHandle(const NewHandle&) = delete;
  ~NewHandle();
  uint64_t open() noexcept;

 private:
  NewHandle(Kind kind, void* object, void (*destroy)(void* object), uint64_t parent);
  HandleEntry* entry_;
};

// Ends a batch's hold on a session.
void end_batch_hold(uint64_t session) noexcept;

// Leases everything that belongs to a cache, so that the cache can be destroyed: batches, then
// snapshots, then sessions. The caller must have leased the cache for closing; since opening any of
// these needs a lease of the cache, none is opened meanwhile. Throws BUSY, and changes nothing, if
// a call uses one of them.
std::vector<Lease> lock_children(uint64_t parent);

// Returns the kind that the handle claims to have; it may be forged.
Kind handle_kind(uint64_t handle);

// Returns how many handles, of all kinds together, can be open at most.
size_t max_handles();

// Returns the open handles of one kind that belong to a cache, which must be leased. The cost grows
// with the most that this cache had open at once.
std::vector<uint64_t> list_children(uint64_t parent, Kind kind);

}  // namespace pkv::api
