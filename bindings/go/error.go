package pagedkv

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"syscall"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// Family is the kind of a Status, an error to compare others with.
type Family int32

// The families of statuses.
const (
	ErrMisuse      Family = 1 // The call is wrong: correct it.
	ErrUnavailable Family = 2 // Not now: something has run out or is in use; try again later.
	ErrCorrupted   Family = 3 // The data cannot be used.
	ErrSystem      Family = 4 // The system or a server refused: see Errno.
	ErrBug         Family = 5 // An invariant of the library does not hold: please report it.
)

func (f Family) Error() string {
	switch f {
	case ErrMisuse:
		return "misuse"
	case ErrUnavailable:
		return "not now"
	case ErrCorrupted:
		return "corruption"
	case ErrSystem:
		return "system"
	case ErrBug:
		return "a bug in the library"
	}
	return fmt.Sprintf("family %d", int32(f))
}

// Error returns the name of the status in C.
func (s Status) Error() string {
	if name, known := statusNames[s]; known {
		return name
	}
	return fmt.Sprintf("status %d", int32(s))
}

// Is makes a status match its family, and ErrStaleHandle match fs.ErrClosed.
func (s Status) Is(target error) bool {
	if target == fs.ErrClosed {
		return s == ErrStaleHandle
	}
	family, ok := target.(Family)
	return ok && s/100 == Status(family)
}

// Error is the error of a call of the library.
type Error struct {
	Op       string // What failed: "begin".
	Status   Status
	Sentence string // One sentence with the numbers.
	Group    int    // With ErrOutOfBlocks: the first layer group that lacks blocks; -1: no group.
	// The entry of a list that the call refused: a step of Begin, a block or an item. -1: none.
	Index int
	// With ErrOutOfBlocks: how many blocks must be freed before the same call can succeed.
	BlocksShort uint64
	Errno       syscall.Errno // With ErrIO: the error of the system; 0: none.
	Cause       error         // The error of the caller's io.Reader, io.Writer or BlockIO; or nil.
}

func (e *Error) Error() string {
	text := e.Sentence + " (" + e.Status.Error() + ")"
	if !strings.HasPrefix(text, e.Op) { // some sentences name the call themselves
		text = e.Op + ": " + text
	}
	text = "pagedkv: " + text
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is reports whether the cause is target, or Errno matches it (fs.ErrNotExist); errors.Is finds the
// status by Unwrap.
func (e *Error) Is(target error) bool {
	return e.Cause != nil && errors.Is(e.Cause, target) || e.Errno != 0 && errors.Is(e.Errno, target)
}

// Unwrap returns the status, which errors.Is compares.
func (e *Error) Unwrap() error { return e.Status }

// call closes waiting objects and runs a function of the library; owner is not finalized before it
// returns. The error sentence belongs to the thread, so the goroutine stays on its thread until the
// sentence is read.
func call(op string, owner any, function func() raw.Status) error {
	if !library.Ready() {
		if err := library.Load(""); err != nil {
			return err
		}
	}
	closeWaiting()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := function()
	runtime.KeepAlive(owner)
	if status == raw.OK {
		return nil
	}
	return lastError(op, Status(status))
}

// lastError returns the error of the last failed call on this thread.
func lastError(op string, status Status) *Error {
	details := raw.LastErrorDetails()
	// The library's values for none are -1 as signed numbers.
	return &Error{
		Op: op, Status: status, Sentence: raw.LastError(), Group: int(int32(details.Group)),
		Index: int(details.Index), BlocksShort: details.BlocksShort,
		Errno: errnoOfC(uint32(details.SystemError)),
	}
}

// plainError returns an error that concerns no group, no entry of a list and no blocks.
func plainError(op string, status Status, sentence string) *Error {
	return &Error{Op: op, Status: status, Sentence: sentence, Group: -1, Index: -1}
}

func misuse(op string, status Status, format string, arguments ...any) error {
	return plainError(op, status, fmt.Sprintf(format, arguments...))
}

// unsigned32 converts a number for C, where the largest values of uint32_t mean something else.
func unsigned32(op, name string, number int) (uint32, error) {
	if number < 0 || number >= 1<<31 {
		return 0, misuse(op, ErrOutOfRange, "%s is %d, and must be 0 to 2147483647", name, number)
	}
	return uint32(number), nil
}

func unsigned64(op, name string, number int) (uint64, error) {
	if number < 0 {
		return 0, misuse(op, ErrOutOfRange, "%s is %d, and must not be negative", name, number)
	}
	return uint64(number), nil
}

// first returns the address of a slice's elements, nil if it is empty.
func first[T any](slice []T) *T {
	if len(slice) == 0 {
		return nil
	}
	return &slice[0]
}

// optional is first for a list that may be left out: an empty one is not nil in C either.
func optional[T any](slice []T) *T {
	if slice != nil && len(slice) == 0 {
		return new(T)
	}
	return first(slice)
}

// list returns all entries that a C function lists.
func list[T any](
	n numbers, owner any, fill func(capacity uint64, entries *T, count *uint64) raw.Status,
) ([]T, error) {
	var entries []T
	for {
		var count uint64
		err := n.call(owner, func() raw.Status {
			return fill(uint64(len(entries)), first(entries), &count)
		})
		if err == nil {
			return entries[:count], nil
		}
		if !errors.Is(err, ErrBufferTooSmall) || count <= uint64(len(entries)) {
			return nil, err
		}
		entries = make([]T, count)
	}
}
