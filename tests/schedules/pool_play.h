// One pool, the threads that use it and what must hold. A thread's program is text, calls separated
// by ';', blocks named by letters:
//
//   alloc a b    two blocks or none; writes their payloads
//   retain a     a list, too; then reads the payload
//   share a      the same with retain_table, for blocks that are held (a list, too)
//   release a    reads the payload, then gives up the reference (a list, too)
//   drop a       gives up the reference without reading
//   write a      writes the slots
//   fill a 2     set_filled
//   look a       the state of the block; of a full one of this life, the slots are read
//   publish a    puts the block where others can take it, in no order with anything
//   take a       takes it from there
//   keep a b     holds back blocks 0 and 1, if both are free; writes their payloads
//   give a b     reads the payloads and gives these blocks out again
//   rest         if all blocks are counted free, the pool is at rest: validate
//   alone        takes all blocks that the pool lists as left with one reference, and looks at them
//   hold 62      alloc that many and keep them (setup only)
//
// A thread does not use blocks that it was refused.
#pragma once

#include <cstring>
#include <memory_resource>
#include <optional>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "base/status.h"
#include "engine/memory/pool.cpp"
#include "history.h"
#include "memory.h"

namespace schedules {

struct Case {
  const char* name = "";
  uint32_t blocks = 1;
  const char* setup = "";
  const char* threads = "";  // The programs of the threads, separated by '|'.
  // Small enough for a search without reduction.
  bool compare_unreduced = false;
  bool is_long = false;  // Takes more than some seconds.
  uint32_t shards = 1;
  uint32_t first_generation = 0;
  uint32_t weak_failures = 1;  // Spurious failures of swaps, for each thread.
  // False means that at most one thread allocs, so no word of bits needs a second look.
  bool rivals = true;
  bool alone = false;  // The pool lists blocks that are left with one reference.
  Relaxations relaxed{};
};

class PoolPlay {
 public:
  static constexpr uint32_t block_size = 2, max_blocks = 136, max_steps = 300;

  // The play of the case that is being explored. Threads find it here.
  inline static PoolPlay* now = nullptr;

  explicit PoolPlay(const Case& played) : case_(played), setup_(parse(played.setup)) {
    std::istringstream programs(played.threads);
    for (std::string program; std::getline(programs, program, '|');)
      programs_.push_back(parse(program));
    now = this;
    memory.max_weak_failures = played.weak_failures;
    describe_value = describe;
    prepare();
    name_locations();
  }

  // Plays one execution. A finding is in scheduler.finding().
  Outcome play(Strategy& strategy) {
    prepare();
    const int threads = static_cast<int>(programs_.size());
    memory.fork(threads);
    const Outcome outcome = scheduler.run(threads, max_steps, run_thread, strategy);
    memory.join(threads);
    if (outcome == Outcome::finished) judge();
    return scheduler.outcome();
  }

  // The different histories so far.
  const std::unordered_set<std::string>& histories() const { return judged_; }

 private:
  using Pool = pkv::memory::BasicPool<ScheduledAtomics>;

  struct Step {
    std::string verb, text;
    std::vector<int> slots;
    uint32_t n = 0;
  };
  struct Held {
    Block block = 0;
    bool usable = false;
  };
  struct Payload {
    Cell whole, slots;
  };
  using Slots = std::array<Held, 26>;

  static std::vector<Step> parse(const std::string& text) {
    std::vector<Step> steps;
    std::istringstream calls(text);
    for (std::string call; std::getline(calls, call, ';');) {
      Step step;
      std::istringstream words(call);
      words >> step.verb;
      step.text = step.verb;
      for (std::string word; words >> word; step.text += " " + word)
        if (word[0] >= 'a' && word[0] <= 'z')
          step.slots.push_back(word[0] - 'a');
        else
          step.n = static_cast<uint32_t>(std::stoul(word));
      steps.push_back(step);
    }
    return steps;
  }

  // A pool type without shards has one.
  template <class AnyPool>
  static void build_pool(std::optional<AnyPool>& pool, const Case& played,
                         std::pmr::memory_resource* arena) {
    if constexpr (std::is_constructible_v<AnyPool, uint32_t, std::pmr::memory_resource*, uint32_t,
                                          uint32_t>)
      pool.emplace(played.blocks, arena, played.first_generation, played.shards);
    else
      pool.emplace(played.blocks, arena, played.first_generation);
  }

