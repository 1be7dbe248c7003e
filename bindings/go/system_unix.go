//go:build !windows

package pagedkv

import "syscall"

// mapMemory returns zeroed memory outside of Go's heap.
func mapMemory(size int) ([]byte, error) {
	return syscall.Mmap(
		-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE,
	)
}

func unmapMemory(memory []byte) {
	// munmap takes what mmap returned: it does not fail.
	_ = syscall.Munmap(memory)
}

func threadID() int { return syscall.Gettid() }

// errnoOfC and cOfErrno convert the numbers of C, which are Go's.
func errnoOfC(number uint32) syscall.Errno { return syscall.Errno(number) }
func cOfErrno(errno syscall.Errno) int64   { return int64(errno) }
