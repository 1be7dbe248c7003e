//go:build !windows

package library

import "github.com/ebitengine/purego"

const (
	soname      = "libpagedkv.so.1"
	redisSoname = "libpagedkv-redis.so.1"
)

// openFile opens a library: a file, or a name that the dynamic linker looks for.
func openFile(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// openForOthers opens a library that others need.
func openForOthers(path string) error {
	_, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	return err
}

func findSymbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
