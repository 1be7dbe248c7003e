package pagedkv

import (
	"fmt"
	"syscall"
	"unsafe"
)

// arena is memory that Go's collector knows nothing of, for structs that point at structs, which
// cgo's rules keep out of Go's own.
type arena struct {
	memory []byte
	used   int
}

func newArena(size int) (*arena, error) {
	memory, err := syscall.Mmap(
		-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE,
	)
	if err != nil {
		return nil, fmt.Errorf("pagedkv: no memory for %d bytes of arguments: %w", size, err)
	}
	return &arena{memory: memory}, nil
}

func (a *arena) free() {
	// What mmap gave munmap takes: there is nothing to do about a failure.
	_ = syscall.Munmap(a.memory)
}

// sized tells C how large a struct of its is, in the struct's first field.
func sized[T any](out *T) *T {
	*(*uint32)(unsafe.Pointer(out)) = uint32(unsafe.Sizeof(*out))
	return out
}

const arenaAlignment = 16

// spaceFor is what count values take of an arena at most.
func spaceFor[T any](count int) int {
	var value T
	return int(unsafe.Sizeof(value))*count + arenaAlignment
}

// place gives room for count values, all zero; spaceFor has told before how much.
func place[T any](a *arena, count int) []T {
	if count == 0 {
		return nil
	}
	begin := (a.used + arenaAlignment - 1) / arenaAlignment * arenaAlignment
	var value T
	a.used = begin + int(unsafe.Sizeof(value))*count
	return unsafe.Slice((*T)(unsafe.Pointer(&a.memory[begin])), count)
}

// placed is a copy of the slice in the arena.
func placed[T any](a *arena, slice []T) []T {
	copied := place[T](a, len(slice))
	copy(copied, slice)
	return copied
}
