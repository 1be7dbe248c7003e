package generated

import "unsafe"

// pointer converts an address of C's. Going through its own address is how vet is told that no
// object of Go's moves here.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func text(address uintptr) string { return CString(pointer(address)) }

// CString copies a C string.
func CString(address unsafe.Pointer) string {
	length := 0
	for *(*byte)(unsafe.Add(address, length)) != 0 {
		length++
	}
	return string(unsafe.Slice((*byte)(address), length))
}
