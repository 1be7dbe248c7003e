package pagedkv

import (
	"testing"
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
