// Operations on batches (begin, write, attend, accept, commit, abort, in any order and with others
// between them), and the choice of victims.
#pragma once

#include <map>
#include <numeric>

#include "play_sessions.h"

namespace cache_test {

// The sessions of a step and their new tokens. Most of them may take part in one.
struct List {
  std::vector<Actor*> actors;
  std::vector<pkv_session> handles;
  std::vector<uint32_t> counts;

  List(Stage& stage, Source& draw) {
    const uint64_t chosen = draw.below(256);
    const bool any = draw.chance(10), decode = draw.chance(50);
    for (size_t i = 0; i < stage.actors.size(); i++) {
      Actor& actor = *stage.actors[i];
      if ((chosen >> i & 1) == 0 || (!any && actor.obstacle() != PKV_OK)) continue;
      const uint64_t room = max_tokens - actor.naive.rows.size();
      add(actor, static_cast<uint32_t>(std::min(room, decode ? 1 : draw.below(24))));
    }
  }
  List() = default;

  void add(Actor& actor, uint32_t count) {
    actors.push_back(&actor);
    handles.push_back(actor.session);
    counts.push_back(count);
  }

  // Returns the status that begin() should return. Sessions that are held by a batch are checked
  // first.
  pkv_status obstacle() const {
    pkv_status first = PKV_OK;
    for (const Actor* actor : actors) {
      if (actor->in_batch) return PKV_BUSY;
      if (first == PKV_OK) first = actor->obstacle();
    }
    return first;
  }

  uint64_t max_blocks() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < actors.size(); i++)
      sum += Stage::max_blocks_for(actors[i]->naive.rows.size(),
                                   actors[i]->naive.rows.size() + counts[i]);
    return sum;
  }

  List without(const std::vector<Actor*>& others) const {
    List rest;
    for (size_t i = 0; i < actors.size(); i++)
      if (std::find(others.begin(), others.end(), actors[i]) == others.end())
        rest.add(*actors[i], counts[i]);
    return rest;
  }

  pkv_status begin(pkv_cache cache, pkv_batch* batch) const {
    for (Actor* actor : actors)
      if (actor->obstacle() == PKV_OK) actor->naive.expire();
    return pkv_batch_begin(cache, handles.size(), handles.data(), counts.data(), batch);
  }
};

// Returns how many sessions, snapshots and steps hold a block, which is entry `index` of a table.
// A step holds the blocks that it replaced by copies.
inline uint32_t holders(const Stage& stage, uint32_t group, size_t index, uint32_t block) {
  const auto has = [&](const std::vector<uint32_t>& table) {
    return index < table.size() && table[index] == block;
  };
  uint32_t count = 0;
  for (const auto& actor : stage.actors) count += has(block_table(actor->session, group));
  for (const auto& step : stage.steps)
    for (const Member& member : step->members)
      count += has(member.tables[group]) && !has(block_table(member.actor->session, group));
  for (const Frozen& frozen : stage.snapshots) count += has(frozen.tables[group]);
  return count;
}

// Returns whether a session has a block in each group that is reserved for the copy of its tail.
inline bool has_spare(const Actor& actor) {
  uint64_t held = 0;
  for (uint32_t group = 0; group < 2; group++)
    for (const uint32_t id : block_table(actor.session, group)) held += id != PKV_NO_BLOCK;
  return info_of(actor.session).blocks > held;
}

// The sessions of a step that write to one tail.
struct Writers {
  uint32_t count = 0;
  uint64_t length = 0;  // of the longest one,
  size_t longest = 0;   // and its place in the list
};

