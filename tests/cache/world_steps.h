// Steps that are held open while other operations run: their layers are written in any order and
// more than once, attended, accepted, committed or aborted. Calls on the sessions of such steps,
// and with handles that are closed, are refused and change nothing.
#pragma once

#include <functional>

#include "world_sessions.h"

namespace world {

class WorldSteps : protected WorldSessions {
 protected:
  using WorldSessions::WorldSessions;

  // Begins a step of some talks, which are in no other operation until it ends.
  void hold_step() {
    if (steps_.size() >= 2) return;
    auto step = std::make_unique<Step>();
    std::vector<size_t> chosen;
    const bool all_decode = random_.chance(50);
    for (size_t i = 0; i < talks_.size(); i++) {
      const Talk& talk = talks_[i];
      if (talk.suspended || random_.chance(50)) continue;
      const bool draft = drafts(talk) && random_.chance(40);
      chosen.push_back(i);
      step->news.push_back(draft        ? draw_tree(talk)
                           : all_decode ? draw_more(talk, 1)
                                        : draw_more(talk));
      step->members.push_back({Talk(), tables_of(talk), draft});
    }
    if (!begin(step->news, step->batch)) return;
    for (size_t i = chosen.size(); i-- > 0;) {
      step->members[i].talk = std::move(talks_[chosen[i]]);
      talks_.erase(talks_.begin() + static_cast<ptrdiff_t>(chosen[i]));
    }
    for (size_t i = 0; i < chosen.size(); i++) step->news[i].before = &step->members[i].talk.text;
    for (uint32_t g = 0; g < kind_.groups.size(); g++)
      for (const uint32_t layer : kind_.has_rows(g) ? kind_.layers_of(g) : std::vector<uint32_t>())
        if (!kind_.groups[g].has_states())
          step->unwritten.insert(layer);
        else
          write_layer(*step, g, layer);
    write_engine(step->batch, step->news);
    steps_.push_back(std::move(step));
  }

  // Continues a step that is held open, or begins one.
  void go_on() {
    if (steps_.empty()) return hold_step();
    Step& step = *steps_[random_.below(steps_.size())];
    const uint64_t choice = random_.below(16);
    const size_t g = random_.below(kind_.groups.size());
    const std::vector<uint32_t> layers = kind_.layers_of(static_cast<uint32_t>(g));
    const uint32_t layer = layers[random_.below(layers.size())];
    if (choice < 4)
      write_layer(step, g, layer);
    else if (choice < 7)
      attend(step, g, layer);
    else if (choice < 9)
      accept_any(step);
    else if (choice < 15)
      complete(step);
    else
      abort(step);
  }

  // Aborts all steps.
  void end_steps() {
    while (!steps_.empty()) abort(*steps_.back());
  }

  void check_steps() const {
    for (const auto& step : steps_)
      for (size_t i = 0; i < step->members.size(); i++) check_member(*step, i);
  }

