#include "engine/attend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "base/structs.h"
#include "engine/rows.h"

namespace pkv {

namespace {

// Query tokens that share one pass over K and V. Their rows (times the GQA group) stay in the cache beside one tile.
constexpr uint32_t tile_queries = 16;
// K and V bytes of one part: long enough to stream, short enough to balance. It decides where a sequence is cut, so
// it may depend on shapes, never on the number of threads.
constexpr uint64_t part_bytes = 4 << 20;

// Some queries of one sequence: one task per part, merged afterwards if there is more than one.
struct Tile {
  const AttendSequence* sequence;
  uint32_t first;      // query
  uint32_t queries;
  uint64_t begin, end; // positions any of them sees
  uint32_t parts;
  size_t scratch;      // floats from the start of the shared scratch; used where parts > 1
};

struct Task {
  uint32_t tile;
  uint32_t part;
};

// Floats that one part of a tile needs: prepared queries, and the partial result.
struct Sizes {
  explicit Sizes(const AttendShape& shape, uint32_t queries)
      : rows(size_t{queries} * shape.query_heads), q(rows * shape.key_dim), out(rows * shape.value_dim) {}
  size_t part() const { return out + 2 * rows; }
  size_t rows, q, out;
};

class Plan {
 public:
  explicit Plan(const AttendCall& call) : call_(call) {
    const uint64_t token_bytes =
        uint64_t{call.shape.kv_heads} * (call.shape.key_dim + call.shape.value_dim) * dtype_bytes(call.shape.dtype);
    part_tokens_ = std::max<uint64_t>(256, part_bytes / token_bytes / 256 * 256);
    for (const AttendSequence& sequence : call.sequences)
      for (uint32_t first = 0; first < sequence.queries; first += tile_queries) add(sequence, first);
  }

  const std::vector<Tile>& tiles() const { return tiles_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  size_t shared_floats() const { return shared_floats_; }

  // Part bounds are counted from position 0, so that they do not move as the sequence grows.
  uint64_t part_begin(const Tile& tile, uint32_t part) const {
    return part == 0 ? tile.begin : (tile.begin / part_tokens_ + part) * part_tokens_;
  }
  uint64_t part_end(const Tile& tile, uint32_t part) const {
    return part + 1 == tile.parts ? tile.end : (tile.begin / part_tokens_ + part + 1) * part_tokens_;
  }

 private:
  void add(const AttendSequence& sequence, uint32_t first) {
    Tile tile{};
    tile.sequence = &sequence;
    tile.first = first;
    tile.queries = std::min(tile_queries, sequence.queries - first);
    const uint64_t position = sequence.length - sequence.queries + first;
    const uint32_t window = call_.params.window;
    tile.begin = window == 0 || position + 1 < window ? 0 : position + 1 - window;
    tile.end = call_.params.causal ? position + tile.queries : sequence.length;
    // A prompt has tiles enough to keep every thread busy; a decode step is one tile and is cut along its sequence.
    const bool cut = sequence.queries <= tile_queries;
    tile.parts = cut ? static_cast<uint32_t>((tile.end - 1) / part_tokens_ - tile.begin / part_tokens_ + 1) : 1;
    tile.scratch = shared_floats_;
    if (tile.parts > 1) shared_floats_ += tile.parts * Sizes(call_.shape, tile.queries).part();
    for (uint32_t part = 0; part < tile.parts; part++) tasks_.push_back({static_cast<uint32_t>(tiles_.size()), part});
    tiles_.push_back(tile);
  }

  const AttendCall& call_;
  uint64_t part_tokens_;
  std::vector<Tile> tiles_;
  std::vector<Task> tasks_;
  size_t shared_floats_ = 0;
};

class Runner {
 public:
  Runner(const Kernels& kernels, const KvKernels& kv_kernels, const AttendCall& call, const Plan& plan, float* scratch,
         float* worker_scratch, size_t worker_floats)
      : kernels_(kernels), kv_kernels_(kv_kernels), call_(call), plan_(plan), scratch_(scratch), worker_scratch_(worker_scratch),
        worker_floats_(worker_floats) {}

