package library

import (
	"runtime"
	"testing"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

func TestVersionIsThatOfTheLibrary(t *testing.T) {
	if err := Load(""); err != nil {
		t.Fatal(err)
	}
	if Version() != raw.HeaderVersion {
		t.Errorf("made of headers %s, the library says %s", raw.HeaderVersion, Version())
	}
}

// BenchmarkCall measures the minimum cost of a call.
func BenchmarkCall(b *testing.B) {
	if err := Load(""); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		raw.Version()
	}
}

// BenchmarkLockedCall measures it on a locked thread, which calls with an error sentence need.
func BenchmarkLockedCall(b *testing.B) {
	if err := Load(""); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		runtime.LockOSThread()
		raw.Version()
		runtime.UnlockOSThread()
	}
}
