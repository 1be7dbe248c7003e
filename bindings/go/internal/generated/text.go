package generated

import "unsafe"

func text(address uintptr) string {
	// The address is C's: going through its own address is how vet is told that no object of Go's
	// moves here.
	return Text(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
}

// Text copies a C string.
func Text(address unsafe.Pointer) string {
	length := 0
	for *(*byte)(unsafe.Add(address, length)) != 0 {
		length++
	}
	return string(unsafe.Slice((*byte)(address), length))
}
