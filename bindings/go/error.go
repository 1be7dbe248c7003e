package pagedkv

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// Family is the kind of a Status, an error to compare others with.
type Family int32

// The families of statuses.
const (
	ErrMisuse    Family = 1 // Fix the call.
	ErrExhausted Family = 2 // Free something, then try again; not with ErrTooLarge.
	ErrCorrupted Family = 3 // The data is bad.
	ErrSystem    Family = 4 // See the sentence.
	ErrBug       Family = 5 // An invariant of the library does not hold: please report it.
)

func (f Family) Error() string {
	switch f {
	case ErrMisuse:
		return "misuse"
	case ErrExhausted:
		return "exhaustion"
	case ErrCorrupted:
		return "corruption"
	case ErrSystem:
		return "system"
	case ErrBug:
		return "a bug in the library"
	}
	return fmt.Sprintf("family %d", int32(f))
}

// Error gives the name that C has for the status.
func (s Status) Error() string {
	if name, known := statusNames[s]; known {
		return name
	}
	return fmt.Sprintf("status %d", int32(s))
}

// Is tells that a status is of its family, and that a stale handle is what package fs calls closed.
func (s Status) Is(target error) bool {
	if target == fs.ErrClosed {
		return s == ErrStaleHandle
	}
	family, ok := target.(Family)
	return ok && s/100 == Status(family)
}

// Error is what a call of the library said.
type Error struct {
	Op       string // What failed: "begin".
	Status   Status
	Sentence string // One sentence with the numbers.
	// Of ErrOutOfBlocks, from Begin and Resume: how many blocks must be freed before the same call
	// can work.
	BlocksShort uint64
	Cause       error // What the caller's own io.Reader or io.Writer said; nil otherwise.
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

// Is reports whether the cause is target; errors.Is finds the status by Unwrap.
func (e *Error) Is(target error) bool { return e.Cause != nil && errors.Is(e.Cause, target) }

// Unwrap gives the status, which errors.Is compares.
func (e *Error) Unwrap() error { return e.Status }

// call runs a function of the library, after what waits to be closed; owner is not finalized before
// it returned. The sentence belongs to the thread, so the goroutine stays on its thread until that
// is read.
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
	return &Error{Op: op, Status: Status(status), Sentence: raw.LastError()}
}

func misuse(op string, status Status, format string, arguments ...any) error {
	return &Error{Op: op, Status: status, Sentence: fmt.Sprintf(format, arguments...)}
}

// withBlocksShort completes the error of a call that wrote how many blocks are short.
func withBlocksShort(err error, short uint64) error {
	var e *Error
	if errors.As(err, &e) && e.Status == ErrOutOfBlocks {
		e.BlocksShort = short
	}
	return err
}

// unsigned32 is a number that C takes as uint32_t and whose largest values mean something else.
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

// first is the address of a slice's elements, nil where there are none.
func first[T any](slice []T) *T {
	if len(slice) == 0 {
		return nil
	}
	return &slice[0]
}

// list asks for as many entries as there are.
func list[T any](
	op string, owner any, fill func(capacity uint64, entries *T, count *uint64) raw.Status,
) ([]T, error) {
	var entries []T
	for {
		var count uint64
		err := call(op, owner, func() raw.Status {
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
