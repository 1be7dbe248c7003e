//go:build !pagedkv_cgo

package library

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

var library struct {
	sync.Mutex
	path string // of the open library, "" before
	open atomic.Bool
}

// Ready returns whether the library is open. No function may be called before.
func Ready() bool { return library.open.Load() }

// Path returns the path of the open library, "" before.
func Path() string {
	library.Lock()
	defer library.Unlock()
	return library.path
}

// Load opens the library at path, once for the whole program. Without a path it opens the first of
// places() that works.
func Load(path string) error {
	library.Lock()
	defer library.Unlock()
	if library.path != "" {
		if path == "" {
			return nil
		}
		return isOpen(path)
	}
	if path != "" {
		if err := open(path); err != nil {
			return fmt.Errorf("pagedkv: cannot open the library: %w", err)
		}
		return nil
	}
	return search(places())
}

// LoadBytes opens a library that is embedded in the program. name is for errors and for Path.
func LoadBytes(name string, content []byte) error {
	library.Lock()
	defer library.Unlock()
	if library.path != "" {
		return isOpen(name)
	}
	if err := openBytes(name, content); err != nil {
		return fmt.Errorf("pagedkv: cannot open the library: %w", err)
	}
	return nil
}

// isOpen returns an error if another library is open.
func isOpen(path string) error {
	if path == library.path {
		return nil
	}
	return fmt.Errorf(
		"pagedkv: the library %s is already open, and a program has only one: %s cannot be opened",
		library.path, path,
	)
}

// search opens the first library of these places, or returns what is wrong with each.
func search(places []place) error {
	text := "pagedkv: there is no " + soname + " that can be opened. Tried:"
	for _, place := range places {
		problem := place.missing
		if problem == "" {
			err := place.open()
			if err == nil {
				return nil
			}
			problem = err.Error()
		}
		text += "\n\t" + place.where + ": " + problem
	}
	return errors.New(text + "\nPAGEDKV_LIBRARY may name it, or pagedkv.Load.")
}

// open opens a file, or a name that the dynamic linker looks for.
func open(path string) error {
	handle, err := openFile(path)
	if err != nil {
		return err
	}
	return use(path, handle)
}

// use makes an open library the program's.
func use(path string, handle uintptr) error {
	found := raw.Addresses
	for i, name := range raw.Names {
		address, err := findSymbol(handle, name)
		if err != nil {
			return fmt.Errorf("%s has no %s: it is older than this module", path, name)
		}
		found[i] = address
	}
	raw.Addresses, library.path = found, path
	library.open.Store(true)
	return nil
}
