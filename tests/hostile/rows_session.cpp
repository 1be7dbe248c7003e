// The rows of session.h and snapshot.h.
#include "matrix.h"

namespace hostile {

namespace {

// A session in a batch is busy for each call that changes it.
Case in_batch() {
  return {"in a batch", [](World& world, Values& values) { values[0] = bits(world.stepping); },
          busy};
}

// Makes cases for the range [first, first + n) of arguments `at` and `at` + 1, where `length`
// positions exist.
std::vector<Case> range_cases(size_t at, uint64_t length) {
  const Wanted outside{PKV_OUT_OF_RANGE, PKV_OVERFLOW};
  return {{"n 0", set(at + 1, 0), fine},
          {"n 0 at the end", set(at, length, at + 1, 0), fine},
          {"n 0 beyond the end", set(at, length + 1, at + 1, 0), outside},
          {"one too many", set(at, 0, at + 1, length + 1), outside},
          {"first UINT64_MAX", set(at, UINT64_MAX), outside},
          {"n SIZE_MAX", set(at + 1, SIZE_MAX), outside},
          {"first + n wraps to 0", set(at, UINT64_MAX - 3, at + 1, 4), outside},
          {"n SIZE_MAX / 4", set(at + 1, SIZE_MAX / 4), outside},
          {"n SIZE_MAX / 8", set(at + 1, SIZE_MAX / 8), outside}};
}

}  // namespace

std::vector<Function> session_rows() {
  const Arg session = handle(Handle::session);
  const Arg layer = index(1, layers), group = index(0, 1);
  const auto config = [](World&) { return made<pkv_session_config>(); };
  Function open{
      ROW(pkv_session_open),
      {handle(Handle::cache), optional(config_in<pkv_session_config>(config)), out<pkv_session>()}};
  const auto with = in_struct<pkv_session_config>(1);
  open.cases = {with(WITH(it.priority = INT32_MIN), fine), with(WITH(it.salt_size = 1), invalid),
                with(WITH(it.salt = &it, it.salt_size = 257), invalid),
                with(WITH(it.salt = &it, it.salt_size = UINT64_MAX), invalid),
                with(WITH(it.salt = "one", it.salt_size = 3), fine)};

  Function close{ROW(pkv_session_close), {handle(Handle::session, true)}, {in_batch()}};
  close.closes = true;

  Function fork{ROW(pkv_session_fork), {session, out<pkv_session>()}, {in_batch()}};
  Function reserve{ROW(pkv_session_reserve), {session, number(200)}, {in_batch()}};
  reserve.add("0", set(1, 0), fine);
  reserve.add("more than is free", set(1, 1010), {PKV_OUT_OF_BLOCKS});
  reserve.add("more than there is", set(1, 1025), too_large);
  reserve.add("UINT64_MAX", set(1, UINT64_MAX), {PKV_TOO_LARGE, PKV_OVERFLOW});
  Function trim{ROW(pkv_session_trim), {session, number(7)}, {in_batch()}};
  trim.add("longer than it is", set(1, 21), range);
  trim.add("UINT64_MAX", set(1, UINT64_MAX), range);
  trim.add("0", set(1, 0), fine);

  Function suspend{ROW(pkv_session_suspend), {session}, {in_batch()}};
  Function resume{
      ROW(pkv_session_resume), {session, out<uint64_t>(), out<uint64_t>()}, {in_batch()}};
  resume.add(
      "suspended", [](World& world, Values&) { OK(pkv_session_suspend(world.session)); }, fine);
  resume.add("suspended, others took the blocks",
             [](World& world, Values&) {
               OK(pkv_session_suspend(world.session));
               const uint64_t free = pool_stats_of(world.cache).free_blocks;
               pkv_session greedy = nullptr;
               OK(pkv_session_open(world.cache, nullptr, &greedy));
               OK(pkv_session_reserve(greedy, free * 16));
             },
             {PKV_OUT_OF_BLOCKS});
  Arg empty_session = session;
  empty_session.value = [](World& world) {
    OK(pkv_session_trim(world.session, 0));
    return bits(world.session);
  };
  Function admit{ROW(pkv_session_admit),
                 {empty_session, number(3), in<int32_t>({1, 2, 3}), number(40), out<uint64_t>()},
                 {in_batch()}};
  admit.add("n 0, NULL", set(1, 0, 2, 0), fine);
  admit.add("n SIZE_MAX", set(1, SIZE_MAX), overflow);
  admit.add("total 0", set(3, 0), fine);
  admit.add("total UINT64_MAX", set(3, UINT64_MAX), {PKV_TOO_LARGE, PKV_OVERFLOW});
  admit.add(
      "not empty", [](World& world, Values&) { OK(pkv_session_reserve(world.session, 5)); },
      invalid);
  admit.add("suspended", [](World& world, Values&) { OK(pkv_session_suspend(world.session)); },
            {PKV_SUSPENDED});
  admit.add("others have the blocks",
            [](World& world, Values&) {
              const uint64_t free = pool_stats_of(world.cache).free_blocks;
              pkv_session greedy = nullptr;
              OK(pkv_session_open(world.cache, nullptr, &greedy));
              OK(pkv_session_reserve(greedy, free * 16));
            },
            {PKV_OUT_OF_BLOCKS});
  admit.add(
      "PKV_UNKNOWN_TOKEN",
      [](World& world, Values& values) {
        values[2] = bits(world.keep_list(std::vector<int32_t>{1, PKV_UNKNOWN_TOKEN, 3}));
      },
      invalid);
  Function set_priority{ROW(pkv_session_set_priority), {session, number(3)}, {in_batch()}};
  set_priority.add("INT32_MIN", set(1, 0x80000000), fine);

  Function set_tokens{ROW(pkv_session_set_tokens),
                      {session, number(2), number(4), in<int32_t>({1, 2, 3, 4})},
                      range_cases(1, 20)};
  set_tokens.cases.push_back(in_batch());
  set_tokens.add(
      "another id than before",
      [](World& world, Values&) {
        const int32_t other_id = 9;
        OK(pkv_session_set_tokens(world.session, 5, 1, &other_id));
      },
      invalid);

  std::vector<Function> readers = {
      {ROW(pkv_session_get_length), {session, out<uint64_t>()}},
      {ROW(pkv_session_get_info), {session, struct_out(sizeof(pkv_session_info))}},
      {ROW(pkv_session_get_tokens),
       {session, number(2), number(4), out<int32_t>(64)},
       range_cases(1, 20)},
      {ROW(pkv_session_get_block_table),
       {session, group, number(64), out<uint32_t>(64), out<size_t>()},
       {{"no list, no room needed",
         [](World& world, Values& values) {
           pkv_session fresh = nullptr;
           OK(pkv_session_open(world.cache, nullptr, &fresh));
           values = {bits(fresh), 0, 0, 0, values[4]};
         },
         fine},
        {"capacity SIZE_MAX", set(2, SIZE_MAX), overflow},
        {"just enough", set(2, 2), fine}}},
      {ROW(pkv_session_read),
       {session, layer, number(2), number(4), optional(rows(64, kv_heads)),
        optional(rows(64, kv_heads))},
       range_cases(2, 20)},
  };
  for (Function& row : readers) {
    // The session in the batch has 5 tokens.
    row.add(
        "in a batch", [](World& world, Values& values) { values[0] = bits(world.stepping); },
        row.name == "pkv_session_get_tokens" ? range : fine);
  }
  Arg recurrent = session;
  recurrent.value = [](World& world) { return bits(world.recurrent); };
  Function get_state{
      ROW(pkv_session_get_state),
      {recurrent, index(1, 2), number(20), number(state_bytes), out<unsigned char>(state_bytes)}};
  get_state.cases = {{"after no token", set(2, 0), range},
                     {"a state that is not held", set(2, 19), range},
                     {"after more tokens than there are", set(2, 21), range},
                     {"after UINT64_MAX tokens", set(2, UINT64_MAX), range},
                     {"one byte less", set(3, state_bytes - 1), invalid},
                     {"size SIZE_MAX", set(3, SIZE_MAX), overflow},
                     {"of keys and values", set(1, 0), unsupported}};
  Function trim_point{ROW(pkv_session_get_trim_point), {session, number(7), out<uint64_t>()}};
  trim_point.cases = {{"UINT64_MAX", set(1, UINT64_MAX), fine}, {"0", set(1, 0), fine}};
  const auto first_block = [](uint32_t block) {
    return [block](World&, Values& values) { *reinterpret_cast<uint32_t*>(values[3]) = block; };
  };
  Function drop{
      ROW(pkv_session_drop_blocks), {session, group, number(1), in<uint32_t>({0})}, {in_batch()}};
  drop.cases = {{"none", set(2, 0), fine},
                {"the part-filled block", first_block(1), range},
                {"beyond the end", first_block(UINT32_MAX), range},
                {"count SIZE_MAX", set(2, SIZE_MAX), overflow}};

  std::vector<Function> all = {open,  close, fork,         reserve,    trim,      suspend,   resume,
                               admit, drop,  set_priority, set_tokens, get_state, trim_point};
  all.insert(all.end(), readers.begin(), readers.end());
  return all;
}

std::vector<Function> snapshot_rows() {
  const Arg snapshot = handle(Handle::snapshot);
  Function take{
      ROW(pkv_snapshot_take), {handle(Handle::session), out<pkv_snapshot>()}, {in_batch()}};
  Function fork{ROW(pkv_snapshot_fork), {snapshot, out<pkv_session>()}};
  Function close{ROW(pkv_snapshot_close), {handle(Handle::snapshot, true)}};
  close.closes = true;
  return {take, fork, close};
}

std::vector<Function> prefix_rows() {
  Function stats{ROW(pkv_prefix_get_stats),
                 {handle(Handle::cache), optional(in<char>({'a'})), number(1),
                  struct_out(sizeof(pkv_prefix_stats))}};
  Function clear{ROW(pkv_prefix_clear),
                 {handle(Handle::cache), optional(in<char>({'a'})), number(1)}};
  const Arg cache = handle(Handle::cache);
  Function probe{ROW(pkv_prefix_probe), {cache, text_in('p'), out<uint64_t>()}, text_cases(1)};
  Function quota{ROW(pkv_prefix_set_quota),
                 {cache, optional(in<char>({'p'})), number(1), number(48)}};
  for (Function* row : {&stats, &clear, &quota}) {
    // NULL comes with a size here.
    row->args[1].misuses.front().wanted = invalid;
    row->cases = {{"salt NULL, size 0", set(1, 0, 2, 0), fine},
                  {"salt too long", set(2, 257), invalid},
                  {"size SIZE_MAX - 1", set(2, SIZE_MAX - 1), invalid}};
  }
  for (Function* row : {&stats, &clear}) row->add("all salts", set(1, 0, 2, PKV_ALL_SALTS), fine);
  quota.add("less than one block", set(3, 15), invalid);
  quota.add("all salts", set(1, 0, 2, PKV_ALL_SALTS), invalid);
  Function events{ROW(pkv_prefix_read_events),
                  {cache, in<uint64_t>({0}), number(4), out<pkv_prefix_event>(4), out<size_t>(),
                   optional(out<uint64_t>())}};
  Function hashes{
      ROW(pkv_prefix_hash_blocks), {text_in('p'), number(16), out<uint64_t>(1)}, text_cases(0)};
  hashes.add("block_size 0", set(1, 0), invalid);
  hashes.add("block_size 24", set(1, 24), invalid);
  hashes.add("block_size 272", set(1, 272), invalid);
  hashes.add(
      "less than a block",
      [](World&, Values& values) {
        reinterpret_cast<pkv_prompt*>(values[0])->n = 15;
        values[2] = 0;
      },
      fine);
  return {stats, clear, probe, quota, events, hashes};
}

}  // namespace hostile
