//go:build pagedkv_cgo

package library

import "errors"

// Ready tells that the library is there.
func Ready() bool { return true }

// Path is not known of a library that is linked.
func Path() string { return "" }

// Load says that the library is linked: there is nothing to open.
func Load(path string) error {
	if path == "" {
		return nil
	}
	return errors.New("pagedkv: this program was built with the tag pagedkv_cgo and is " +
		"linked to its library: it cannot open " + path)
}

// LoadBytes says the same.
func LoadBytes(name string, content []byte) error { return Load(name) }
