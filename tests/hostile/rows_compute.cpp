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
      many{run, nullptr, 4097, 0}, reserved{run, nullptr, 1, 1};
  const auto config = [](World& world) {
    auto value = made<pkv_compute_config>();
    value.threads = 1;
    value.allocator = world.hooks.allocator();
    return value;
  };
  const auto field = [](std::function<void(pkv_compute_config&)> change) {
    return within(0, std::move(change));
  };
  const Wanted invalid = {PKV_INVALID_ARGUMENT};
  Function create{
      ROW(pkv_compute_create),
      {optional(config_in<pkv_compute_config>(config)), out<pkv_compute>()},
      {{"4097 threads", field([](auto& c) { c.threads = 4097; }), invalid},
       {"UINT32_MAX threads", field([](auto& c) { c.threads = UINT32_MAX; }), invalid},
       {"all threads", field([](auto& c) { c.threads = 0; }), {PKV_OK}},
       {"unknown isa", field([](auto& c) { set_enum(c.isa, 99); }), invalid},
       {"negative isa", field([](auto& c) { set_enum(c.isa, -1); }), invalid},
       {"isa of another processor",
        field([](auto& c) {
          int32_t neon = 0;
          OK(pkv_isa_supported(PKV_ISA_NEON, &neon));
          c.isa = neon != 0 ? PKV_ISA_AVX2 : PKV_ISA_NEON;
        }),
        {PKV_UNSUPPORTED}},
       {"reserved set", field([](auto& c) { c.reserved = 1; }), invalid},
       {"allocator without functions", field([](auto& c) { c.allocator = &without_functions; }),
        invalid},
       {"runner without run", field([](auto& c) { c.runner = &no_run, c.threads = 0; }), invalid},
       {"runner without threads", field([](auto& c) { c.runner = &no_threads, c.threads = 0; }),
        invalid},
       {"runner with 4097 threads", field([](auto& c) { c.runner = &many, c.threads = 0; }),
        invalid},
       {"runner, reserved set", field([](auto& c) { c.runner = &reserved, c.threads = 0; }),
        invalid},
       {"runner and threads", field([](auto& c) { c.runner = &good; }), invalid},
       {"runner", field([](auto& c) { c.runner = &good, c.threads = 0; }), {PKV_OK}}},
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