  // Calls a function with a session of a step, or with a handle that is closed.
  void misuse() {
    const bool busy = !steps_.empty() && random_.chance(70) && !steps_.back()->members.empty();
    if (!busy && dead_sessions_.empty()) return;
    const pkv_session session =
        busy ? steps_.back()->members[random_.below(steps_.back()->members.size())].talk.session
             : dead_sessions_[random_.below(dead_sessions_.size())];
    const pkv_snapshot snapshot = dead_snapshots_.empty() ? nullptr : dead_snapshots_.back();
    const pkv_batch batch = dead_batches_.empty() ? nullptr : dead_batches_.back();
    const uint32_t one = 1;
    int32_t token = 7;
    uint64_t number = 7;
    size_t count = 7;
    pkv_session made = nullptr;
    pkv_batch begun = nullptr;
    pkv_snapshot taken = nullptr;
    using Call = std::function<pkv_status()>;
    std::vector<Call> calls = {
        [&] { return pkv_session_trim(session, 0); },
        [&] { return pkv_session_fork(session, &made); },
        [&] { return pkv_session_suspend(session); },
        [&] { return pkv_session_resume(session, &number, &number); },
        [&] { return pkv_session_reserve(session, 1); },
        [&] { return pkv_session_set_priority(session, 1); },
        [&] { return pkv_session_set_tokens(session, 0, 0, &token); },
        [&] { return pkv_session_drop_blocks(session, 0, 0, &one); },
        [&] { return pkv_session_admit(session, 1, &token, 0, &number); },
        [&] { return pkv_snapshot_take(session, &taken); },
        [&] { return pkv_batch_begin(cache(), 1, &session, &one, &begun); },
        [&] { return pkv_batch_choose_victims(cache(), 1, &session, &one, 1, &made, &count); },
        [&] { return pkv_session_close(session); }};
    if (!busy && snapshot != nullptr) {
      calls.push_back([&] { return pkv_snapshot_fork(snapshot, &made); });
      calls.push_back([&] { return pkv_snapshot_close(snapshot); });
    }
    if (!busy && batch != nullptr) {
      calls.push_back([&] { return pkv_batch_accept(batch, 0, 1, &one); });
      calls.push_back([&] { return pkv_batch_commit(batch, 1, &token); });
      calls.push_back([&] { return pkv_batch_abort(batch); });
    }
    REFUSED(busy ? PKV_BUSY : PKV_STALE_HANDLE, calls[random_.below(calls.size())]());
    EXPECT_TRUE(token == 7 && number == 7 && count == 7 && made == nullptr && begun == nullptr &&
                taken == nullptr);
  }

  // Ends everything by destroying the cache, which must give back all memory.
  void destroy_open() {
    for (auto& step : steps_) {
      for (Member& member : step->members) forget(member.talk);
      dead_batches_.push_back(step->batch);
      step->batch.forget();
    }
    for (Talk& talk : talks_) forget(talk);
    for (Frozen& frozen : frozen_) {
      dead_snapshots_.push_back(frozen.snapshot);
      frozen.snapshot.forget();
    }
    here_.reset();
    for (const pkv_session session : dead_sessions_)
      REFUSED(PKV_STALE_HANDLE, pkv_session_close(session));
    for (const pkv_batch batch : dead_batches_) REFUSED(PKV_STALE_HANDLE, pkv_batch_abort(batch));
    for (const pkv_snapshot snapshot : dead_snapshots_)
      REFUSED(PKV_STALE_HANDLE, pkv_snapshot_close(snapshot));
  }

  std::vector<pkv_batch> dead_batches_;

 private:
  // Returns whether a call worked, which must return `expected`.
  bool answered(pkv_status expected, pkv_status status, const char* call) {
    if (expected == PKV_OK || status == PKV_OUT_OF_MEMORY) return worked(status, call);
    EXPECT_EQ(expected, status) << call << ": " << pkv_last_error();
    return false;
  }

  void forget(Talk& talk) {
    dead_sessions_.push_back(talk.session);
    talk.session.forget();
  }

  static size_t rows_of_step(const Step& step) { return tokens_of_all(step.news).size(); }

  void write_layer(Step& step, size_t g, uint32_t layer) {
    if (!kind_.has_rows(g) || step.accepted || step.members.empty()) return;
    world::write_layer(step.batch, kind_.groups[g], static_cast<uint32_t>(g), layer, step.news);
    step.unwritten.erase(layer);
  }

