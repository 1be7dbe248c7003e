//go:build !pagedkv_cgo

package library

import (
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// A place where the library may be.
type place struct {
	where   string
	missing string // why there is nothing to open; "" if there is something
	open    func() error
}

// Folders of installed libraries that not every dynamic linker searches.
var systemFolders = []string{"/usr/local/lib", "/usr/local/lib64", "/usr/local/lib/*-linux-gnu"}

// places returns, in this order: the file that PAGEDKV_LIBRARY names, and then nothing else; the
// library in the program (the tag pagedkv_embed); beside the program, or in ../lib from there;
// where the dynamic linker looks; folders of installed libraries; Python packages.
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

// files returns a place for each of the folders (or patterns) that has the library, or one place
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

// wheels returns the libraries in Python packages, those of the active environment first.
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

// openOthers opens the other libraries of a wheel (oneTBB), so that the linker does not search for
// these sonames.
func openOthers(folders []string) {
	for _, folder := range folders {
		paths, _ := filepath.Glob(filepath.Join(folder, "lib*.so.*"))
		sort.Strings(paths)
		for _, path := range paths {
			if !strings.HasPrefix(filepath.Base(path), "libpagedkv") {
				// A failure here becomes an error of the library that needs it.
				_ = openForOthers(path)
			}
		}
	}
}
