// The wrappers of system calls, if the OS refuses these, as older kernels and the filters of
// containers do. Each case is a child process with a filter.
#include "base/os.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pkv::os_test {
namespace {

// A system call that fails, with any first argument or only with a given one.
struct Refused {
  uint32_t call;
  std::optional<uint32_t> first = std::nullopt;
};

// Makes a system call fail in this process from now on.
bool refuse(const Refused& refused) {
  const uint32_t first = refused.first.value_or(0), mask = refused.first ? ~0u : 0;
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused.call, 0, 4),
                        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
                        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Returns whether `works` is true in a child in which the call is refused.
template <class Works>
testing::AssertionResult without(const Refused& refused, const Works& works) {
  constexpr int no_filter = 2;
  const pid_t child = fork();
  if (child == 0) _exit(!refuse(refused) ? no_filter : works() ? 0 : 1);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return testing::AssertionFailure() << "the child ended with " << status;
  if (WEXITSTATUS(status) == no_filter)
    return testing::AssertionSuccess() << "no filter works here";
  return WEXITSTATUS(status) == 0 ? testing::AssertionSuccess() : testing::AssertionFailure();
}

TEST(System, ProcessorsAreCountedWithoutTheirMask) {
  EXPECT_TRUE(without({SYS_sched_getaffinity}, [] { return os::processor_count() >= 1; }));
}

TEST(System, RandomNumbersDifferWithoutTheCall) {
  const uint64_t one = os::random_number();
  EXPECT_NE(one, os::random_number());
  EXPECT_TRUE(without({SYS_getrandom}, [&] {
    const uint64_t other = os::random_number();
    return other != one && other != os::random_number();
  }));
}

TEST(System, PagesAreFilledByWritingWhatTheyHold) {
  EXPECT_TRUE(without({SYS_madvise}, [] {
    std::vector<unsigned char> bytes(100'000, 7);
    os::populate(bytes.data(), bytes.size());
    return bytes == std::vector<unsigned char>(100'000, 7);
  }));
}

TEST(System, MemoryIsMappedWithoutHugePages) {
  EXPECT_TRUE(without({SYS_madvise}, [] {
    bool huge = true;
    void* const memory = os::map(1 << 20, PKV_HUGE_PAGES_ADVISE, &huge);
    if (memory == nullptr || huge) return false;
    os::unmap(memory, 1 << 20, PKV_HUGE_PAGES_ADVISE);
    return true;
  }));
}

TEST(System, HugePagesAreThereOrRefused) {
  bool huge = false;
  constexpr size_t size = 3 << 20;  // This is not a multiple of a huge page.
  if (void* const memory = os::map(size, PKV_HUGE_PAGES_REQUIRE, &huge); memory != nullptr) {
    EXPECT_TRUE(huge);
    os::unmap(memory, size, PKV_HUGE_PAGES_REQUIRE);
  }
  EXPECT_EQ(nullptr, os::map(SIZE_MAX, PKV_HUGE_PAGES_REQUIRE, &huge));
  EXPECT_EQ(nullptr, os::map(SIZE_MAX, PKV_HUGE_PAGES_OFF, &huge));
}

TEST(System, BarriersAreWaitedForWithoutTheCall) {
  EXPECT_TRUE(without({SYS_membarrier}, [] {
    if (os::prepare_process_barrier()) return false;
    // Signals repeatedly wake it too early.
    signal(SIGALRM, [](int) {});
    const itimerval often{{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
    const auto begin = std::chrono::steady_clock::now();
    os::process_barrier();
    return std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(1);
  }));
}

TEST(System, BarriersThatAreAllowedButFailAreNone) {
  EXPECT_TRUE(without({SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED},
                      [] { return !os::prepare_process_barrier(); }));
}

TEST(System, BarriersRegisterTheProcessWhereItIsNot) {
  const auto barrier = [](int command) { return syscall(SYS_membarrier, command, 0, 0); };
  const long known = barrier(MEMBARRIER_CMD_QUERY);
  if (known < 0 || (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    GTEST_SKIP() << "this kernel has no such barrier";
  if (barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    GTEST_SKIP() << "something else has registered this process";
  os::process_barrier();
  EXPECT_EQ(0, barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

}  // namespace
}  // namespace pkv::os_test
