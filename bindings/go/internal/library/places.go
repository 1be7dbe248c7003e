//go:build !pagedkv_cgo

package library

import (
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/ebitengine/purego"
)

// A place is where the library may be.
type place struct {
	where   string
	missing string // why there is nothing to open, "" if there is
	open    func() error
}

// Folders where installed libraries are which not every dynamic linker looks into.
var systemFolders = []string{"/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/*-linux-gnu"}

// places gives, in this order: what PAGEDKV_LIBRARY names, and nothing else if it names one; what
// the program carries (the tag pagedkv_embed); beside the program, or in ../lib from there; where
// the dynamic linker looks; folders of installed libraries; packages of Python.
func places() []place {
	if path := os.Getenv("PAGEDKV_LIBRARY"); path != "" {
		return []place{{where: "PAGEDKV_LIBRARY", open: func() error { return open(path) }}}
	}
	found := []place{{where: "PAGEDKV_LIBRARY", missing: "not set"}}
	if len(embedded) != 0 {
		found = append(found, place{
			where: "in the program",
			open:  func() error { return openBytes("embedded "+soname, embedded) },
		})
	}
	if program, err := os.Executable(); err == nil {
		folder := filepath.Dir(program)
		found = append(found, files("beside the program", folder, filepath.Join(folder, "../lib"))...)
	}
	found = append(found, place{
		where: "where the dynamic linker looks",
		open:  func() error { return open(soname) },
	})
	found = append(found, files("in a folder of the system", systemFolders...)...)
	return append(found, wheels()...)
}

// files gives a place for each of the folders, which may be patterns, that has the library; or one
// for all of them if none has.
func files(where string, folders ...string) []place {
	var found []place
	for _, folder := range folders {
		paths, _ := filepath.Glob(filepath.Join(folder, soname))
		for _, path := range paths {
			path := path
			found = append(found, place{where: where, open: func() error { return open(path) }})
		}
	}
	if found == nil {
		found = []place{{where: where, missing: "not in " + strings.Join(folders, ", ")}}
	}
	return found
}

// wheels gives the libraries of Python packages, of the environment in use first.
func wheels() []place {
	var folders []string
	roots := []string{"/usr/local", "/usr"}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append([]string{filepath.Join(home, ".local")}, roots...)
	}
	if environment := os.Getenv("VIRTUAL_ENV"); environment != "" {
		roots = append([]string{environment}, roots...)
	}
	for _, root := range roots {
		folders = append(folders, filepath.Join(root, "lib/python3*/*-packages/pagedkv"))
	}
	found := files("in a package of Python", folders...)
	for i := range found {
		if found[i].missing != "" {
			continue
		}
		plain := found[i].open
		found[i].open = func() error {
			openOthers(folders)
			return plain()
		}
	}
	return found
}

// openOthers opens the libraries that a wheel has beside ours (oneTBB): a library of a soname that
// is open is not looked for.
func openOthers(folders []string) {
	for _, folder := range folders {
		paths, _ := filepath.Glob(filepath.Join(folder, "lib*.so.*"))
		sort.Strings(paths)
		for _, path := range paths {
			if !strings.HasPrefix(filepath.Base(path), "libpagedkv") {
				// What fails here is an error of the library that needs it.
				_, _ = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
			}
		}
	}
}
