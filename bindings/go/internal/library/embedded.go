//go:build pagedkv_embed && !pagedkv_cgo && !windows

package library

import _ "embed"

// A copy of the library for the program must be in this folder: see README.md.
//
//go:embed libpagedkv.so.1
var embedded []byte
