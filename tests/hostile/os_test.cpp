// What the room with the system's calls does where the system refuses them, as older kernels and
// filters of containers do. Each case is a child process with a filter.
#include "base/os.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pkv {
namespace {

// Makes a system call fail in this process from now on.
bool refuse(uint32_t call) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Returns whether `works` is true in a child in which the call is refused.
template <class Works>
testing::AssertionResult without(uint32_t call, const Works& works) {
  constexpr int no_filter = 2;
  const pid_t child = fork();
  if (child == 0) _exit(!refuse(call) ? no_filter : works() ? 0 : 1);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return testing::AssertionFailure() << "the child ended with " << status;
  if (WEXITSTATUS(status) == no_filter)
    return testing::AssertionSuccess() << "no filter works here";
  return WEXITSTATUS(status) == 0 ? testing::AssertionSuccess() : testing::AssertionFailure();
}

TEST(System, ProcessorsAreCountedWithoutTheirMask) {
  EXPECT_TRUE(without(SYS_sched_getaffinity, [] { return os::processor_count() >= 1; }));
}

TEST(System, PagesAreFilledByWritingWhatTheyHold) {
  EXPECT_TRUE(without(SYS_madvise, [] {
    std::vector<unsigned char> bytes(100'000, 7);
    os::populate(bytes.data(), bytes.size());
    return bytes == std::vector<unsigned char>(100'000, 7);
  }));
}

TEST(System, MemoryIsMappedWithoutHugePages) {
  EXPECT_TRUE(without(SYS_madvise, [] {
    bool huge = true;
    void* const memory = os::map(1 << 20, PKV_HUGE_PAGES_ADVISE, &huge);
    if (memory == nullptr || huge) return false;
    os::unmap(memory, 1 << 20, PKV_HUGE_PAGES_ADVISE);
    return true;
  }));
}

TEST(System, HugePagesAreThereOrRefused) {
  bool huge = false;
  constexpr size_t size = 3 << 20;  // This is no multiple of a huge page.
  if (void* const memory = os::map(size, PKV_HUGE_PAGES_REQUIRE, &huge); memory != nullptr) {
    EXPECT_TRUE(huge);
    os::unmap(memory, size, PKV_HUGE_PAGES_REQUIRE);
  }
  EXPECT_EQ(nullptr, os::map(SIZE_MAX, PKV_HUGE_PAGES_REQUIRE, &huge));
  EXPECT_EQ(nullptr, os::map(SIZE_MAX, PKV_HUGE_PAGES_OFF, &huge));
}

TEST(System, BarriersAreWaitedForWithoutTheCall) {
  EXPECT_TRUE(without(SYS_membarrier, [] {
    if (os::prepare_process_barrier()) return false;
    os::process_barrier();
    return true;
  }));
}

}  // namespace
}  // namespace pkv
