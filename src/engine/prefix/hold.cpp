#include "engine/prefix/hold.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "engine/prefix/index.h"

namespace pkv::prefix {

Hold::Hold(Index& index, std::string_view salt, uint8_t retention) {
  const std::lock_guard lock(index.mutex_);
  use_.space = &index.data_.spaces.at(salt);
  use_.node = &use_.space->root;
  use_.retention = retention;
  index.uses_.attach(*use_.node);
  index_ = &index;
}

Hold Hold::restart() const {
  Hold other;
  if (index_ == nullptr) return other;
  const std::lock_guard lock(index_->mutex_);
  other.use_ = use_;
  other.use_.node = &use_.space->root;
  other.use_.depth = 0;
  other.use_.tail = nullptr;
  index_->uses_.attach(*other.use_.node);
  other.index_ = index_;
  return other;
}

Use Hold::hints() const noexcept {
  if (index_ == nullptr) return {};
  const std::shared_lock lock(index_->mutex_);
  return use_;
}

void Hold::set_retention(uint8_t retention) noexcept {
  if (index_ == nullptr) return;
  std::shared_ptr<const Ranges> forgotten;  // freed without the lock
  const std::lock_guard lock(index_->mutex_);
  use_.retention = retention;
  use_.ranges.swap(forgotten);
}

// Copies share the ranges, so these are replaced rather than changed.
bool Hold::set_retention(const Range& range) {
  constexpr size_t max_ranges = 64;
  if (index_ == nullptr) return true;
  const std::lock_guard lock(index_->mutex_);
  if (use_.ranges != nullptr && use_.ranges->size() == max_ranges) return false;
  const std::pmr::polymorphic_allocator<> memory(&index_->data_.memory);
  const auto more = use_.ranges != nullptr ? std::allocate_shared<Ranges>(memory, *use_.ranges)
                                           : std::allocate_shared<Ranges>(memory);
  more->push_back(range);
  use_.ranges = more;
  return true;
}

void Hold::set_hint(uint8_t hint) noexcept {
  if (index_ == nullptr) return;
  const std::lock_guard lock(index_->mutex_);
  use_.hint = hint;
}

void Hold::drop_later(uint32_t blocks) noexcept {
  if (index_ == nullptr) return;
  const std::lock_guard lock(index_->mutex_);
  use_.drop_from = std::min(use_.drop_from, blocks);
}

void Hold::make_passive(uint32_t demote_from) noexcept {
  use_.passive = true;
  use_.demote_from = demote_from;
}

void Hold::demote(uint64_t lost_before) noexcept {
  if (index_ == nullptr || use_.demote_from == Use::no_block) return;
  if (use_.demote_from < lost_before) return;
  const std::lock_guard lock(index_->mutex_);
  index_->uses_.demote(use_);
}

Hold::~Hold() {
  if (index_ == nullptr) return;
  const std::lock_guard lock(index_->mutex_);
  index_->uses_.review_some(depth());
  index_->uses_.detach_tail(use_);
  index_->uses_.release(use_, use_.space->root);
  index_->uses_.detach(*use_.node, !use_.passive);
  index_->data_.spaces.drop_if_empty(*use_.space);
}

Hold Hold::copy() const {
  Hold other;
  if (index_ == nullptr) return other;
  const std::lock_guard lock(index_->mutex_);
  index_->uses_.attach(*use_.node);
  if (use_.tail != nullptr) index_->uses_.attach(*use_.tail);
  other.index_ = index_;
  other.use_ = use_;
  return other;
}

void Hold::swap(Hold& other) noexcept {
  std::swap(index_, other.index_);
  std::swap(use_, other.use_);
}

void Hold::retreat(uint64_t tokens) noexcept {
  if (index_ == nullptr) return;
  const uint32_t size = index_->data_.block_size();
  if (tokens >= uint64_t{depth()} * size + (use_.tail != nullptr ? 1 : 0)) return;
  const std::lock_guard lock(index_->mutex_);
  index_->uses_.review_some(depth());
  const auto blocks = static_cast<uint32_t>(tokens / size);
  if (tokens % size != 0)
    index_->uses_.shorten_into(use_, blocks);
  else
    index_->uses_.shorten(use_, blocks);
}

void Hold::release_tail() noexcept {
  if (use_.tail == nullptr) return;
  const std::lock_guard lock(index_->mutex_);
  index_->uses_.detach_tail(use_);
}

void Hold::cancel() noexcept {
  if (index_ == nullptr || (depth() == 0 && use_.tail == nullptr)) return;
  const std::lock_guard lock(index_->mutex_);
  for (Node* node = use_.node; node->parent != nullptr; node = node->parent)
    node->matches -= node->matches > 0;
  const bool passive = std::exchange(use_.passive, true);
  index_->uses_.shorten(use_, 0);
  use_.passive = passive;
}

void Hold::withdraw(uint32_t blocks) noexcept {
  if (index_ == nullptr || blocks >= depth()) return;
  const std::lock_guard lock(index_->mutex_);
  Node& end = *use_.node;
  index_->uses_.shorten(use_, blocks);
  index_->eviction_.withdraw(end, *use_.node);
}

// Needs no lock: the hold keeps the space, and several threads may add to a figure.
void Hold::count_match(uint64_t lookup_tokens, uint64_t matched_tokens) noexcept {
  if (index_ == nullptr) return;
  const auto count = [&](Count Figures::* figure, uint64_t more) {
    index_->data_.spaces.count(*use_.space, figure, more);
  };
  count(&Figures::lookups, 1);
  count(&Figures::lookup_tokens, lookup_tokens);
  count(&Figures::matched_tokens, matched_tokens);
}

}  // namespace pkv::prefix
