//go:build !pagedkv_cgo

package library

import "errors"

func openUnnamed([]byte) (uintptr, error) {
	return 0, errors.New("Windows loads no library from memory")
}
