// Adds up what sessions need from the pools.
#include "engine/step/needs.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/cache/reservation.h"

namespace pkv {

Needs::Needs(const Cache& cache, size_t sessions, const char* who)
    : cache_(cache), who_(who), blocks_(cache.groups().size()) {
  steps_.reserve(sessions * blocks_.size());
}

uint32_t Needs::references(const Tail& tail) const {
  return cache_.groups()[tail.first]->pool.references(tail.second);
}

void Needs::add(const Session& session, uint32_t new_tokens) {
  const uint64_t start = session.length(), end = start + new_tokens;
  const uint32_t watermark = session.watermark();
  std::vector<uint64_t> required;
  for (size_t g = 0; g < blocks_.size(); g++) {
    const memory::BlockTable& table = session.content().table(g);
    table.check_fits(start, end, who_);
    memory::StepNeed& step = steps_.emplace_back(table.step_need(start, end));
    const Tail tail(g, memory::block_id(step.tail));
    if (memory::is_block(step.tail) && references(tail) > 1) {
      const std::span<const memory::Block> spares = table.spare_blocks();
      Writers& writers = writers_[tail];
      const Writer writer = {start, steps_.size() - 1,
                             spares.empty() ? PKV_NO_BLOCK_ID : memory::block_id(spares[0])};
      if (writers.count++ == 0 || writers.longest < writer) writers.longest = writer;
      step.copies = true;
      if (spares.empty())
        step.fresh_spares = 1;
      else
        step.spares = 1;  // the copy goes into a spare block
    } else {
      step.tail = memory::no_block;
    }
    step.keeps_watermark = watermark > 0 && step.blocks() > 0;
    blocks_[g] += step.blocks();
    watermark_needs_ += step.keeps_watermark;
    required.push_back(table.required_with_watermark(watermark, step, start, end));
    check_possible(cache_, g, required.back(), watermark, who_);
  }
  if (cache_.pages() != nullptr) check_pages(session, end, required);
}

// Checks that the pages of shared memory suffice for what a session holds during its step, and for
// what must be there besides the watermark.
void Needs::check_pages(const Session& session, uint64_t end,
                        std::span<const uint64_t> required) const {
  const memory::PageCut& cut = cache_.pages()->cut();
  std::vector<uint64_t> held;
  for (size_t g = 0; g < blocks_.size(); g++)
    held.push_back(session.content().table(g).blocks_in_step(session.length(), end));
  if (cut.pages_for(held) > cut.pages)
    fail(PKV_TOO_LARGE,
         "%s: a step to token %llu needs %llu pages in one session; the memory that the groups "
         "share has %u",
         who_, llu(end), llu(cut.pages_for(held)), cut.pages);
  check_pages_possible(cache_, required, session.watermark(), who_);
}

void Needs::check_fits_together() const {
  for (size_t g = 0; g < blocks_.size(); g++) {
    const uint64_t in_all = cache_.groups()[g]->pool.blocks();
    if (blocks_[g] + watermark() <= in_all) continue;
    fail(PKV_BATCH_TOO_LARGE,
         "%s: %zu sessions need %llu blocks of group %zu at once, which can give %llu: begin fewer "
         "at a time",
         who_, steps_.size() / blocks_.size(), llu(blocks_[g]), g, llu(in_all - watermark()));
  }
  if (cache_.pages() == nullptr) return;
  const memory::PageCut& cut = cache_.pages()->cut();
  const uint64_t pages = cut.pages_for(with_watermark(blocks_, watermark()));
  if (pages <= cut.pages) return;
  fail(PKV_BATCH_TOO_LARGE,
       "%s: %zu sessions need %llu pages at once; the memory that the groups share has %u: begin "
       "fewer at a time",
       who_, steps_.size() / blocks_.size(), llu(pages), cut.pages);
}

void Needs::skip_last_copies() {
  for (const auto& [tail, writers] : writers_) {
    memory::StepNeed& step = steps_[writers.longest.step];
    if (references(tail) != writers.count || !step.copies) continue;
    blocks_[tail.first] -= step.fresh_spares;
    step.fresh_spares = step.spares = 0;
    step.copies = false;
    if (step.blocks() == 0 && std::exchange(step.keeps_watermark, false)) watermark_needs_--;
  }
}

void Needs::list_tails(prefix::OwnBlocks& own) const {
  own.watermark_needs = watermark_needs_;
  for (const auto& [tail, writers] : writers_) {
    const Writer& longest = writers.longest;
    const memory::StepNeed& step = steps_[longest.step];
    if (step.copies && (writers.count == 1 || longest.spare == PKV_NO_BLOCK_ID))
      own.tails.push_back({tail.first, tail.second, writers.count, longest.spare,
                           step.keeps_watermark && step.blocks() == step.fresh_spares});
  }
}

size_t Needs::copies() const {
  return static_cast<size_t>(std::count_if(
      steps_.begin(), steps_.end(), [](const memory::StepNeed& step) { return step.copies; }));
}

}  // namespace pkv
