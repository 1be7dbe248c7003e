//go:build !pagedkv_cgo

package library

import (
	"fmt"
	"os"
	"path/filepath"
)

// openBytes opens a library from memory: as an unnamed file or, if the OS allows no code in these,
// as a file in a private folder.
func openBytes(name string, content []byte) error {
	handle, err := openUnnamed(content)
	if err != nil {
		unnamed := err
		if handle, err = openTemporary(content); err != nil {
			return fmt.Errorf("%s: %v; %w", name, unnamed, err)
		}
	}
	return use(name, handle)
}

func openTemporary(content []byte) (uintptr, error) {
	folder, err := os.MkdirTemp("", "pagedkv-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder) // an open library does not need its file, except on Windows
	path := filepath.Join(folder, soname)
	if err := os.WriteFile(path, content, 0o500); err != nil {
		return 0, err
	}
	return openFile(path)
}
