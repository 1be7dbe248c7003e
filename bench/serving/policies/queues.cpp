#include <algorithm>
#include <list>

#include "peers.h"

namespace pkv::serve {

namespace {

using Queue = std::list<uint32_t>;  // blocks, the newest first

// What the policies below have in common: which blocks are cached, and where. Blocks of the request
// that runs are in use, and are not evicted.
class Queues {
 public:
  explicit Queues(size_t distinct) : places_(distinct), used_(distinct, 0) {}

  bool has(uint32_t block) const { return places_[block].queue != nullptr; }
  size_t size() const { return size_; }
  void begin(std::span<const uint32_t> text) {
    round_++;
    for (const uint32_t block : text) used_[block] = round_;
  }

 protected:
  bool in_use(uint32_t block) const { return used_[block] == round_; }
  const Queue* queue_of(uint32_t block) const { return places_[block].queue; }
  void push(Queue& queue, uint32_t block) {
    queue.push_front(block);
    places_[block] = {&queue, queue.begin()};
    size_++;
  }
  void move(uint32_t block, Queue& to) {
    Place& place = places_[block];
    to.splice(to.begin(), *place.queue, place.at);
    place.queue = &to;
  }
  void erase(uint32_t block) {
    Place& place = places_[block];
    place.queue->erase(place.at);
    place.queue = nullptr;
    size_--;
  }
  // The oldest block of a queue that is not in use; nullptr if there is none.
  const uint32_t* oldest(const Queue& queue) const {
    const auto found = std::find_if(queue.rbegin(), queue.rend(),
                                    [this](uint32_t block) { return !in_use(block); });
    return found == queue.rend() ? nullptr : &*found;
  }

 private:
  struct Place {
    Queue* queue = nullptr;
    Queue::iterator at;
  };
  std::vector<Place> places_;
  std::vector<uint32_t> used_;  // the last request with a block
  uint32_t round_ = 0;
  size_t size_ = 0;
};

// SIEVE (Zhang et al., NSDI 2024): a hand goes from the oldest to the newest block, spares once
// those that were hit, and evicts the first that was not.
class Sieve : public Queues {
 public:
  Sieve(size_t distinct, uint64_t) : Queues(distinct), visited_(distinct, false) {}

  void hit(uint32_t block) { visited_[block] = true; }
  void insert(uint32_t block) {
    visited_[block] = false;
    push(queue_, block);
  }
  void evict() {
    for (;;) {
      const uint32_t block = *std::prev(hand_);
      const bool spared = in_use(block) || visited_[block];
      if (!in_use(block)) visited_[block] = false;
      if (spared)
        hand_--;
      else
        erase(block);
      if (hand_ == queue_.begin()) hand_ = queue_.end();
      if (!spared) return;
    }
  }

 private:
  Queue queue_;
  Queue::iterator hand_ = queue_.end();  // behind the block that is looked at next
  std::vector<bool> visited_;
};

// S3-FIFO (Yang et al., SOSP 2023): new blocks wait in a small queue, from which those that were
// hit twice go to the main one; blocks that were evicted a short time ago go there at once.
class S3Fifo : public Queues {
 public:
  S3Fifo(size_t distinct, uint64_t capacity)
      : Queues(distinct),
        small_size_(capacity / 10),
        ghosts_size_(capacity - capacity / 10),
        hits_(distinct, 0),
        ghost_(distinct, false) {}

  void hit(uint32_t block) { hits_[block] = static_cast<uint8_t>(std::min(hits_[block] + 1, 3)); }
  void insert(uint32_t block) {
    hits_[block] = 0;
    push(ghost_[block] ? main_ : small_, block);
    ghost_[block] = false;
  }
  void evict() {
    for (;;) {
      const uint32_t *waiting = oldest(small_), *kept = oldest(main_);
      const bool small = waiting != nullptr && (small_.size() > small_size_ || kept == nullptr);
      const uint32_t block = small ? *waiting : *kept;
      if (hits_[block] <= (small ? 1 : 0)) {
        erase(block);
        if (small) remember(block);
        return;
      }
      hits_[block] = static_cast<uint8_t>(small ? 0 : hits_[block] - 1);
      move(block, main_);
    }
  }

