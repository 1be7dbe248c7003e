#include "threads.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace ggml_pagedkv {

using ggml::api;

// The tasks of one call of a runner.
struct Tasks {
  void (*task)(void*, size_t, uint32_t);
  void* context;
  size_t n;
  std::atomic<size_t> next{0};

  void work(uint32_t worker) {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;)
      task(context, i, worker);
  }
};

namespace {

// Functions of the CPU's registration.
using SetPool = void (*)(ggml::Backend*, ggml::Pool*);
using SetThreads = void (*)(ggml::Backend*, int);
using NewPool = ggml::Pool* (*)(void* params);
using FreePool = void (*)(ggml::Pool*);
using ProcAddress = void* (*)(ggml::Registration*, const char*);

constinit ProcAddress cpu_proc_address = nullptr;  // NULL: pools are not watched
constinit SetPool set_pool = nullptr;

// The last pool that a program gave in this thread.
struct Given {
  ggml::Backend* cpu;
  ggml::Pool* pool;
};
constinit thread_local Given given{};

// The CPU backends that have an own pool of the plug-in.
class Owners {
 public:
  bool has(ggml::Backend* cpu) {
    const std::lock_guard lock(mutex_);
    return std::find(all_.begin(), all_.end(), cpu) != all_.end();
  }
  void add(ggml::Backend* cpu) {
    const std::lock_guard lock(mutex_);
    all_.push_back(cpu);
  }
  void remove(ggml::Backend* cpu) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, cpu);
  }

 private:
  std::mutex mutex_;
  std::vector<ggml::Backend*> all_;
};
// Never destroyed, because backends may end after static objects.
Owners& owners() {
  static auto* const all = new Owners;
  return *all;
}

// Programs call it before each graph, nearly all without a pool.
void give_pool(ggml::Backend* cpu, ggml::Pool* pool) {
  given = {cpu, pool};
  if (pool != nullptr || !owners().has(cpu)) set_pool(cpu, pool);
}

void* watching_proc_address(ggml::Registration* cpu, const char* name) {
  if (std::strcmp(name, "ggml_backend_cpu_set_threadpool") == 0)
    return reinterpret_cast<void*>(give_pool);
  return cpu_proc_address(cpu, name);
}

template <class Function>
Function cpu_function(const char* name) {
  ggml::Registration* const cpu = api.backend_dev_backend_reg(api.backend_dev_by_type(0));
  return reinterpret_cast<Function>(cpu_proc_address(cpu, name));
}

// Writes a word, unless it is in memory that cannot be written.
bool write_word(void** to, void* word) {
  const iovec from{&word, sizeof word}, place{to, sizeof word};
  return process_vm_writev(getpid(), &from, 1, &place, 1, 0) == sizeof word;
}

// Idle threads of an own pool look for work for some milliseconds, as between two tokens.
constexpr uint32_t polling = 1;

ggml::Pool* make_pool(int threads) {
  const auto make = cpu_function<NewPool>("ggml_threadpool_new");
  if (make == nullptr || api.threadpool_params_init == nullptr) return nullptr;
  alignas(16) unsigned char params[4096] = {};
  api.threadpool_params_init(params, threads);
  // A mask of 512 CPUs, then the number of threads, their priority, and how long they look for
  // work.
  uint32_t known[3];
  std::memcpy(known, params + 512, sizeof known);
  if (known[0] == static_cast<uint32_t>(threads) && known[1] == 0 && known[2] == 50)
    std::memcpy(params + 520, &polling, sizeof polling);
  return make(params);
}

}  // namespace

void watch_pools() {
  ggml::Registration* const cpu = api.backend_dev_backend_reg(api.backend_dev_by_type(0));
  void** const word =
      reinterpret_cast<ggml::Object*>(cpu)->words + api.layout.registration.proc_address;
  const auto before = reinterpret_cast<ProcAddress>(*word);
  if (api.map_custom1 == nullptr || api.new_graph == nullptr ||
      api.build_forward_expand == nullptr || api.backend_graph_compute == nullptr)
    return;
  set_pool = reinterpret_cast<SetPool>(before(cpu, "ggml_backend_cpu_set_threadpool"));
  // This library must stay where it is from now on.
  Dl_info self{};
  if (set_pool == nullptr || dladdr(reinterpret_cast<void*>(watch_pools), &self) == 0 ||
      dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)
    return;
  cpu_proc_address = before;
  if (!write_word(word, reinterpret_cast<void*>(watching_proc_address))) cpu_proc_address = nullptr;
}