  void run(const Task& task, unsigned worker) const {
    const Tile& tile = plan_.tiles()[task.tile];
    const Sizes sizes(call_.shape, tile.queries);
    float* const own = worker_scratch_ + worker * worker_floats_;
    prepare(tile, own);

    AttendTask attend{};
    attend.kv = tile.sequence->kv;
    attend.group = call_.shape.query_heads / call_.shape.kv_heads;
    attend.queries = tile.queries;
    attend.first_query = tile.sequence->length - tile.sequence->queries + tile.first;
    attend.begin = plan_.part_begin(tile, task.part);
    attend.end = plan_.part_end(tile, task.part);
    attend.causal = call_.params.causal;
    attend.window = call_.params.window;
    attend.q = own;
    attend.out = tile.parts > 1 ? scratch_ + tile.scratch + task.part * sizes.part() : own + sizes.q;
    attend.max = attend.out + sizes.out;
    attend.sum = attend.max + sizes.rows;
    kv_kernels_.attend(attend);
    if (tile.parts == 1) finish(tile, attend.out);
  }

  void finish(const Tile& tile) const { finish(tile, scratch_ + tile.scratch); }

 private:
  void prepare(const Tile& tile, float* q) const {
    QueryTask task{};
    task.kv_heads = call_.shape.kv_heads;
    task.group = call_.shape.query_heads / call_.shape.kv_heads;
    task.queries = tile.queries;
    task.key_dim = call_.shape.key_dim;
    task.scale = call_.params.scale;
    task.rows = rows_from(call_.q, tile.sequence->row + tile.first);
    task.q = q;
    kernels_.prepare(task);
  }

  void finish(const Tile& tile, const float* parts) const {
    const Sizes sizes(call_.shape, tile.queries);
    FinishTask task{};
    task.kv_heads = call_.shape.kv_heads;
    task.group = call_.shape.query_heads / call_.shape.kv_heads;
    task.queries = tile.queries;
    task.value_dim = call_.shape.value_dim;
    task.parts = tile.parts;
    task.out_part_stride = task.stat_part_stride = static_cast<int64_t>(sizes.part());
    task.out = parts;
    task.max = parts + sizes.out;
    task.sum = task.max + sizes.rows;
    task.rows = rows_from(call_.out, tile.sequence->row + tile.first);
    kernels_.finish(task);
  }

  const Kernels& kernels_;
  const KvKernels& kv_kernels_;
  const AttendCall& call_;
  const Plan& plan_;
  float* const scratch_;         // parts of tiles that are merged later
  float* const worker_scratch_;  // per worker: queries, and a result that is finished at once
  const size_t worker_floats_;
};

}  // namespace

pkv_attention_params default_params() {
  pkv_attention_params params{};
  params.struct_size = sizeof params;
  params.causal = 1;
  params.window = PKV_WINDOW_OF_LAYER;
  return params;
}

AttendParams check_params(const pkv_attention_params* given, uint32_t key_dim, uint32_t window_of_layer) {
  const pkv_attention_params params = given == nullptr ? default_params() : read_struct(given, default_params(), "params");
  if (!std::isfinite(params.scale)) fail(PKV_INVALID_ARGUMENT, "scale is %g, not finite", static_cast<double>(params.scale));
  if (params.causal > 1) fail(PKV_INVALID_ARGUMENT, "causal is %u; 0 and 1 are known", params.causal);
  AttendParams result{};
  result.scale = params.scale != 0 ? params.scale : 1 / std::sqrt(static_cast<float>(key_dim));
  result.causal = params.causal != 0;
  result.window = params.window == PKV_WINDOW_OF_LAYER ? window_of_layer : params.window;
  // What left the layer's window is gone: no call can look further back.
  if (window_of_layer != 0 && (result.window == 0 || result.window > window_of_layer))
    fail(PKV_OUT_OF_RANGE, "window is %u (0: none), but this layer keeps only %u tokens", result.window, window_of_layer);
  return result;
}

void attend(Workers& workers, ScratchPool& pool, const Kernels& kernels, const KvKernels& kv_kernels, const AttendCall& call) {
  const Plan plan(call);
  if (plan.tasks().empty()) return;
  uint32_t most_queries = 0;
  for (const Tile& tile : plan.tiles()) most_queries = std::max(most_queries, tile.queries);
  const Sizes most(call.shape, most_queries);
  // A cache line apart, so that workers do not share one.
  const size_t worker_floats = (most.q + most.part() + 15) / 16 * 16;
  ScratchPool::Lease scratch(pool, plan.shared_floats() + 16 + workers.threads() * worker_floats);
  const size_t worker_begin = (plan.shared_floats() + 15) / 16 * 16;
  const Runner runner(kernels, kv_kernels, call, plan, scratch.data(), scratch.data() + worker_begin, worker_floats);

  workers.for_each(plan.tasks().size(), [&](size_t i, unsigned worker) { runner.run(plan.tasks()[i], worker); });
  workers.for_each(plan.tiles().size(), [&](size_t i, unsigned) {
    if (plan.tiles()[i].parts > 1) runner.finish(plan.tiles()[i]);
  });
}

}  // namespace pkv
