// The C functions that save sessions and snapshots to files and load them (pkv_file_).
#include "engine/file/file.h"

#include <pagedkv/file.h>

#include <algorithm>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/cache/identity.h"

namespace pkv::api {
namespace {

static_assert(sizeof pkv_file_info{}.fingerprint == max_fingerprint_size);

file::FileOptions read_options(const pkv_file_config* config) {
  const pkv_file_config known = read_optional(config, "config");
  check_flag(known.trust_salts, "trust_salts");
  check_flag(known.prefix_index, "prefix_index");
  check_enum(known.durability, "durability");
  return {check_fingerprint(known.fingerprint, known.fingerprint_size),
          check_key(known.secret_key, known.secret_key_size),
          known.prefix_index != 0,
          known.trust_salts != 0,
          known.durability,
          known.max_tokens};
}

// Frozen copies of the sessions and snapshots to save.
class FrozenItems {
 public:
  // All items are checked before any call on one of them is refused.
  FrozenItems(uint64_t cache, size_t n, const pkv_file_item* items) {
    for (size_t i = 0; i < n; i++) for_entry(i, [&] { lease_checked(cache, i, items[i]); });
    for (size_t i = 0; i < n; i++) for_entry(i, [&] { add(cache, i, items[i]); });
  }
  std::span<const file::FrozenSequence> all() const { return frozen_; }

 private:
  static Lease lease_checked(uint64_t cache, size_t i, const pkv_file_item& item) {
    if ((item.session == nullptr) == (item.snapshot == nullptr))
      fail(PKV_INVALID_ARGUMENT,
           "items[%zu]: one of session and snapshot must be NULL, and the other not", i);
    Lease lease(item.session != nullptr ? bits(item.session) : bits(item.snapshot),
                item.session != nullptr ? Kind::session : Kind::snapshot, Access::get);
    if (lease.parent() != cache) fail(PKV_WRONG_CACHE, "items[%zu] belongs to another cache", i);
    if (item.session != nullptr) lease.object<Session>().check_idle("save");
    return lease;
  }
  void add(uint64_t cache, size_t i, const pkv_file_item& item) {
    Lease lease = lease_checked(cache, i, item);
    lease.become_reader();
    frozen_.push_back(item.session != nullptr ? file::freeze(lease.object<Session>(), item.label)
                                              : file::freeze(lease.object<Snapshot>(), item.label));
  }

  std::vector<file::FrozenSequence> frozen_;
};

// Makes handles that cannot be used until they are opened.
std::vector<NewHandle> prepare_handles(std::span<const std::unique_ptr<Session>> sessions,
                                       uint64_t cache) {
  std::vector<NewHandle> handles;
  handles.reserve(sessions.size());
  for (const std::unique_ptr<Session>& session : sessions)
    handles.emplace_back(Kind::session, session.get(), cache);
  return handles;
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_file_save(pkv_cache handle, size_t n, const pkv_file_item* items,
                         const pkv_file_config* config, const pkv_stream* to, uint64_t* bytes) {
  uint64_t size = 0;
  const pkv_status status = guarded([&] {
    const CacheLease cache(handle);
    check_list(items, n, "items");
    const file::FileOptions options = read_options(config);
    const pkv_stream stream = read_struct(to, "stream");
    // Opened first, so that a stream that cannot be opened makes no other call fail.
    const std::unique_ptr<file::Sink> sink = file::open_sink(stream, options.durability);
    const FrozenItems frozen(bits(handle), n, items);
    file::save(*cache, frozen.all(), options, *sink, &size);
  });
  if (bytes != nullptr && (status == PKV_OK || status == PKV_BUFFER_TOO_SMALL)) *bytes = size;
  return status;
}

pkv_status pkv_file_load(pkv_cache handle, const pkv_file_config* config, const pkv_stream* from,
                         size_t capacity, pkv_session* sessions, uint64_t* labels, size_t* count) {
  size_t found = 0;
  const pkv_status status = guarded([&] {
    const CacheLease cache(handle);
    check_list(sessions, capacity, "sessions");
    check_pointer(count, "count");
    const file::FileOptions options = read_options(config);
    const std::unique_ptr<file::Source> source = file::open_source(read_struct(from, "stream"));
    file::LoadedSessions loaded(*cache, options, *source, capacity, &found);
    std::vector<NewHandle> handles = prepare_handles(loaded.sessions, bits(handle));
    // Nothing below can fail. A session is not changed after its handle is open, because from then
    // on another thread may find and use it.
    loaded.publish();
    for (size_t i = 0; i < handles.size(); i++) {
      sessions[i] = handle_from<pkv_session>(handles[i].open());
      loaded.sessions[i].release();
    }
    if (labels != nullptr) std::copy(loaded.labels.begin(), loaded.labels.end(), labels);
  });
  if (status == PKV_OK || status == PKV_BUFFER_TOO_SMALL) *count = found;
  return status;
}

pkv_status pkv_file_inspect(const pkv_file_config* config, const pkv_stream* from,
                            pkv_file_info* out) {
  return guarded([&] {
    const file::FileOptions options = read_options(config);
    check_pointer(out, "out");
    const std::unique_ptr<file::Source> source = file::open_source(read_struct(from, "stream"));
    const file::OpenedFile opening(options, *source);
    const file::Tables& tables = opening.tables;
    if (options.fingerprint.data() != nullptr) opening.check_fingerprint(options.fingerprint);
    pkv_file_info info{};
    info.version = file::format_version;
    info.bytes = file::file_bytes(opening.reader.header());
    info.kv_bytes = opening.sizes.kv;
    info.sessions = tables.sessions.size();
    for (const file::SavedSession& session : tables.sessions) info.tokens += session.length;
    for (const file::Chain& chain : tables.chains)
      info.stored_tokens +=
          std::count(chain.has_kv.begin(), chain.has_kv.end(), 1) > 0 && tables.has_kv
              ? chain.tokens.size()
              : 0;
    info.prefix_entries = tables.entries.size();
    info.block_size = tables.block_size;
    info.group_count = static_cast<uint32_t>(tables.groups.size());
    for (const file::SavedGroup& group : tables.groups) info.layers += group.shape.layers;
    info.has_kv = tables.has_kv ? 1 : 0;
    info.encrypted = opening.reader.header().encrypted ? 1 : 0;
    info.fingerprint_size = static_cast<uint32_t>(tables.fingerprint.size());
    std::copy(tables.fingerprint.begin(), tables.fingerprint.end(), info.fingerprint);
    fill_struct(out, info, "out");
  });
}
