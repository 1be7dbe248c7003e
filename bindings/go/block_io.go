package pagedkv

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// BlockIO copies blocks of opaque groups, which only the engine can read, for example
// between a device and memory.
//
// A cache with a store calls Read from one thread of its own and Write from another; saving and
// loading call them in their goroutine. No step waits for a call. An error is the Cause of that of
// saving or loading, whose Errno is its syscall.Errno or EIO, and a miss of a store. What a step
// computes must be complete for Read once the step is committed, and Write must not overtake
// kernels that were started before. The slices are only valid during the call, which must not call
// the library, nor wait for a goroutine that does. A panic or runtime.Goexit ends the
// program.
//
// A cache that is forgotten is closed once its copies are made. It is not forgotten as long as its
// BlockIO refers to it.
type BlockIO interface {
	// Read copies blocks of a group to memory: to has the bytes of one block after another, all 0.
	// Block i holds tokens[i] tokens. Bytes of other slots may be those of other sequences: leave
	// them 0.
	Read(group int, blocks, tokens []uint32, to []byte) error
	// Write copies the bytes of blocks, one after another, to the blocks of a group.
	Write(group int, blocks []uint32, from []byte) error
}

// blockCopies is an entry of the registry.
type blockCopies struct {
	io     BlockIO
	bytes  []uint64 // of a block, by group
	errors sync.Map // the last one of each thread, by its number
}

func (h *hooks) blockIO(io BlockIO, groups []LayerGroup) raw.BlockIO {
	copies := &blockCopies{io: io}
	for i := range groups {
		copies.bytes = append(copies.bytes, uint64(groups[i].Layers)*groups[i].LayerBytes)
	}
	h.copies = copies
	user := h.register(copies)
	out := raw.BlockIO{User: user, Read: registry.readBlocks, Write: registry.writeBlocks}
	sized(&out)
	return out
}

func (c *blockCopies) memory(group uint32, n uintptr, at unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(at), uint64(n)*c.bytes[group])
}

// answer is what C gets: 0 or a negative errno, of which it reads 32 bits.
func (c *blockCopies) answer(err error) uintptr {
	if err == nil {
		return 0
	}
	c.errors.Store(threadID(), err)
	return negativeErrno(err)
}

// negativeErrno returns the errno of an error as a hook returns it to C, which would take 0 or a
// positive number for success: EIO if it is none of the system's.
func negativeErrno(err error) uintptr {
	errno := syscall.EIO
	errors.As(err, &errno)
	number := cOfErrno(errno)
	if number <= 0 || number > math.MaxInt32 {
		number = cOfErrno(syscall.EIO)
	}
	return uintptr(-number)
}

// withCause runs a call that may call hooks in this thread. Their error is the cause of its error.
func (c *blockCopies) withCause(function func() error) error {
	if c == nil {
		return function()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := threadID()
	c.errors.Delete(thread)
	err := function()
	var e *Error
	if cause, there := c.errors.LoadAndDelete(thread); there && errors.As(err, &e) {
		e.Cause = cause.(error)
	}
	return err
}

func readBlocksHook(
	user uintptr, group uint32, n uintptr, blocks, tokens *uint32, to unsafe.Pointer,
) uintptr {
	return guarded(func() uintptr {
		c := registered(user).(*blockCopies)
		return c.answer(c.io.Read(int(group), unsafe.Slice(blocks, n), unsafe.Slice(tokens, n),
			c.memory(group, n, to)))
	})
}

func writeBlocksHook(
	user uintptr, group uint32, n uintptr, blocks *uint32, from unsafe.Pointer,
) uintptr {
	return guarded(func() uintptr {
		c := registered(user).(*blockCopies)
		return c.answer(c.io.Write(int(group), unsafe.Slice(blocks, n), c.memory(group, n, from)))
	})
}
