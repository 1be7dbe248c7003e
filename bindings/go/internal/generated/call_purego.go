//go:build !pagedkv_cgo

package generated

import "github.com/ebitengine/purego"

// Addresses of the functions, in the order of Names.
var Addresses [len(Names)]uintptr

// call passes arguments on to a function of Names.
//
//go:uintptrescapes
func call(function int, arguments ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(Addresses[function], arguments...)
	return result
}
