//go:build !pagedkv_cgo

package library

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

const soname = "libpagedkv.so.0"

var library struct {
	sync.Mutex
	path string // of the library that is open, "" before
	open atomic.Bool
}

// Ready tells whether the library is open: no function may be called before.
func Ready() bool { return library.open.Load() }

// Path of the library that is open, "" before.
func Path() string {
	library.Lock()
	defer library.Unlock()
	return library.path
}

// Load opens the library at path, once for the whole program. Without a path it is the first of:
// $PAGEDKV_LIBRARY; beside the program, or in ../lib from there; wherever the dynamic linker finds
// it.
func Load(path string) error {
	library.Lock()
	defer library.Unlock()
	if library.path != "" {
		if path == "" || path == library.path {
			return nil
		}
		return fmt.Errorf(
			"pagedkv: the library %s is open already, and a program has one: %s comes too late",
			library.path, path,
		)
	}
	if path == "" {
		path = find()
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return fmt.Errorf("pagedkv: cannot open the library (PAGEDKV_LIBRARY may name it): %w", err)
	}
	found := raw.Addresses
	for i, name := range raw.Names {
		if found[i], err = purego.Dlsym(handle, name); err != nil {
			return fmt.Errorf(
				"pagedkv: the library %s has no %s: it is older than this module", path, name,
			)
		}
	}
	raw.Addresses, library.path = found, path
	library.open.Store(true)
	return nil
}

func find() string {
	if path := os.Getenv("PAGEDKV_LIBRARY"); path != "" {
		return path
	}
	if program, err := os.Executable(); err == nil {
		for _, folder := range []string{".", "../lib"} {
			if path := filepath.Join(filepath.Dir(program), folder, soname); exists(path) {
				return path
			}
		}
	}
	return soname
}
