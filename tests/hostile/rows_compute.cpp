// The rows of compute.h.
#include "matrix.h"

// What the library looks up of OpenMP.
extern "C" {
[[gnu::visibility("default")]] int omp_get_max_threads() { return 1; }
[[gnu::visibility("default")]] void GOMP_parallel(void (*work)(void*), void* data, unsigned,
                                                  unsigned) {
  work(data);
}
}

namespace hostile {

std::vector<Function> compute_rows() {
  static const pkv_allocator without_functions{};
  static const pkv_runner no_run{nullptr, nullptr, 1, 0};
  static const auto run = [](void*, size_t n, void (*task)(void*, size_t, uint32_t),
                             void* context) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
  };
  static const pkv_runner good{run, nullptr, 3, 0}, no_threads{run, nullptr, 0, 0},
      many{run, nullptr, 4097, 0};
  const auto config = [](World& world) {
    return made<pkv_compute_config>({.threads = 1, .allocator = world.hooks.allocator()});
  };
  const auto in = in_struct<pkv_compute_config>(0);
  Function create{
      ROW(pkv_compute_create),
      {optional(config_in<pkv_compute_config>(config)), out<pkv_compute>()},
      {in(WITH(it.threads = 4097), invalid), in(WITH(it.threads = UINT32_MAX), invalid),
       in(WITH(it.threads = 0), fine),
       in(WITH(it.isa = pkv::test::isa_supported(PKV_ISA_NEON) ? PKV_ISA_AVX2 : PKV_ISA_NEON),
          unsupported),
       in(WITH(it.allocator = &without_functions), invalid),
       in(WITH(it.runner = &no_run, it.threads = 0), invalid),
       in(WITH(it.runner = &no_threads, it.threads = 0), invalid),
       in(WITH(it.runner = &many, it.threads = 0), invalid), in(WITH(it.runner = &good), invalid),
       in(WITH(it.runner = &good, it.threads = 0), fine)},
      [](World&, const Values& values) {
        OK(pkv_compute_destroy(*reinterpret_cast<pkv_compute*>(values[1])));
      }};
  Function destroy{ROW(pkv_compute_destroy), {handle(Handle::compute, true)}};
  destroy.closes = true;
  return {create,
          destroy,
          {ROW(pkv_compute_get_info),
           {optional(handle(Handle::compute)), struct_out(sizeof(pkv_compute_info))}},
          {ROW(pkv_openmp_runner), {out<pkv_runner>()}}};
}

}  // namespace hostile
