//go:build pagedkv_embed && !pagedkv_cgo

package library

import _ "embed"

// A copy of the library that the program is to carry has to lie in this folder: see README.md.
//
//go:embed libpagedkv.so.0
var embedded []byte