 private:
  void remember(uint32_t block) {
    ghost_[block] = true;
    ghosts_.push_front(block);
    if (ghosts_.size() <= ghosts_size_) return;
    ghost_[ghosts_.back()] = false;
    ghosts_.pop_back();
  }

  const size_t small_size_, ghosts_size_;
  Queue small_, main_, ghosts_;
  std::vector<uint8_t> hits_;
  std::vector<bool> ghost_;
};

// W-TinyLFU (Einziger, Friedman and Manes, ACM Transactions on Storage 2017): what leaves a small
// window is kept only if it was asked for more often than the block of the main part that would go
// for it. The main part has a protected segment for what was hit there. Frequencies are counted
// exactly, and halved after ten times as many uses as there are blocks.
class WindowTinyLfu : public Queues {
 public:
  WindowTinyLfu(size_t distinct, uint64_t capacity)
      : Queues(distinct),
        window_size_(std::max<size_t>(capacity / 100, 1)),
        main_size_(capacity - window_size_),
        protected_size_(main_size_ * 4 / 5),
        period_(10 * capacity),
        frequency_(distinct, 0) {}

  void hit(uint32_t block) {
    count(block);
    if (queue_of(block) == &window_) return move(block, window_);
    move(block, protected_);
    if (protected_.size() > protected_size_) move(protected_.back(), probation_);
  }
  // While the main part has room, blocks leave the window without a contest.
  void insert(uint32_t block) {
    count(block);
    push(window_, block);
    const size_t main = probation_.size() + protected_.size();
    if (window_.size() > window_size_ && main < main_size_) move(window_.back(), probation_);
  }
  void evict() {
    const uint32_t* victim = oldest(probation_);
    if (victim == nullptr) victim = oldest(protected_);
    const uint32_t* candidate = window_.size() > window_size_ ? oldest(window_) : nullptr;
    if (victim == nullptr) return erase(*oldest(window_));
    if (candidate == nullptr) return erase(*victim);
    if (frequency_[*candidate] <= frequency_[*victim]) return erase(*candidate);
    const uint32_t admitted = *candidate;
    erase(*victim);
    move(admitted, probation_);
  }

 private:
  void count(uint32_t block) {
    frequency_[block]++;
    if (++counted_ < period_) return;
    counted_ = 0;
    for (uint32_t& frequency : frequency_) frequency /= 2;
  }

  const size_t window_size_, main_size_, protected_size_;
  const uint64_t period_;
  uint64_t counted_ = 0;
  Queue window_, probation_, protected_;
  std::vector<uint32_t> frequency_;
};

// Blocks are used from the last to the first, so that the end of a text is older than its begin.
template <class Policy>
Saved replay(const Blocks& blocks, uint64_t capacity) {
  Policy policy(blocks.distinct, capacity);
  Saved saved;
  for (const Text& text : blocks.texts) {
    const auto used = std::span(text.blocks).first(std::min<size_t>(text.blocks.size(), capacity));
    size_t found = 0;
    while (found < std::min(used.size(), text.asked) && policy.has(used[found])) found++;
    saved.add(found, blocks.tokens);
    policy.begin(used);
    const auto missing = static_cast<size_t>(std::count_if(
        used.begin(), used.end(), [&](uint32_t block) { return !policy.has(block); }));
    while (policy.size() + missing > capacity) policy.evict();
    for (size_t i = used.size(); i-- > 0;)
      if (policy.has(used[i]))
        policy.hit(used[i]);
      else
        policy.insert(used[i]);
  }
  return saved;
}

}  // namespace

Saved replay_sieve(const Blocks& blocks, uint64_t capacity) {
  return replay<Sieve>(blocks, capacity);
}

Saved replay_s3_fifo(const Blocks& blocks, uint64_t capacity) {
  return replay<S3Fifo>(blocks, capacity);
}

Saved replay_w_tinylfu(const Blocks& blocks, uint64_t capacity) {
  return replay<WindowTinyLfu>(blocks, capacity);
}

}  // namespace pkv::serve
