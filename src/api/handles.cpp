// How leases of entries are taken and released, and how handles are opened and retired.
#include "api/handles.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "api/handle_table.h"
#include "base/os.h"
#include "base/status.h"

namespace pkv::api {

namespace {

uint64_t handle_of(const HandleEntry& entry, uint64_t word) {
  return generation_of(word) << 32 |
         static_cast<uint64_t>(entry.kind.load(std::memory_order_relaxed)) << kind_shift |
         entry.index;
}

// Finds the entry that a handle names. Throws if the handle is NULL, or cannot be one of this kind.
HandleEntry& find(uint64_t handle, Kind kind) {
  if (handle == 0) fail(PKV_INVALID_ARGUMENT, "the %s handle is NULL", kind_name(kind));
  HandleEntry* const entry =
      handle_kind(handle) == kind ? handle_table().at(handle & no_entry) : nullptr;
  if (entry == nullptr || (handle >> index_bits & 0xF) != 0)
    fail(PKV_STALE_HANDLE, "%#llx is not a handle of a %s", llu(handle), kind_name(kind));
  return *entry;
}

[[noreturn]] void fail_stale(uint64_t handle) {
  fail(PKV_STALE_HANDLE, "the %s %#llx was closed, or never opened", kind_name(handle_kind(handle)),
       llu(handle));
}

[[noreturn]] void fail_forked(uint64_t handle) {
  fail(PKV_WRONG_PROCESS,
       "the %s %#llx belongs to the parent process; after fork() the child can only close it",
       kind_name(handle_kind(handle)), llu(handle));
}

[[noreturn]] void fail_busy(uint64_t handle) {
  fail(PKV_BUSY, "another call uses the %s %#llx", kind_name(handle_kind(handle)), llu(handle));
}

// Ends an exclusive lease or a batch's hold. While the word has such a mark, and once
// wait_for_getters() has returned, only the holder changes it, so a plain store suffices. Release:
// makes what was done to the object visible to its next user.
void clear_mark(HandleEntry& entry, uint64_t mark) noexcept {
  entry.word.store(entry.word.load(std::memory_order_relaxed) & ~mark, std::memory_order_release);
}

bool is_shared(Access access) { return access == Access::get || access == Access::read; }

// Returns whether no further getter, or reader, can be counted.
bool is_full(uint64_t word, uint64_t count) { return (word & count) == count; }

// Waits until no getter has a lease. The entry is marked as written, so none can take another. Not
// inline, so that leases stay short code.
[[gnu::noinline]] void wait_for_getters(const HandleEntry& entry) noexcept {
  constexpr int looks_before_sleep = 100;  // beyond, a getter's thread may need this processor
  for (int looks = 0; (entry.word.load(std::memory_order_acquire) & getters) != 0; looks++)
    looks < looks_before_sleep ? std::this_thread::yield()
                               : std::this_thread::sleep_for(std::chrono::microseconds(20));
}

// Makes stripes whose counts are 0. Returns false if memory is refused.
bool prepare_stripes(HandleEntry& entry) {
  Stripes::prepare();
  Stripes* stripes = entry.stripes.load(std::memory_order_relaxed);
  if (stripes == nullptr) {
    stripes = new (std::nothrow) Stripes;
    entry.stripes.store(stripes, std::memory_order_release);
  } else if (entry.epoch.load(std::memory_order_relaxed) != os::fork_epoch()) {
    // Threads that were counted before fork() do not exist in this process.
    stripes->clear();
  }
  return stripes != nullptr;
}

}  // namespace

size_t max_handles() { return size_t{max_chunks} * chunk_entries; }

Kind handle_kind(uint64_t handle) { return static_cast<Kind>(handle >> kind_shift & 0xF); }

Lease::Lease(uint64_t handle, Kind kind, Access access)
    : entry_(&find(handle, kind)), handle_(handle), access_(access) {
  if (inherited()) {
    acquire_inherited();
    return;
  }
  if (is_striped(kind)) {
    is_shared(access) ? acquire_striped_shared() : acquire_striped_exclusive();
    return;
  }
  while (!acquire_plain()) {
    if (!is_shared(access))
      fail(PKV_BUSY, "the %s %#llx is in a batch", kind_name(kind), llu(handle));
    if (acquire_through_batch()) return;
  }
}

Lease::Lease(HandleEntry* locked) noexcept
    : entry_(locked),
      handle_(handle_of(*locked, locked->word.load(std::memory_order_relaxed))),
      access_(Access::write) {}

// Throws if an entry with this word is not the handle's, or if another process created the object.
void Lease::check(uint64_t word) const {
  // The kind bits of a forged handle may differ from the entry's.
  if (generation_of(word) != handle_ >> 32 || (word & live) == 0 ||
      entry_->kind.load(std::memory_order_relaxed) != handle_kind(handle_))
    fail_stale(handle_);
  if (inherited() && access_ != Access::close) fail_forked(handle_);
}

// Takes a lease to close an inherited object. The threads that held leases do not exist in this
// process. But two threads of this process may close the same handle at once: one of them wins.
void Lease::acquire_inherited() {
  check(entry_->word.load(std::memory_order_acquire));
  const uint64_t now = os::fork_epoch();
  uint64_t before = entry_->closed_in.load(std::memory_order_relaxed);
  if (before == now ||
      !entry_->closed_in.compare_exchange_strong(before, now, std::memory_order_acquire))
    fail_busy(handle_);
  entry_->word.store((handle_ >> 32) << 32 | live | written, std::memory_order_relaxed);
}

// Takes a lease of an object without stripes. Returns false if a batch holds it.
bool Lease::acquire_plain() {
  const bool shared = is_shared(access_);
  // Acquire: makes the entry's fields, and what the last writer did to the object, visible.
  uint64_t word = entry_->word.load(std::memory_order_acquire);
  do {
    check(word);
    if (word & held) return false;
    if ((word & written) || (shared ? is_full(word, getters) : (word & readers) != 0))
      fail_busy(handle_);
  } while (!entry_->word.compare_exchange_weak(word, shared ? word + one_getter : word | written,
                                               std::memory_order_acquire));
  if (!shared && (word & getters) != 0) wait_for_getters(*entry_);
  return true;
}

// Leases of striped objects. A user counts itself in a stripe and then reads the word; a call
// that wants exclusive access marks the word and then reads the counts. At least one of them sees
// the other (stripes.h says why). If both do, both calls are refused.
void Lease::acquire_striped_shared() {
  // Checked first, so that a stale handle does not touch the counts of the entry's next object.
  check(entry_->word.load(std::memory_order_acquire));
  Stripes* const stripes = entry_->stripes.load(std::memory_order_acquire);
  if (stripes == nullptr) fail_stale(handle_);
  const Stripes::Ticket ticket = stripes->enter();
  const uint64_t word = entry_->word.load(std::memory_order_seq_cst);
  if (word == ((handle_ >> 32) << 32 | live)) {
    ticket_ = ticket;
    return;
  }
  Stripes::leave(ticket);
  check(word);
  fail_busy(handle_);
}

void Lease::acquire_striped_exclusive() {
  uint64_t word = entry_->word.load(std::memory_order_acquire);
  do {
    check(word);
    // Checked before the mark is set: if there are users already, the mark would only refuse
    // others in vain.
    if ((word & written) || has_striped_users()) fail_busy(handle_);
  } while (!entry_->word.compare_exchange_weak(word, word | written, std::memory_order_seq_cst,
                                               std::memory_order_acquire));
  Stripes::make_visible();
  if (!has_striped_users()) return;
  entry_->word.fetch_and(~written, std::memory_order_release);
  fail_busy(handle_);
}

bool Lease::has_striped_users() const {
  const Stripes* const stripes = entry_->stripes.load(std::memory_order_acquire);
  return stripes != nullptr && stripes->any();
}

// Reads a session in a batch by leasing the batch, because the calls on the batch change the
// session. Returns false if the batch ended meanwhile.
bool Lease::acquire_through_batch() {
  const uint64_t batch = entry_->holder.load(std::memory_order_acquire);
  try {
    Lease lease(batch, Kind::batch, access_);
    const uint64_t word = entry_->word.load(std::memory_order_acquire);
    if (generation_of(word) != handle_ >> 32 || (word & held) == 0 ||
        entry_->holder.load(std::memory_order_relaxed) != batch)
      return false;
    batch_ = batch;
    lease.entry_ = nullptr;  // this object's destructor ends the lease of the batch
    return true;
  } catch (const Error& error) {
    if (error.status == PKV_STALE_HANDLE) return false;
    fail(PKV_BUSY, "the session %#llx is in a batch that another call uses", llu(handle_));
  }
}

Lease::Lease(Lease&& other) noexcept
    : entry_(std::exchange(other.entry_, nullptr)),
      handle_(other.handle_),
      access_(other.access_),
      batch_(other.batch_),
      ticket_(other.ticket_) {}

HandleEntry& Lease::leased() const {
  return batch_ != 0 ? *handle_table().at(batch_ & no_entry) : *entry_;
}

void Lease::become_reader() {
  std::atomic<uint64_t>& state = leased().word;
  uint64_t word = state.load(std::memory_order_relaxed);
  do {
    if ((word & written) || is_full(word, readers)) fail_busy(handle_);
  } while (!state.compare_exchange_weak(word, word - one_getter + one_reader,
                                        std::memory_order_relaxed));
  access_ = Access::read;
}

Lease::~Lease() {
  if (entry_ == nullptr) return;
  if (ticket_.calls != nullptr) {
    Stripes::leave(ticket_);
    return;
  }
  // Release: makes what this call did to the object visible to the next one.
  if (is_shared(access_))
    leased().word.fetch_sub(access_ == Access::get ? one_getter : one_reader,
                            std::memory_order_release);
  else
    clear_mark(leased(), written);
  if (inherited()) entry_->closed_in.store(0, std::memory_order_release);
}

void* Lease::address() const { return entry_->object; }

bool Lease::inherited() const {
  return entry_->epoch.load(std::memory_order_relaxed) != os::fork_epoch();
}

uint64_t Lease::parent() const { return entry_->parent; }

// Makes the handle stale.
void Lease::retire() noexcept {
  HandleEntry* const entry = std::exchange(entry_, nullptr);
  // Release: a thread that destroys the cache and no longer finds this child sees the changes that
  // closing it made to the cache.
  entry->word.store(((handle_ >> 32) + 1) << 32, std::memory_order_release);
  handle_table().give_back(entry);
}

void Lease::destroy() noexcept {
  if (!inherited()) entry_->destroy(entry_->object);
  retire();
}

void Lease::give_to_batch(uint64_t batch) noexcept {
  HandleEntry* const entry = std::exchange(entry_, nullptr);
  entry->holder.store(batch, std::memory_order_relaxed);
  entry->word.store((handle_ >> 32) << 32 | live | held, std::memory_order_release);
}

NewHandle::NewHandle(Kind kind, void* object, void (*destroy)(void* object), uint64_t parent)
    : entry_(handle_table().take(is_striped(kind), parent)) {
  if (is_striped(kind) && !prepare_stripes(*entry_)) {
    handle_table().give_back(entry_);
    throw std::bad_alloc();
  }
  entry_->kind.store(kind, std::memory_order_relaxed);
  entry_->object = object;
  entry_->destroy = destroy;
  entry_->epoch.store(os::fork_epoch(), std::memory_order_relaxed);
}

NewHandle::NewHandle(NewHandle&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}

NewHandle::~NewHandle() {
  if (entry_ != nullptr) handle_table().give_back(entry_);
}

uint64_t NewHandle::open() noexcept {
  HandleEntry* const entry = std::exchange(entry_, nullptr);
  const uint64_t word = entry->word.load(std::memory_order_relaxed) | live;
  // Release: a thread that finds the handle sees everything that was done to the object.
  entry->word.store(word, std::memory_order_release);
  return handle_of(*entry, word);
}

void end_batch_hold(uint64_t session) noexcept {
  clear_mark(*handle_table().at(session & no_entry), held);
}

std::vector<uint64_t> list_children(uint64_t parent, Kind kind) {
  std::vector<uint64_t> result;
  handle_table().for_each_child(parent, [&](HandleEntry& entry) {
    const uint64_t word = entry.word.load(std::memory_order_acquire);
    if ((word & live) && entry.kind.load(std::memory_order_relaxed) == kind)
      result.push_back(handle_of(entry, word));
  });
  return result;
}

// Leases one child for its destruction, unless it was closed meanwhile.
void lock_child(uint64_t handle, Kind kind, std::vector<Lease>& leases) {
  HandleEntry* const entry = handle_table().at(handle & no_entry);
  const uint64_t word = entry->word.load(std::memory_order_acquire);
  const bool own = entry->epoch.load(std::memory_order_relaxed) == os::fork_epoch();
  if (own && kind == Kind::session && (word & held) && generation_of(word) == handle >> 32) {
    // Its batch is locked already, so no other call reaches the session.
    entry->word.store((handle >> 32) << 32 | live | held | written, std::memory_order_release);
    leases.push_back(Lease(entry));
    return;
  }
  try {
    leases.emplace_back(handle, kind, Access::close);
  } catch (const Error& error) {
    if (error.status != PKV_STALE_HANDLE) throw;
  }
}

std::vector<Lease> lock_children(uint64_t parent) {
  std::vector<Lease> leases;
  for (const Kind kind : children_of_cache)
    for (const uint64_t handle : list_children(parent, kind)) lock_child(handle, kind, leases);
  return leases;
}

}  // namespace pkv::api