  void prepare() {
    pool_.reset();
    arena_.release();
    memory.begin();
    build_pool(pool_, case_, &arena_);
    queue_begin_ = memory.locations();
    if (case_.alone) pool_->list_alone();
    seen_alone_.assign(case_.blocks, no_generation);
    index_.emplace(Block{0});
    std::fill_n(payloads_, case_.blocks, Payload{});
    slots_[0] = Slots{};
    turn_ = 0;
    recording_ = false;
    for (const Step& step : setup_) perform(step);
    recording_ = true;
    history_.clear();
    for (size_t thread = 1; thread <= programs_.size(); thread++) slots_[thread] = slots_[0];
    if (begin_.states.empty()) begin_ = observe();
  }

  Model observe() {
    Model model;
    for (uint32_t id = 0; id < case_.blocks; id++)
      model.states.push_back(pkv::memory::pack(pool_->state(id)));
    return model;
  }

  // state(i) reads the state of block i, and free_count() the counters, whose index is the last
  // location. Those of the queue come before it. The remaining locations are words of bits.
  void name_locations() {
    for (uint32_t location = 0; location < memory.locations(); location++)
      memory.name(location,
                  (location < queue_begin_ ? "bits#" : "queue#") + std::to_string(location));
    memory.name(memory.locations() - 1, "index");
    for (uint32_t id = 0; id < case_.blocks; id++) {
      pool_->state(id);
      state_locations_.push_back(memory.touched().back());
      memory.name(memory.touched().back(), "state[" + std::to_string(id) + "]");
    }
    memory.touched().clear();
    pool_->free_count();
    for (uint32_t location : memory.touched())
      memory.name(location, "count#" + std::to_string(location));
    bits_.clear();
    for (uint32_t location = 0; location < memory.locations(); location++)
      bits_.push_back(memory.name(location).starts_with("bits"));
    memory.watch_loads = case_.rivals ? nullptr : watch_walk;
  }

  // A reservation without rivals finds its bit at the first look at each word. The top of pool.h
  // argues why.
  static void watch_walk(uint32_t location) {
    const int thread = scheduler.current();
    if (!now->bits_[location]) return;
    uint32_t& walked = now->walked_[thread][location];
    if (walked == now->turn_of_[thread])
      scheduler.found(
          "an alloc without rivals found nothing in a word that has free blocks, and had to look "
          "again");
    walked = now->turn_of_[thread];
  }

  static std::string describe(const std::string& name, uint64_t value) {
    char text[96];
    if (name.starts_with("state")) {
      const BlockState state = pkv::memory::unpack(value);
      std::snprintf(text, sizeof text, "{generation %u, references %u, filled %u}",
                    state.generation, state.references, state.filled);
    } else {
      std::snprintf(text, sizeof text, name.starts_with("count") ? "%llu" : "0x%llx",
                    static_cast<unsigned long long>(value));
    }
    return text;
  }

  static void run_thread(int thread) {
    for (const Step& step : now->programs_[static_cast<size_t>(thread) - 1]) now->perform(step);
  }

  void perform(const Step& step);
  void alloc(const Step& step, Slots& slots);
  void retain(const Step& step, Slots& slots);
  void release(const Step& step, Slots& slots);
  void hold_back(const Step& step, Slots& slots);
  void give_out(const Step& step, Slots& slots);
  void change(const Step& step, Held& held);
  void look(const Step& step, Held& held);
  void rest();
  void take_alone();
  void judge();
  void judge_alone();
  std::string history_key(const Model& end) const;

  Operation begin(Call call, Block block = 0, uint32_t n = 0) {
    Operation op;
    op.call = call;
    op.thread = scheduler.current();
    op.block = block;
    op.n = n;
    op.turn = turn_of_[op.thread];
    op.began = memory.clock();
    return op;
  }
  void end(Operation op, pkv_status status) {
    op.status = status;
    op.ended = memory.clock().times[op.thread];
    op.place = history_.size();
    if (recording_) history_.push_back(op);
  }

  const Case& case_;
  const std::vector<Step> setup_;
  std::vector<std::vector<Step>> programs_;

  std::byte buffer_[8192];
  std::pmr::monotonic_buffer_resource arena_{buffer_, sizeof buffer_};
  std::optional<Pool> pool_;
  std::optional<ScheduledAtomics::atomic<uint64_t>> index_;
  uint32_t queue_begin_ = 0;  // the first location of the pool's queue
  // By block: the generation in which it was listed, and then seen to have one reference.
  static constexpr uint32_t no_generation = ~uint32_t{0};
  std::vector<uint32_t> seen_alone_;
  Payload payloads_[max_blocks];
  Slots slots_[max_threads];
  uint32_t turn_ = 0, turn_of_[max_threads] = {};
  bool recording_ = false;
  std::vector<Operation> history_;
  Model begin_;
  std::vector<uint32_t> state_locations_;
  std::vector<bool> bits_;
  uint32_t walked_[max_threads][2 * max_blocks] = {};
  std::unordered_set<std::string> judged_;
};

}  // namespace schedules

#include "pool_play_impl.h"
