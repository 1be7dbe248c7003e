package pagedkv

import (
	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// Load opens the library at path now, instead of at the first call from where package documentation
// says. A program has one library.
func Load(path string) error { return library.Load(path) }

// LoadBytes opens a library that the program carries, by go:embed say, before the first call. It is
// opened in memory, and nothing of it stays on a disk:
//
//	//go:embed libpagedkv.so.0
//	var content []byte
//
//	err := pagedkv.LoadBytes(content)
//
// What that library needs itself (ldd lists it) has to be installed.
func LoadBytes(content []byte) error { return library.LoadBytes("embedded library", content) }

// Version of the library, "0.1.0".
func Version() (string, error) {
	if err := library.Load(""); err != nil {
		return "", err
	}
	return raw.VersionString(), nil
}

// ISASupported tells whether the library has kernels for this instruction set and this CPU
// can run them.
func ISASupported(isa ISA) (bool, error) {
	var supported int32
	err := call("isa supported", nil, func() raw.Status {
		return raw.ISASupported(int32(isa), &supported)
	})
	return supported != 0, err
}

// String is the library's name of the instruction set: "avx512".
func (isa ISA) String() string {
	if library.Load("") != nil {
		return "unknown"
	}
	return raw.ISAName(int32(isa))
}
