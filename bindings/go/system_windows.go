package pagedkv

import (
	"syscall"
	"unsafe"
)

var (
	kernel32           = syscall.NewLazyDLL("kernel32.dll")
	virtualAlloc       = kernel32.NewProc("VirtualAlloc")
	virtualFree        = kernel32.NewProc("VirtualFree")
	getCurrentThreadID = kernel32.NewProc("GetCurrentThreadId")
)

// mapMemory returns zeroed memory outside of Go's heap.
func mapMemory(size int) ([]byte, error) {
	const commit, reserve, readWrite = 0x1000, 0x2000, 0x4
	address, _, err := virtualAlloc.Call(0, uintptr(size), commit|reserve, readWrite)
	if address == 0 {
		return nil, err
	}
	memory := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // no pointer of Go's
	return unsafe.Slice((*byte)(memory), size), nil
}

func unmapMemory(memory []byte) {
	const release = 0x8000
	_, _, _ = virtualFree.Call(uintptr(unsafe.Pointer(&memory[0])), 0, release)
}

func threadID() int {
	thread, _, _ := getCurrentThreadID.Call()
	return int(thread)
}

// The numbers of the C library, which are not those of Go's package syscall.
var cNumbers = map[uint32]syscall.Errno{
	1: syscall.EPERM, 2: syscall.ENOENT, 5: syscall.EIO, 9: syscall.EBADF, 12: syscall.ENOMEM,
	13: syscall.EACCES, 17: syscall.EEXIST, 20: syscall.ENOTDIR, 21: syscall.EISDIR,
	22: syscall.EINVAL, 24: syscall.EMFILE, 28: syscall.ENOSPC, 32: syscall.EPIPE,
	38: syscall.ENAMETOOLONG, 114: syscall.ELOOP,
}

// errnoOfC returns Go's number for one of C. Numbers that the library does not give are EIO.
func errnoOfC(number uint32) syscall.Errno {
	if number == 0 {
		return 0
	}
	if errno, there := cNumbers[number]; there {
		return errno
	}
	return syscall.EIO
}

// cOfErrno returns C's number for one of Go.
func cOfErrno(errno syscall.Errno) int64 {
	for number, known := range cNumbers {
		if known == errno {
			return int64(number)
		}
	}
	return 5 // EIO
}
