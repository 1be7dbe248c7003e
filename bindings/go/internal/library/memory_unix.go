//go:build !pagedkv_cgo && !windows

package library

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// The number of memfd_create, which Go's package syscall lacks.
var memfdCreate = map[string]uintptr{"amd64": 319, "arm64": 279, "loong64": 279, "riscv64": 279}

func openUnnamed(content []byte) (uintptr, error) {
	const closeOnExec = 1
	number := memfdCreate[runtime.GOARCH]
	if number == 0 {
		return 0, os.NewSyscallError("memfd_create", syscall.ENOSYS)
	}
	name := append([]byte(soname), 0)
	descriptor, _, errno := syscall.Syscall(
		number, uintptr(unsafe.Pointer(&name[0])), closeOnExec, 0,
	)
	if errno != 0 {
		return 0, os.NewSyscallError("memfd_create", errno)
	}
	file := int(descriptor)
	if err := writeAll(file, content); err != nil {
		_ = syscall.Close(file)
		return 0, os.NewSyscallError("write", err)
	}
	// The file stays open, because the dynamic linker would mistake a later library with the same file
	// number for this one.
	path := fmt.Sprintf("/proc/self/fd/%d", file)
	handle, err := openFile(path)
	if err != nil {
		_ = syscall.Close(file)
	}
	return handle, err
}

func writeAll(file int, content []byte) error {
	for len(content) > 0 {
		n, err := syscall.Write(file, content)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}
