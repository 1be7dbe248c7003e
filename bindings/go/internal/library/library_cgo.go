//go:build pagedkv_cgo

package library

import "errors"

// Ready returns true: the library is linked.
func Ready() bool { return true }

// Path is unknown for a linked library.
func Path() string { return "" }

// Load returns an error, because the library is linked.
func Load(path string) error {
	if path == "" {
		return nil
	}
	return errors.New("pagedkv: this program was built with the tag pagedkv_cgo and is " +
		"linked to its library: it cannot open " + path)
}

// LoadBytes returns the same error.
func LoadBytes(name string, content []byte) error { return Load(name) }
