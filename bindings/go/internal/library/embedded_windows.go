//go:build pagedkv_embed && !pagedkv_cgo

package library

import _ "embed"

// A copy of the library for the program must be in this folder: see README.md.
//
//go:embed pagedkv.dll
var embedded []byte