  // Compares the output of one row and head with the definition in double precision. Scores are at
  // most 2 and known to 2^-15, and values are at most 128. So an output may be off by 2 * 2^-14 *
  // 128 and by the rounding of a sum of 150 terms.
  void attend(Step& step, size_t g, uint32_t layer) {
    const SmallGroup& group = kind_.groups[g];
    const size_t n = rows_of_step(step);
    if (!kind_.has_rows(g) || group.has_states() || n == 0) return;
    const auto dim = static_cast<uint32_t>(random_.below(16)),
               head = static_cast<uint32_t>(random_.below(group.heads));
    const size_t row = random_.below(n);
    Rows q = rows_for(group, n, false), out = rows_for(group, n, true);
    for (size_t i = 0; i < n; i++)
      for (uint32_t h = 0; h < group.heads; h++)
        for (uint32_t d = 0; d < 16; d++) q.set(i, h, d, d == dim ? 0x1p-6f : 0);
    const pkv_tensor queries = q.tensor(), outputs = out.tensor();
    AttentionParams params;
    params.scale = 1;
    const pkv_status status = run(
        [&] { return pkv_batch_attend(step.batch, layer, &params, &queries, &outputs, nullptr); });
    const pkv_status expected = step.accepted                    ? PKV_INVALID_ARGUMENT
                                : step.unwritten.contains(layer) ? PKV_INCOMPLETE
                                                                 : PKV_OK;
    if (!answered(expected, status, "attend")) return;
    size_t i = 0, left = row;
    for (; left >= step.news[i].tokens.size(); i++) left -= step.news[i].tokens.size();
    Text seen = step.members[i].talk.text;
    const Text& more = step.news[i].tokens;
    seen.insert(seen.end(), more.begin(), more.begin() + static_cast<ptrdiff_t>(left + 1));
    const std::vector<double> sums =
        attention(seen, group, step.members[i].talk.dropped[g], layer, head, dim);
    for (uint32_t d = 0; d < group.value_dim; d++)
      ASSERT_NEAR(sums[d], out.get(row, head, d), 0.02)
          << "row " << row << " head " << head << " dim " << d;
  }

  // Computes what the last of these tokens gets for a query that selects one dim of the keys.
  static std::vector<double> attention(const Text& seen, const SmallGroup& group,
                                       const std::set<size_t>& dropped, uint32_t layer,
                                       uint32_t head, uint32_t dim) {
    const size_t first =
        group.window == 0 || seen.size() < group.window ? 0 : seen.size() - group.window;
    std::vector<double> sum(group.value_dim);
    double weights = 0;
    for (size_t i = 0; i < seen.size(); i++) {
      if ((i < first && i >= group.sinks) || dropped.contains(i / 16)) continue;
      const double weight =
          std::exp(0x1p-6 * double{element(seen[i].mark, layer, false, head, dim)});
      weights += weight;
      for (uint32_t d = 0; d < group.value_dim; d++)
        sum[d] += weight * double{element(seen[i].mark, layer, true, head, d)};
    }
    for (double& x : sum) x /= weights;
    return sum;
  }

  void accept_any(Step& step) {
    const bool wrong = random_.chance(20);
    accept(step, random_.below(step.members.size() + 1), wrong);
  }
  // Accepts a path of the new tokens of one session, or asks for wrong ones.
  void accept(Step& step, size_t i, bool wrong) {
    const bool beyond = random_.chance(50);
    if (i == step.members.size()) {
      REFUSED(PKV_OUT_OF_RANGE, pkv_batch_accept(step.batch, i, 0, nullptr));
      return;
    }
    Member& member = step.members[i];
    if (!member.draft) return;
    std::vector<uint32_t> path = draw_path(step.news[i]);
    pkv_status expected = PKV_OK;
    if (!step.unwritten.empty()) {
      expected = PKV_INCOMPLETE;
    } else if (wrong && beyond) {
      expected = PKV_OUT_OF_RANGE;
      path.push_back(static_cast<uint32_t>(step.news[i].tokens.size()));
    } else if (wrong && !path.empty()) {
      expected = PKV_INVALID_ARGUMENT;
      path.push_back(path.back());
    } else if (member.kept) {
      expected = PKV_INVALID_ARGUMENT;
    }
    const pkv_status status =
        run([&] { return pkv_batch_accept(step.batch, i, path.size(), path.data()); });
    if (!answered(expected, status, "accept")) return;
    member.kept = path;
    step.accepted = true;
  }