// Returns how many blocks each session of a step takes from the pool of a group without a window:
// what its table lacks, and a copy of its tail if that is shared, unless that was reserved. If all
// holders of a tail write to it, the longest one keeps it.
inline std::vector<uint64_t> blocks_taken(const Stage& stage, const List& list, uint32_t group) {
  std::map<std::pair<size_t, uint32_t>, Writers> writers;  // by place in the table and block
  std::vector<uint64_t> lacking(list.actors.size()), copies(list.actors.size());
  for (size_t i = 0; i < list.actors.size(); i++) {
    const uint64_t start = list.actors[i]->naive.rows.size(), end = start + list.counts[i];
    const std::vector<uint32_t> table = block_table(list.handles[i], group);
    lacking[i] = Stage::blocks_for(end) - std::min<uint64_t>(Stage::blocks_for(end), table.size());
    const size_t tail = start / block_size;
    if (end == start || tail >= table.size()) continue;
    Writers& of_tail = writers[{tail, table[tail]}];
    copies[i] = has_spare(*list.actors[i]) ? 0 : 1;
    of_tail.count++;
    if (start >= of_tail.length) of_tail.length = start, of_tail.longest = i;
  }
  for (const auto& [tail, of_tail] : writers)
    if (holders(stage, group, tail.first, tail.second) == of_tail.count)
      copies[of_tail.longest] = 0;
  for (size_t i = 0; i < lacking.size(); i++) lacking[i] += copies[i];
  return lacking;
}

// Returns how many blocks a step can take from its own sessions if blocks are short: those that
// were reserved for the copy of a tail that is no longer shared.
inline uint64_t spares_not_needed(const Stage& stage, const List& list, uint32_t group) {
  uint64_t sum = 0;
  for (const Actor* actor : list.actors) {
    const std::vector<uint32_t> table = block_table(actor->session, group);
    const size_t tail = actor->naive.rows.size() / block_size;
    sum += has_spare(*actor) &&
           (tail >= table.size() || holders(stage, group, tail, table[tail]) == 1);
  }
  return sum;
}

// Compares the blocks that begin() took or lacked with the model, while no other thread takes
// blocks.
class Admission {
 public:
  Admission(const Stage& stage, const List& list) : stage_(stage) {
    if (!stage.world.alone || list.obstacle() != PKV_OK) return;
    for (uint32_t group = 0; group < (stage.world.setup.window == 0 ? 2u : 1u); group++) {
      const std::vector<uint64_t> taken = blocks_taken(stage, list, group);
      needed_.push_back(std::accumulate(taken.begin(), taken.end(), uint64_t{0}));
      for (size_t i = 0; i < taken.size(); i++)
        if (!list.actors[i]->naive.has_run && taken[i] > 0)
          watermark_ = stage.world.setup.watermark;
      free_.push_back(pool_stats_of(stage.world.cache, group).free_blocks);
      spares_.push_back(spares_not_needed(stage, list, group));
    }
  }

  void check(pkv_status status, uint64_t short_by) const {
    uint64_t lacking = 0;
    for (uint32_t group = 0; group < needed_.size(); group++) {
      if (status == PKV_OK) {
        const uint64_t left = pool_stats_of(stage_.world.cache, group).free_blocks + needed_[group];
        EXPECT_TRUE(left == free_[group] || left == free_[group] + spares_[group]) << left;
      }
      const uint64_t wanted = needed_[group] == 0 ? 0 : needed_[group] + watermark_;
      lacking += wanted - std::min(wanted, free_[group] + spares_[group]);
    }
    if (status == PKV_OK) {
      EXPECT_EQ(0u, lacking);
    } else if (status == PKV_OUT_OF_BLOCKS && needed_.size() == 2) {
      EXPECT_EQ(lacking, short_by);
    }
  }

 private:
  const Stage& stage_;
  std::vector<uint64_t> needed_, free_, spares_;  // by group; without those that have a window
  uint64_t watermark_ = 0;
};

inline Step* begin_step(Stage& stage, const List& list) {
  auto step = std::make_unique<Step>();
  size_t rows = 0;
  for (size_t i = 0; i < list.actors.size(); rows += list.counts[i++]) {
    step->members.push_back({list.actors[i], list.counts[i], rows, tables_of(*list.actors[i]), {}});
  }
  pkv_batch batch;
  const Admission admission(stage, list);
  const pkv_status obstacle = list.obstacle();
  const pkv_status status =
      stage.run([&] { return list.begin(stage.world.cache, &batch); }, obstacle);
  admission.check(status, blocks_short_after(status));
  if (status == PKV_SUSPENDED) {
    EXPECT_EQ(status, list.actors.at(pkv_last_error_details()->index)->obstacle());
  }
  if (!stage.worked(status, obstacle, list.max_blocks())) return nullptr;
  step->batch = Batch(batch);
  step->rows = stage.fresh_rows(rows);
  for (const Member& member : step->members) member.actor->in_batch = true;
  stage.steps.push_back(std::move(step));
  return stage.steps.back().get();
}

