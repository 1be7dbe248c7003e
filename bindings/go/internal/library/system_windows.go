package library

import "syscall"

const (
	soname      = "pagedkv.dll"
	redisSoname = "pagedkv-redis.dll"
)

// openFile opens a library: a file, or a name that Windows looks for, in PATH too.
func openFile(path string) (uintptr, error) {
	handle, err := syscall.LoadLibrary(path)
	return uintptr(handle), err
}

// openForOthers opens a library that others need.
func openForOthers(path string) error {
	_, err := openFile(path)
	return err
}

func findSymbol(handle uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(handle), name)
}