Threads::~Threads() {
  if (own_.cpu != nullptr) owners().remove(own_.cpu);
  if (own_.pool != nullptr && own_.process == getpid())
    cpu_function<FreePool>("ggml_threadpool_free")(own_.pool);
  if (backend_ != nullptr) api.backend_free(backend_);
  if (context_ != nullptr) api.free(context_);
}

void Threads::set(int count) {
  count_ = count;
  const Given last = std::exchange(given, {});
  pool_ = last.cpu != nullptr && last.pool == nullptr ? own_pool(last.cpu) : last.pool;
}

// Returns a pool for a CPU backend without one, or NULL.
ggml::Pool* Threads::own_pool(ggml::Backend* cpu) {
  if (count_ < 2) return nullptr;
  const Own before = own_;
  // A forked child has no threads of its parent.
  if (before.pool == nullptr || before.threads < count_ || before.process != getpid()) {
    ggml::Pool* const pool = make_pool(count_);
    if (pool == nullptr) return nullptr;
    own_ = {pool, before.cpu, count_, getpid()};
  }
  if (before.cpu != cpu) {
    if (before.cpu != nullptr) owners().remove(before.cpu);
    owners().add(cpu);
    own_.cpu = cpu;
  }
  set_pool(cpu, own_.pool);
  if (before.pool != nullptr && before.pool != own_.pool && before.process == getpid())
    cpu_function<FreePool>("ggml_threadpool_free")(before.pool);
  return own_.pool;
}

pkv_runner Threads::runner() {
  if (pool_ == nullptr || count_ < 1) return {};
  return {run, this, static_cast<uint32_t>(count_), 0};
}

void Threads::run(void* self, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
  Threads& threads = *static_cast<Threads*>(self);
  Tasks tasks{task, context, n};
  threads.tasks_ = &tasks;
  if (n > 1 && threads.count_ > 1) threads.run_in_pool();
  tasks.work(0);  // those that are left
}

// Runs tasks_ as a graph of one operation, if that is possible.
void Threads::run_in_pool() {
  if (pool_ == nullptr || !make_graph()) return;
  if (pool_of_backend_ != pool_) {
    // A new one: to change the pool of a backend, ggml must find the one before it alive.
    if (backend_ != nullptr) api.backend_free(backend_);
    backend_ = api.backend_dev_init(api.backend_dev_by_type(ggml::cpu_device), nullptr);
    pool_of_backend_ = backend_ != nullptr ? pool_ : nullptr;
    if (backend_ == nullptr) return;
    set_pool(backend_, pool_);
  }
  cpu_function<SetThreads>("ggml_backend_set_n_threads")(backend_, count_);
  api.backend_graph_compute(backend_, graph_);
}

bool Threads::make_graph() {
  if (graph_ != nullptr) return true;
  constexpr size_t bytes = 1 << 20;  // a graph has room for 2,048 operations
  if (context_ == nullptr) context_ = api.init({bytes, nullptr, false});
  if (context_ == nullptr) return false;
  constexpr int all_threads = -1;
  ggml::Tensor* const number = api.new_tensor_4d(context_, ggml::F32, 1, 1, 1, 1);
  ggml::Tensor* const operation = api.map_custom1(
      context_, number,
      [](ggml::Tensor*, const ggml::Tensor*, int thread, int, void* self) {
        static_cast<Threads*>(self)->tasks_->work(static_cast<uint32_t>(thread));
      },
      all_threads, this);
  graph_ = api.new_graph(context_);
  api.build_forward_expand(graph_, operation);
  return true;
}

}  // namespace ggml_pagedkv