inline void write_layer(Stage& stage, Step& step, uint32_t layer) {
  Numbers k = rows_of(step.rows, layer, false), v = rows_of(step.rows, layer, true);
  const pkv_tensor keys = k.tensor(), values = v.tensor();
  const pkv_status expected = !stage.world.has_rows() ? PKV_UNSUPPORTED
                              : step.accepted         ? PKV_INVALID_ARGUMENT
                                                      : PKV_OK;
  stage.certain([&] { return pkv_batch_write(step.batch, layer, &keys, &values); }, expected);
  if (expected == PKV_OK) step.written |= 1u << layer;
}

// Compares the output of one row and head with the definition in double precision. Scores are at
// most 2 and known to 2^-15, and values are at most 128. So an output may be off by 2 * 2^-14 * 128
// and by the rounding of a sum of 150 terms.
inline void attend_layer(Stage& stage, Source& draw, Step& step, uint32_t layer) {
  const uint32_t dim = static_cast<uint32_t>(draw.below(key_dim)),
                 head = static_cast<uint32_t>(draw.below(heads));
  Numbers q = queries_for(step.rows.size(), dim), out = room_for(step.rows.size(), true);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  const bool written = step.rows.empty() || (step.written >> layer & 1);
  const pkv_status obstacle = !stage.world.has_rows() ? PKV_UNSUPPORTED
                              : step.accepted         ? PKV_INVALID_ARGUMENT
                              : written               ? PKV_OK
                                                      : PKV_INCOMPLETE;
  AttentionParams params;
  params.scale = 1;
  if (!stage.attempt(
          [&] { return pkv_batch_attend(step.batch, layer, &params, &queries, &outputs, nullptr); },
          obstacle) ||
      step.rows.empty())
    return;
  const size_t row = draw.below(step.rows.size());
  const auto member = std::find_if(step.members.begin(), step.members.end(),
                                   [&](const Member& m) { return row < m.row + m.count; });
  std::vector<uint32_t> seen = member->actor->naive.rows;
  seen.insert(seen.end(), step.rows.begin() + static_cast<int64_t>(member->row),
              step.rows.begin() + static_cast<int64_t>(row + 1));
  const std::vector<double> expected = attention(
      seen, layer, head, dim, stage.world.setup.window_of(layer), stage.world.setup.sinks);
  for (uint32_t d = 0; d < value_dim; d++)
    ASSERT_NEAR(expected[d], out.get(row, head, d, value_dim), 0.02)
        << "row " << row << " head " << head << " dim " << d;
}

inline void accept(Stage& stage, Source& draw, Step& step) {
  if (step.members.empty()) return;
  const size_t i = draw.below(step.members.size());
  Member& member = step.members[i];
  std::vector<uint32_t> kept;
  const unsigned percent = static_cast<unsigned>(draw.below(100));
  for (uint32_t n = 0; n < member.count; n++)
    if (draw.chance(percent)) kept.push_back(n);
  const bool beyond = draw.chance(10), repeated = !beyond && kept.size() > 1 && draw.chance(10);
  if (beyond) kept.push_back(member.count);
  if (repeated) kept[1] = kept[0];
  pkv_status obstacle = PKV_OK;
  if (stage.world.has_rows() && !step.rows.empty() && step.written != all_written)
    obstacle = PKV_INCOMPLETE;
  else if (beyond)
    obstacle = PKV_OUT_OF_RANGE;
  else if (repeated || member.kept)
    obstacle = PKV_INVALID_ARGUMENT;
  else if (!stage.world.has_rows() && !kept.empty() && kept.back() >= kept.size())
    obstacle = PKV_UNSUPPORTED;  // the rows would have to move
  if (!stage.attempt([&] { return pkv_batch_accept(step.batch, i, kept.size(), kept.data()); },
                     obstacle))
    return;
  member.kept = kept;
  step.accepted = true;
}