  // Commits a step, mostly after all of its layers are written. Now and then it gives an id that
  // differs from a remembered one, which must be refused.
  void complete(Step& step) {
    if (random_.chance(75))
      for (uint32_t g = 0; g < kind_.groups.size(); g++)
        for (const uint32_t layer : kind_.layers_of(g))
          if (step.unwritten.contains(layer)) write_layer(step, g, layer);
    for (size_t i = 0; i < step.members.size() && step.unwritten.empty(); i++)
      while (step.members[i].draft && !step.members[i].kept) accept(step, i, false);
    const bool told = random_.chance(80), wrong = random_.chance(25);
    std::vector<int32_t> ids;
    if (told) ids = ids_of(tokens_of_all(step.news));
    const auto commit_step = [&] {
      return pkv_batch_commit(step.batch, ids.size(), told ? ids.data() : nullptr);
    };
    const bool written = step.unwritten.empty() || rows_of_step(step) == 0;
    if (int32_t* const id = told && written && wrong ? remembered_id(step, ids) : nullptr) {
      *id += 1000;
      REFUSED(PKV_INVALID_ARGUMENT, commit_step());
      *id -= 1000;
    }
    const pkv_status status = run(commit_step);
    EXPECT_EQ(written ? PKV_OK : PKV_INCOMPLETE, status) << pkv_last_error();
    if (status != PKV_OK) return;
    here_->commits++;
    for (size_t i = 0; i < step.members.size(); i++) {
      const Member& member = step.members[i];
      append(step.members[i].talk,
             member.kept ? along(step.news[i], *member.kept) : step.news[i].tokens, told);
    }
    end(step);
  }

  // Returns one of the ids of a step that the library knows from before a suspension.
  static int32_t* remembered_id(const Step& step, std::vector<int32_t>& ids) {
    size_t row = 0;
    for (size_t i = 0; i < step.members.size(); row += step.news[i].tokens.size(), i++) {
      const Talk& talk = step.members[i].talk;
      const size_t at = talk.text.size();
      if (!step.news[i].tokens.empty() && at < talk.remembered.size() && talk.remembered[at].told)
        return &ids[row];
    }
    return nullptr;
  }

  // Aborts a step. Afterwards the sessions have the very same blocks as before, except those that
  // had left a window: begin() frees these if blocks are short.
  void abort(Step& step) {
    CHECK(pkv_batch_abort(step.batch));
    for (const Member& member : step.members) {
      const Tables after = tables_of(member.talk);
      for (uint32_t g = 0; g < after.size(); g++) {
        Tables before = member.tables;
        for (size_t b = 0; b < std::min(before[g].size(), after[g].size()); b++)
          if (after[g][b] == PKV_NO_BLOCK_ID && !needs(member.talk, g, b))
            before[g][b] = PKV_NO_BLOCK_ID;
        EXPECT_EQ(before[g], after[g]) << "group " << g;
      }
    }
    end(step);
  }

  void end(Step& step) {
    dead_batches_.push_back(step.batch);
    step.batch.forget();
    for (Member& member : step.members) talks_.push_back(std::move(member.talk));
    std::erase_if(steps_, [&](const auto& other) { return other.get() == &step; });
  }

  // Checks what a session holds before the step, and of each layer that is written.
  void check_member(const Step& step, size_t i) const {
    const Talk& talk = step.members[i].talk;
    check(talk);
    if (step.accepted) return;
    Text with = talk.text;
    with.insert(with.end(), step.news[i].tokens.begin(), step.news[i].tokens.end());
    for (uint32_t g = 0; g < kind_.groups.size(); g++)
      for (const uint32_t layer : kind_.layers_of(g))
        if (kind_.has_rows(g) && !kind_.groups[g].has_states() && !step.unwritten.contains(layer))
          check_rows(talk.session, with, kind_.groups[g], layer);
  }
};

}  // namespace world
