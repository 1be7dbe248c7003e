// Threads that take turns on one real thread. A switch is a pair of _setjmp and _longjmp, which
// make no system call; ucontext only makes the stacks. A fiber is never unwound: whatever its
// frames hold is dropped when it is started anew, so a body must own no memory.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace schedules {

class Fiber {
 public:
  using Body = void (*)(int);

  // Makes a fiber of the caller's own stack.
  Fiber() = default;

  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next switch to this fiber call body(number), which must not return.
  void restart(Body body, int number) {
    body_ = body;
    number_ = number;
    if (stack_ == nullptr) make_stack();
    fresh_ = true;
  }

  static void switch_to(Fiber& from, Fiber& to) {
    if (_setjmp(from.here_) != 0) return;
    const bool fresh = to.fresh_;
    to.fresh_ = false;
    _longjmp(fresh ? to.bottom_ : to.here_, 1);
  }

 private:
  static constexpr size_t stack_bytes = 128 * 1024;

  void make_stack() {
    stack_ = std::make_unique<char[]>(stack_bytes);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    made_ = this;
    makecontext(&context_, bottom, 0);
    swapcontext(&back_, &context_);
  }

  // Each start jumps to this frame.
  static void bottom() {
    Fiber* const self = made_;
    if (_setjmp(self->bottom_) == 0) setcontext(&self->back_);
    self->body_(self->number_);
  }

  inline static Fiber* made_ = nullptr;
  std::unique_ptr<char[]> stack_;
  ucontext_t context_{}, back_{};
  jmp_buf bottom_, here_;
  Body body_ = nullptr;
  int number_ = 0;
  bool fresh_ = false;
};

}  // namespace schedules