// Returns which of its new tokens a session keeps.
inline std::vector<uint32_t> kept_of(const Member& member) {
  if (member.kept) return *member.kept;
  std::vector<uint32_t> all(member.count);
  for (uint32_t i = 0; i < member.count; i++) all[i] = i;
  return all;
}

// Ends a step that was committed with these ids.
inline void end(Stage& stage, Step& step, const std::vector<int32_t>& tokens) {
  stage.counts.commits++;
  for (const Member& member : step.members) {
    std::vector<uint32_t> rows;
    std::vector<int32_t> told;
    for (const uint32_t i : kept_of(member)) {
      rows.push_back(step.rows[member.row + i]);
      told.push_back(tokens[member.row + i]);
    }
    member.actor->naive.extend(rows, told);
    stage.counts.committed_tokens += rows.size();
    stage.counts.grown += !rows.empty();
  }
  stage.drop(step);
}

// Commits a step without token ids, or with new ids, and the old ones for tokens that are computed
// again. Now and then it gives a wrong id first, which must be refused.
inline void commit(Stage& stage, Source& draw, Step& step) {
  const bool tell = draw.chance(50), wrong = draw.chance(25);
  std::vector<int32_t> tokens(step.rows.size(), PKV_NO_TOKEN);
  for (int32_t& token : tokens)
    if (tell) token = static_cast<int32_t>(draw.below(1000));
  int32_t* remembered = nullptr;
  for (const Member& member : step.members) {
    const std::vector<uint32_t> kept = kept_of(member);
    for (size_t i = 0; i < kept.size(); i++) {
      const int32_t known = member.actor->naive.known(member.actor->naive.rows.size() + i);
      if (known == PKV_NO_TOKEN) continue;
      remembered = &tokens[member.row + kept[i]];
      if (tell) *remembered = known;
    }
  }
  const bool complete = !stage.world.has_rows() || step.rows.empty() || step.written == all_written;
  if (wrong && remembered != nullptr && complete) {
    const int32_t right = std::exchange(*remembered, 1000);
    stage.certain([&] { return pkv_batch_commit(step.batch, tokens.size(), tokens.data()); },
                  PKV_INVALID_ARGUMENT);
    *remembered = right;
  }
  if (!stage.attempt([&] { return pkv_batch_commit(step.batch, tokens.size(), tokens.data()); },
                     complete ? PKV_OK : PKV_INCOMPLETE))
    return;
  end(stage, step, tokens);
}

// Steps one session at once and without token ids. Layers come in any order, and some twice.
inline void step_one(Stage& stage, Source& draw) {
  if (!stage.world.has_rows()) return;
  Actor& actor = pick(stage, draw);
  const bool again = draw.chance(10);
  List one;
  one.add(actor, static_cast<uint32_t>(draw.chance(40) ? draw.between(1, 80) : 1));
  if (actor.naive.rows.size() + one.counts[0] > max_tokens) return;
  Step* const step = begin_step(stage, one);
  if (step == nullptr) return;
  const uint32_t first = static_cast<uint32_t>(draw.below(layers));
  for (uint32_t i = 0; i < layers + again; i++) write_layer(stage, *step, (first + i) % layers);
  stage.certain([&] { return pkv_batch_commit(step->batch, 0, nullptr); });
  end(stage, *step, std::vector<int32_t>(step->rows.size(), PKV_NO_TOKEN));
}

// Plays a whole step at once, or begins one.
inline void batch(Stage& stage, Source& draw) {
  const bool held = draw.chance(25), aborted = draw.chance(15), accepts = draw.chance(20);
  const uint32_t attended = static_cast<uint32_t>(draw.below(2 * layers));
  if (stage.steps.size() >= 2) return;
  Step* const step = begin_step(stage, List(stage, draw));
  if (step == nullptr) return;
  for (uint32_t group = 0; group < 2 && !stage.world.has_rows(); group++)
    stage.world.engine.write(step->batch, group, step->members.size(), step->rows);
  if (held) return;
  const uint32_t given = aborted ? static_cast<uint32_t>(draw.below(layers + 1)) : layers;
  for (uint32_t layer = 0; layer < given && stage.world.has_rows(); layer++)
    write_layer(stage, *step, layer);
  if (attended < given) attend_layer(stage, draw, *step, attended);
  if (aborted) return stage.abort(*step);
  if (accepts) accept(stage, draw, *step);
  commit(stage, draw, *step);
}

