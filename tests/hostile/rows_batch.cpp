// The rows of batch.h.
#include "matrix.h"

namespace hostile {

namespace {

// The list becomes the world's session and another one.
Change followed_by(pkv_session World::* other) {
  return [other](World& world, Values& values) {
    values[1] = 2;
    values[2] = bits(world.keep_list(std::vector{world.session, world.*other}));
  };
}

Change new_tokens(uint32_t n) {
  return [n](World& world, Values& values) { values[3] = bits(world.keep(n)); };
}

// Makes a session in a list.
Arg session_list() {
  Arg session = handle(Handle::session);
  Arg list{[](World& world) { return bits(world.keep(world.session)); }, {}, Handle::session};
  list.misuses.push_back({"NULL", [](World&, uint64_t& value) { value = 0; }, invalid});
  for (const Misuse& misuse : session.misuses)
    list.misuses.push_back({"entry: " + misuse.name,
                            [misuse](World& world, uint64_t& value) {
                              misuse.apply(world, *reinterpret_cast<uint64_t*>(value));
                            },
                            misuse.wanted});
  return list;
}

// Makes the cases that pkv_batch_begin and pkv_batch_choose_victims share.
std::vector<Case> list_cases() {
  return {{"no session", set(1, 0), fine},
          {"no session, NULL",
           [](World&, Values& values) { values[1] = values[2] = values[3] = 0; }, fine},
          {"count SIZE_MAX", set(1, SIZE_MAX), overflow},
          {"count 2^61", set(1, size_t{1} << 61), overflow},
          {"count 2^60", set(1, size_t{1} << 60), overflow},
          {"count 2^32", set(1, size_t{1} << 32), {PKV_BATCH_TOO_LARGE}},
          {"count 2^22 + 1", set(1, (size_t{1} << 22) + 1), {PKV_BATCH_TOO_LARGE}},
          {"twice in the list", followed_by(&World::session), invalid},
          {"in another batch", followed_by(&World::stepping), busy},
          {"of another cache", followed_by(&World::foreign), {PKV_WRONG_CACHE}},
          {"the other cache",
           [](World& world, Values& values) { values[0] = bits(world.other); },
           {PKV_WRONG_CACHE}},
          {"a closed one", followed_by(&World::closed_session), stale},
          {"a suspended one",
           [](World& world, Values&) { OK(pkv_session_suspend(world.session)); },
           {PKV_SUSPENDED}},
          {"no new tokens", new_tokens(0), fine},
          {"more than there is", new_tokens(1005), too_large},
          {"UINT32_MAX tokens", new_tokens(UINT32_MAX), {PKV_TOO_LARGE, PKV_OVERFLOW}}};
}

Function begin_row() {
  Function row{
      ROW(pkv_batch_begin),
      {handle(Handle::cache), number(1), session_list(), in<uint32_t>({2}), out<pkv_batch>()}};
  row.undo = [](World&, const Values& values) {
    OK(pkv_batch_abort(*reinterpret_cast<pkv_batch*>(values[4])));
  };
  row.cases = list_cases();
  return row;
}

Function victims_row() {
  Function row{ROW(pkv_batch_choose_victims),
               {handle(Handle::cache), number(1), session_list(), in<uint32_t>({2}), number(8),
                out<pkv_session>(8), out<size_t>()}};
  row.cases = list_cases();
  row.cases.push_back({"capacity SIZE_MAX", set(4, SIZE_MAX), overflow});
  row.cases.push_back({"no list, none needed", set(4, 0, 5, 0), fine});
  row.cases.push_back({"not enough even then", new_tokens(1000), {PKV_OUT_OF_BLOCKS}});
  return row;
}

Change kept(std::vector<uint32_t> list) {
  return [list](World& world, Values& values) {
    values[2] = list.size();
    values[3] = bits(world.keep_list(list));
  };
}

// Begins a step of 3 tokens in a cache whose keys and values are the engine's.
pkv_batch ids_only_batch(World& world) {
  ModelConfig config = world.make_config(4);
  config.storage = PKV_STORAGE_EXTERNAL;
  OK(pkv_cache_create(&config, &world.more_caches.emplace_back()));
  pkv_session opened = nullptr;
  OK(pkv_session_open(world.more_caches.back(), nullptr, &opened));
  const uint32_t three = 3;
  OK(pkv_batch_begin(world.more_caches.back(), 1, &opened, &three,
                     &world.more_batches.emplace_back()));
  return world.more_batches.back();
}

Change kept_of_ids(std::vector<uint32_t> list) {
  return [list](World& world, Values& values) {
    kept(list)(world, values);
    values[0] = bits(ids_only_batch(world));
  };
}

Function accept_row() {
  Function row{ROW(pkv_batch_accept),
               {handle(Handle::batch), index(0, 1), number(2), in<uint32_t>({0, 2})}};
  row.cases = {{"none", set(2, 0), fine},
               {"none, NULL", set(2, 0, 3, 0), fine},
               {"all", kept({0, 1, 2}), fine},
               {"beyond the new tokens", kept({0, 3}), range},
               {"UINT32_MAX", kept({UINT32_MAX}), range},
               {"more than there are", kept({0, 1, 2, 3}), range},
               {"twice the same", kept({1, 1}), invalid},
               {"falling", kept({2, 0}), invalid},
               {"none, of ids only", kept_of_ids({}), fine},
               {"the first, of ids only", kept_of_ids({0, 1}), fine},
               {"not the first, of ids only", kept_of_ids({1}), unsupported},
               {"with a gap, of ids only", kept_of_ids({0, 2}), unsupported},
               {"beyond the new tokens, of ids only", kept_of_ids({1, 3}), range},
               {"falling, of ids only", kept_of_ids({2, 0}), invalid},
               {"count SIZE_MAX", set(2, SIZE_MAX), overflow},
               {"count 2^62", set(2, size_t{1} << 62), overflow}};
  return row;
}

void accept_one(World& world) {
  const uint32_t first = 0;
  OK(pkv_batch_accept(world.batch, 0, 1, &first));
}

// Begins a batch of the world that is not written yet.
pkv_batch fresh_batch(World& world) {
  pkv_batch fresh = nullptr;
  const uint32_t three = 3;
  OK(pkv_batch_begin(world.cache, 1, &world.session, &three, &fresh));
  world.more_batches.push_back(fresh);
  return fresh;
}

// Makes the rows of the calls that list states: of one layer or group, per session and per state.
std::vector<Function> states_rows() {
  Arg batch = handle(Handle::batch);
  batch.value = [](World& world) { return bits(world.recurring); };
  Function states{
      ROW(pkv_batch_get_states),
      {batch, index(1, 2), out<const void*>(), number(3), out<void*>(3), out<size_t>()}};
  Function blocks{ROW(pkv_batch_get_state_blocks),
                  {batch, index(1, 2), optional(out<uint32_t>()), out<uint32_t>(2), number(3),
                   out<uint32_t>(3), optional(out<uint32_t>(3)), out<size_t>()}};
  for (const auto& [row, capacity] : {std::pair{&states, 3}, std::pair{&blocks, 4}})
    row->cases = {{"capacity SIZE_MAX", set(capacity, SIZE_MAX), overflow},
                  {"of keys and values", set(1, 0), unsupported},
                  {"of a cache without states",
                   [](World& world, Values& values) {
                     values[0] = bits(world.batch);
                     values[1] = 0;
                   },
                   unsupported}};
  return {states, blocks};
}

}  // namespace

std::vector<Function> batch_rows() {
  const Arg batch = handle(Handle::batch);
  const Arg layer = index(1, layers), group = index(0, 1);
  const auto params = [](World&) { return made<pkv_attention_params>(); };
  const Case unwritten{"no layer written",
                       [](World& world, Values& values) { values[0] = bits(fresh_batch(world)); },
                       {PKV_INCOMPLETE}};

  Function first_rows{
      ROW(pkv_batch_set_first_rows),
      {batch, number(1), in<uint32_t>({0})},
      {{"a wrong count", set(1, 2), invalid}, {"the default", set(1, 0, 2, 0), fine}}};
  Function write{ROW(pkv_batch_write), {batch, layer, rows(3, kv_heads, 1), rows(3, kv_heads, 1)}};
  Function attend{ROW(pkv_batch_attend),
                  {batch, layer, optional(config_in<pkv_attention_params>(params)),
                   rows(3, query_heads, 1), rows(3, query_heads, 1), attention_outputs()},
                  attention_cases(2)};
  attend.cases.push_back(unwritten);
  Function commit{
      ROW(pkv_batch_commit),
      {batch, number(3), in<int32_t>({1, 2, 3})},
      {unwritten, {"a wrong count", set(1, 1), invalid}, {"no ids", set(1, 0, 2, 0), fine}}};
  const Case accepted{"after accept", [](World& world, Values&) { accept_one(world); }, invalid};
  write.cases.push_back(accepted);
  attend.cases.push_back(accepted);
  Function accept = accept_row();
  accept.cases.push_back(unwritten);
  accept.cases.push_back(
      {"a second time", [](World& world, Values&) { accept_one(world); }, invalid});
  Function abort{ROW(pkv_batch_abort), {handle(Handle::batch, true)}};
  abort.closes = true;
  Function slots{ROW(pkv_batch_get_slot_mapping),
                 {batch, group, number(64), out<int64_t>(64), out<size_t>()}};
  slots.cases = {{"capacity SIZE_MAX", set(2, SIZE_MAX), overflow},
                 {"just enough", set(2, 3), fine}};
  Function indices{ROW(pkv_batch_get_kv_indices),
                   {batch, group, number(PKV_INDEX_SLOTS), out<uint32_t>(2), number(64),
                    out<uint32_t>(64), out<size_t>(), optional(out<uint32_t>())}};
  indices.cases = {{"capacity SIZE_MAX", set(4, SIZE_MAX), overflow},
                   {"just enough", set(4, 8), fine}};
  Function copies{ROW(pkv_batch_get_block_copies),
                  {batch, group, number(64), out<uint32_t>(64), out<uint32_t>(64), out<size_t>()}};
  copies.cases = {{"capacity SIZE_MAX", set(2, SIZE_MAX), overflow}};
  std::vector<Function> rows = {begin_row(), victims_row(), first_rows, write,  attend, accept,
                                commit,      abort,         slots,      copies, indices};
  for (Function& row : states_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace hostile
