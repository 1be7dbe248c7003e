package raw

import "unsafe"

// Text copies a C string.
func Text(address unsafe.Pointer) string {
	length := 0
	for *(*byte)(unsafe.Add(address, length)) != 0 {
		length++
	}
	return string(unsafe.Slice((*byte)(address), length))
}
