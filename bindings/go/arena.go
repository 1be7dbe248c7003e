package pagedkv

import (
	"fmt"
	"unsafe"
)

// arena is memory outside of Go's heap, for structs that point to structs, which cgo's rules do not
// allow in Go's memory.
type arena struct {
	memory []byte
	used   int
}

func newArena(size int) (*arena, error) {
	memory, err := mapMemory(size)
	if err != nil {
		return nil, fmt.Errorf("pagedkv: no memory for %d bytes of arguments: %w", size, err)
	}
	return &arena{memory: memory}, nil
}

func (a *arena) free() { unmapMemory(a.memory) }

// sized sets the first field of a C struct to the struct's size.
func sized[T any](out *T) *T {
	*(*uint32)(unsafe.Pointer(out)) = uint32(unsafe.Sizeof(*out))
	return out
}

const arenaAlignment = 16

// spaceFor returns the most bytes that count values need in an arena.
func spaceFor[T any](count int) int {
	var value T
	return int(unsafe.Sizeof(value))*count + arenaAlignment
}

// place returns count zeroed values in the arena, whose size was computed by spaceFor.
func place[T any](a *arena, count int) []T {
	if count == 0 {
		return nil
	}
	begin := (a.used + arenaAlignment - 1) / arenaAlignment * arenaAlignment
	var value T
	a.used = begin + int(unsafe.Sizeof(value))*count
	return unsafe.Slice((*T)(unsafe.Pointer(&a.memory[begin])), count)
}

// placed returns a copy of the slice in the arena.
func placed[T any](a *arena, slice []T) []T {
	copied := place[T](a, len(slice))
	copy(copied, slice)
	return copied
}
