// Calls from inside the logger. The library logs if the OS offers no huge pages. Here a filter
// makes the OS refuse them.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "matrix.h"

namespace hostile::logger_test {
namespace {

// Makes madvise() fail in this process from now on.
bool refuse_madvise() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Logger, CallsFromInsideAreRefused) {
  const std::string failed = in_child([] {
    World world;
    std::vector<Values> values;
    for (const Function& function : all_rows()) values.push_back(valid_values(function, world));
    HOSTILE_CHECK(refuse_madvise(), "skip: no filter can be set here");
    world.remember();
    size_t refused = 0, called = 0;
    world.hooks.inside_log = [&] {
      for (size_t i = 0; i < all_rows().size(); i++) {
        const Function& function = all_rows()[i];
        if (!function.tells_status || !function.library->has_hooks || function.works_in_hooks)
          continue;
        called++;
        refused += function.call(values[i]) == PKV_REENTRANT;
      }
    };
    ModelConfig config = small_model(8);
    config.logger = world.hooks.logger();
    config.isa = PKV_ISA_SCALAR;  // Then nothing is logged about the CPU.
    pkv_cache cache = nullptr;
    OK(pkv_cache_create(&config, &cache));
    HOSTILE_CHECK(world.hooks.lines() == 1, "%llu lines were logged",
                  static_cast<unsigned long long>(world.hooks.lines()));
    HOSTILE_CHECK(called > 40 && refused == called, "%zu of %zu calls were refused", refused,
                  called);
    world.check_memory();
    world.check_state();
    OK(pkv_cache_validate(cache));
    OK(pkv_cache_destroy(cache));
    world.close();
  });
  if (failed.find("skip: ") != std::string::npos) GTEST_SKIP() << failed;
  EXPECT_EQ(failed, "");
}

}  // namespace
}  // namespace hostile::logger_test
