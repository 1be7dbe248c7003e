package pagedkv

import (
	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
	"github.com/pagedkv/pagedkv/bindings/go/internal/library"
)

// Load opens the library at path now. Otherwise the first call opens it: the package documentation
// says from where. A program has one library.
func Load(path string) error { return library.Load(path) }

// LoadBytes opens a library that is embedded in the program, for example by go:embed, before the
// first call. It is opened in memory, and nothing is left on disk:
//
//	//go:embed libpagedkv.so.1
//	var content []byte
//
//	err := pagedkv.LoadBytes(content)
//
// The dependencies of that library (see ldd) must be installed.
func LoadBytes(content []byte) error { return library.LoadBytes("embedded library", content) }

// Version returns the version of the library, for example "1.0.0".
func Version() (string, error) {
	if err := library.Load(""); err != nil {
		return "", err
	}
	return library.Version(), nil
}

// String returns the name of the instruction set, for example "avx512".
func (isa ISA) String() string {
	if library.Load("") != nil {
		return "unknown"
	}
	return raw.ISAName(int32(isa))
}