// Continues a batch that is held open, if there is one.
inline void go_on(Stage& stage, Source& draw) {
  if (stage.steps.empty()) return batch(stage, draw);
  Step& step = *stage.steps[draw.below(stage.steps.size())];
  const uint32_t layer = static_cast<uint32_t>(draw.below(layers));
  const uint64_t choice = draw.below(16);
  if (choice < 4) return write_layer(stage, step, layer);
  if (choice < 7) return attend_layer(stage, draw, step, layer);
  if (choice < 9) return accept(stage, draw, step);
  if (choice < 15) {
    const bool completes = draw.chance(75) && stage.world.has_rows() && !step.accepted;
    for (uint32_t rest = 0; completes && rest < layers; rest++)
      if ((step.written >> rest & 1) == 0) write_layer(stage, step, rest);
    return commit(stage, draw, step);
  }
  stage.abort(step);
}

// Checks that the victims are those of the lowest rank: of the lowest priority, and among these
// opened last.
inline void check_rank(Stage& stage, const List& list, const std::vector<Actor*>& victims) {
  const auto before = [](const Actor* a, const Actor* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->opened > b->opened;
  };
  EXPECT_TRUE(std::is_sorted(victims.begin(), victims.end(), before));
  for (const auto& actor : stage.actors) {
    if (actor->in_batch || std::find(victims.begin(), victims.end(), actor.get()) != victims.end())
      continue;
    const pkv_session_info info = info_of(actor->session);
    const bool listed =
        std::find(list.actors.begin(), list.actors.end(), actor.get()) != list.actors.end();
    EXPECT_TRUE((!listed && info.blocks == 0) || victims.empty() ||
                before(victims.back(), actor.get()))
        << "a victim of higher rank";
  }
}

// Asks which sessions to suspend, suspends them and begins the step. It must fail before and work
// afterwards.
inline void victims(Stage& stage, Source& draw) {
  List list(stage, draw);
  for (uint32_t& count : list.counts)
    if (draw.chance(50)) count = static_cast<uint32_t>(draw.below(200));
  std::vector<pkv_session> answer(stage.world.alone ? stage.actors.size() : 64);
  size_t count = 0;
  const pkv_status obstacle = list.obstacle();
  const pkv_status status = stage.run(
      [&] {
        return pkv_batch_choose_victims(stage.world.cache, list.handles.size(), list.handles.data(),
                                        list.counts.data(), answer.size(), answer.data(), &count);
      },
      obstacle);
  if (!stage.world.alone) return;  // Other threads take and give back blocks meanwhile.
  pkv_batch batch;
  if (obstacle == PKV_OK && (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE)) {
    EXPECT_NE(PKV_OK, list.begin(stage.world.cache, &batch)) << "nobody need be suspended";
    return;
  }
  if (!stage.worked(status, obstacle)) return;
  answer.resize(count);
  std::vector<Actor*> chosen;
  for (const pkv_session session : answer)
    for (const auto& actor : stage.actors)
      if (actor->session.get() == session) chosen.push_back(actor.get());
  ASSERT_EQ(count, chosen.size()) << "a victim that is no session";
  check_rank(stage, list, chosen);
  for (size_t i = 0; i < count; i++) {
    ASSERT_FALSE(chosen[i]->in_batch);
    const List rest = list.without({chosen.begin(), chosen.begin() + static_cast<int64_t>(i)});
    ASSERT_NE(PKV_OK, rest.begin(stage.world.cache, &batch))
        << i << " of " << count << " victims are enough";
    suspend(stage, *chosen[i]);
  }
  ASSERT_EQ(PKV_OK, list.without(chosen).begin(stage.world.cache, &batch))
      << count << " victims are too few: " << pkv_last_error();
  CHECK(pkv_batch_abort(batch));
}

}  // namespace cache_test
