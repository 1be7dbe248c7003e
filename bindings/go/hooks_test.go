package pagedkv

import (
	"math"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Whether the library logs anything depends on the system, so the test calls the hook itself.
func TestLoggerHearsWhatCSays(t *testing.T) {
	var ends hooks
	heard := ""
	var of LogLevel
	logger := ends.logger(func(level LogLevel, message string) { heard, of = message, level })
	defer ends.forget()
	line := []byte("one line\x00and no more")
	purego.SyscallN(logger.Log, logger.User, uintptr(LogInfo), uintptr(unsafe.Pointer(&line[0])))
	if heard != "one line" || of != LogInfo {
		t.Errorf("heard %q, level %d", heard, of)
	}
	other := ends.logger(func(LogLevel, string) {})
	if other.User == logger.User || other.Log != logger.Log {
		t.Errorf("a second logger is %+v, the first %+v", other, logger)
	}
	ends.forget()
	if len(registry.entries) != 0 {
		t.Errorf("%d entries are left", len(registry.entries))
	}
}

// C's memory of a task is on the stack of the call.
func TestNoTaskRunsAfterItsRunner(t *testing.T) {
	var ends hooks
	defer ends.forget()
	var begun, ended atomic.Int32
	task := purego.NewCallback(func(_, _, worker uintptr) uintptr {
		begun.Add(1)
		time.Sleep(time.Millisecond)
		ended.Add(1)
		if worker != 0 && uint32(worker) != math.MaxUint32 {
			t.Errorf("worker %d", worker)
		}
		return 0
	})
	var late func(task, worker int)
	runner := ends.runner(func(tasks int, run func(task, worker int)) {
		late = run
		go run(0, 0)
		run(1, 1<<32)
		for begun.Load() < 2 {
			time.Sleep(time.Microsecond)
		}
	}, 1)
	purego.SyscallN(runner.Run, runner.User, 2, task, 0)
	if ended.Load() != 2 {
		t.Errorf("it returned after %d of 2 tasks", ended.Load())
	}
	late(0, 0)
	if begun.Load() != 2 {
		t.Error("a task ran after the runner had returned")
	}
}

func TestOnlyNegativeNumbersAreErrors(t *testing.T) {
	for _, errno := range []uintptr{0, 1 << 31, 1 << 63, math.MaxUint64 - 4} {
		if number := int64(negativeErrno(syscall.Errno(errno))); number != -cOfErrno(syscall.EIO) {
			t.Errorf("errno %d becomes %d", errno, number)
		}
	}
	if number := int64(negativeErrno(syscall.ENOSPC)); number != -cOfErrno(syscall.ENOSPC) {
		t.Errorf("ENOSPC becomes %d", number)
	}
	if ms := milliseconds(math.MaxInt64); ms != math.MaxUint32 {
		t.Errorf("the longest time becomes %d ms", ms)
	}
}
