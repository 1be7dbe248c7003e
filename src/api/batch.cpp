// The C functions of batches (pkv_batch_).
#include "engine/step/batch.h"

#include <pagedkv/batch.h>

#include <algorithm>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/cache/cache.h"
#include "engine/step/victims.h"

namespace pkv::api {
namespace {

// The handles of the sessions that a batch holds. The destructor lets other calls use these
// sessions again. If the batch failed to begin, this has no effect: the sessions were never handed
// over.
struct HeldSessions {
  ~HeldSessions() {
    for (const uint64_t session : handles) end_batch_hold(session);
  }
  const std::vector<uint64_t> handles;
};

// The object behind a batch handle. A batch that was not committed is aborted when it ends.
struct BatchObject {
  BatchObject(Cache& cache, std::span<Session* const> objects, std::span<const uint32_t> new_tokens,
              std::vector<uint64_t> handles)
      : sessions{std::move(handles)},
        batch(cache, objects, new_tokens),
        counted(cache.counters().batches) {}
  const HeldSessions sessions;  // before the batch, so that it ends after the batch
  Batch batch;
  const Counted counted;
};

class BatchLease : public LeaseOf<pkv_batch, Kind::batch, BatchObject> {
 public:
  using LeaseOf::LeaseOf;
  Batch* operator->() const { return &(**this).batch; }
};

// Explains why session i of a list could not be leased.
[[noreturn]] void fail_lease(std::span<const pkv_session> sessions, size_t i, Error error) {
  const auto earlier = sessions.first(i);
  const auto same = std::find(earlier.begin(), earlier.end(), sessions[i]);
  if (error.status == PKV_BUSY && same != earlier.end())
    fail(entry_details(PKV_INVALID_ARGUMENT, i), "sessions %zu and %zu of the list are the same",
         static_cast<size_t>(same - earlier.begin()), i);
  error.index = i;
  throw error;
}

// Leases all sessions of a list for writing, or none. A session can be in the list only once, so a
// list of more sessions than can be open is refused before memory is taken for it.
std::vector<Lease> lease_sessions(pkv_cache cache, std::span<const pkv_session> sessions) {
  if (sessions.size() > max_handles())
    fail(PKV_BATCH_TOO_LARGE, "a list of %zu sessions; at most %zu can be open", sessions.size(),
         max_handles());
  std::vector<Lease> leases;
  leases.reserve(sessions.size());
  try {
    for (const pkv_session session : sessions) {
      leases.emplace_back(bits(session), Kind::session, Access::write);
      if (leases.back().parent() != bits(cache))
        fail(entry_details(PKV_WRONG_CACHE, leases.size() - 1),
             "session %zu of the list belongs to another cache", leases.size() - 1);
    }
  } catch (const Error& error) {
    if (error.status == PKV_WRONG_CACHE) throw;
    fail_lease(sessions, leases.size(), error);
  }
  return leases;
}

// Checks a list with an entry for each row or session of a batch, or none.
template <class Element>
void check_optional_list(const Element* list, size_t n, size_t wanted, const char* what,
                         const char* name) {
  check_list(list, n, name);
  if (list != nullptr && n != wanted)
    fail(PKV_INVALID_ARGUMENT, "%s has %zu entries; the batch has %zu %s", name, n, wanted, what);
}

// Leases all other sessions of the cache that are not in use as a getter does: calls that would
// change them wait while victims are chosen.
void lease_others(uint64_t cache, std::vector<Lease>& leases) {
  const std::vector<uint64_t> handles = list_children(cache, Kind::session);
  leases.reserve(leases.size() + handles.size());  // so that the loop throws only Errors
  for (const uint64_t handle : handles) {
    try {
      leases.emplace_back(handle, Kind::session, Access::get);
      // It cannot be a victim, and the lease would make the calls on its batch wait.
      if (leases.back().object<Session>().in_step()) leases.pop_back();
    } catch (const Error&) {
      // The session is in use, is in the list, or was closed meanwhile.
    }
  }
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_batch_begin(pkv_cache cache, size_t n, const pkv_session* sessions,
                           const uint32_t* new_tokens, pkv_batch* out) {
  return guarded([&] {
    const CacheLease lease(cache);
    check_list(sessions, n, "sessions");
    check_list(new_tokens, n, "new_tokens");
    check_pointer(out, "out");
    std::vector<Lease> leases = lease_sessions(cache, std::span(sessions, n));
    std::vector<Session*> objects;
    std::vector<uint64_t> handles;
    objects.reserve(n);
    handles.reserve(n);
    for (const Lease& session : leases) {
      objects.push_back(&session.object<Session>());
      handles.push_back(session.handle());
    }
    auto object = std::make_unique<BatchObject>(*lease, objects, std::span(new_tokens, n),
                                                std::move(handles));
    const pkv_batch batch = BatchLease::make(std::move(object), bits(cache));
    for (Lease& session : leases) session.give_to_batch(bits(batch));
    *out = batch;
  });
}

pkv_status pkv_batch_choose_victims(pkv_cache cache, size_t n, const pkv_session* sessions,
                                    const uint32_t* new_tokens, size_t capacity,
                                    pkv_session* victims, size_t* victim_count) {
  return guarded([&] {
    const CacheLease lease(cache);
    check_list(sessions, n, "sessions");
    check_list(new_tokens, n, "new_tokens");
    check_list(victims, capacity, "victims");
    check_pointer(victim_count, "victim_count");
    std::vector<Lease> leases = lease_sessions(cache, std::span(sessions, n));
    lease_others(bits(cache), leases);
    std::vector<Session*> objects;
    for (const Lease& session : leases) objects.push_back(&session.object<Session>());
    const std::vector<size_t> chosen = choose_victims(*lease, objects, std::span(new_tokens, n));
    check_capacity(capacity, chosen.size(), victim_count, "victims");
    for (size_t i = 0; i < chosen.size(); i++)
      victims[i] = handle_from<pkv_session>(leases[chosen[i]].handle());
  });
}

pkv_status pkv_batch_set_first_rows(pkv_batch handle, size_t n, const uint32_t* first_rows) {
  return guarded([&] {
    const BatchLease batch(handle, Access::write);
    check_optional_list(first_rows, n, batch->sessions(), "sessions", "first_rows");
    batch->set_first_rows(first_rows);
  });
}

pkv_status pkv_batch_write(pkv_batch handle, uint32_t layer, const pkv_tensor* k,
                           const pkv_tensor* v) {
  return guarded([&] { BatchLease(handle, Access::write)->write(layer, k, v); });
}

pkv_status pkv_batch_attend(pkv_batch handle, uint32_t layer, const pkv_attention_params* params,
                            const pkv_tensor* q, const pkv_tensor* out,
                            const pkv_attention_outputs* outputs) {
  return guarded(
      [&] { BatchLease(handle, Access::write)->attend(layer, params, q, out, outputs); });
}

pkv_status pkv_batch_commit(pkv_batch handle, size_t n, const int32_t* tokens) {
  return guarded([&] {
    BatchLease batch(handle, Access::write);
    check_optional_list(tokens, n, batch->rows(), "rows", "tokens");
    batch->commit(tokens);
    batch.destroy();
  });
}

pkv_status pkv_batch_accept(pkv_batch handle, size_t i, size_t n, const uint32_t* kept) {
  return guarded([&] {
    const BatchLease batch(handle, Access::write);
    check_list(kept, n, "kept");
    batch->accept(i, std::span(kept, n));
  });
}

pkv_status pkv_batch_abort(pkv_batch handle) {
  return guarded([&] { BatchLease::close(handle); });
}

pkv_status pkv_batch_get_slot_mapping(pkv_batch handle, uint32_t group, size_t capacity,
                                      int64_t* slots, size_t* count) {
  return guarded([&] {
    const BatchLease batch(handle, Access::get);
    check_list(slots, capacity, "slots");
    check_pointer(count, "count");
    check_capacity(capacity, batch->slot_mapping(group, std::span(slots, capacity)), count,
                   "slot mapping");
  });
}

pkv_status pkv_batch_get_block_copies(pkv_batch handle, uint32_t group, size_t capacity,
                                      uint32_t* from, uint32_t* to, size_t* count) {
  return guarded([&] {
    const BatchLease batch(handle, Access::get);
    check_list(from, capacity, "from");
    check_list(to, capacity, "to");
    check_pointer(count, "count");
    check_capacity(capacity,
                   batch->block_copies(group, std::span(from, capacity), std::span(to, capacity)),
                   count, "block copies");
  });
}

pkv_status pkv_batch_get_states(pkv_batch handle, uint32_t layer, const void** before,
                                size_t capacity, void** after, size_t* count) {
  return guarded([&] {
    const BatchLease batch(handle, Access::get);
    check_pointer(before, "before");
    check_list(after, capacity, "after");
    check_pointer(count, "count");
    check_capacity(capacity, batch->states(layer, before, std::span(after, capacity)), count,
                   "states");
  });
}

pkv_status pkv_batch_get_state_blocks(pkv_batch handle, uint32_t group, uint32_t* before,
                                      uint32_t* indptr, size_t capacity, uint32_t* tokens,
                                      uint32_t* after, size_t* count) {
  return guarded([&] {
    const BatchLease batch(handle, Access::get);
    check_pointer(indptr, "indptr");
    check_list(tokens, capacity, "tokens");
    check_pointer(count, "count");
    const StateBlocks lists = {before, indptr, tokens, after, capacity};
    check_capacity(capacity, batch->state_blocks(group, lists), count, "blocks of states");
  });
}

pkv_status pkv_batch_get_kv_indices(pkv_batch handle, uint32_t group, pkv_index_unit unit,
                                    uint32_t* indptr, size_t capacity, uint32_t* indices,
                                    size_t* count, uint32_t* last_block_length) {
  return guarded([&] {
    const BatchLease batch(handle, Access::get);
    check_pointer(indptr, "indptr");
    check_list(indices, capacity, "indices");
    check_pointer(count, "count");
    check_enum(unit, "unit");
    const size_t needed =
        batch->kv_indices(group, unit, indptr, std::span(indices, capacity), last_block_length);
    check_capacity(capacity, needed, count, "KV indices");
  });
}
