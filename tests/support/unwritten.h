// Calls that the recorder of fuzz/reproduce leaves out: those whose arguments it cannot record,
// such as files, and those that use their results.
#pragma once

namespace transcript {

inline thread_local int unwritten = 0;

// While one lives, no call of this thread is recorded.
struct Unwritten {
  Unwritten() { unwritten++; }
  ~Unwritten() { unwritten--; }
  Unwritten(const Unwritten&) = delete;
  Unwritten& operator=(const Unwritten&) = delete;
};

}  // namespace transcript
