package raw

import (
	"runtime"
	"testing"
)

func TestLayoutsAreThoseOfC(t *testing.T) {
	if len(layouts) == 0 {
		t.Fatal("no struct to compare")
	}
	for _, s := range layouts {
		if len(s.here) != len(s.c) {
			t.Fatalf("%s: %d numbers here, %d in C", s.name, len(s.here), len(s.c))
		}
		for i := range s.c {
			if s.here[i] != s.c[i] {
				t.Errorf("%s: number %d (size; offset, size of each field) is %d, in C %d", s.name, i, s.here[i], s.c[i])
			}
		}
	}
}

func TestVersionIsThatOfTheLibrary(t *testing.T) {
	if err := Load(""); err != nil {
		t.Fatal(err)
	}
	if VersionString() != HeaderVersion {
		t.Errorf("made of headers %s, the library says %s", HeaderVersion, VersionString())
	}
}

// BenchmarkCall is the least that a call costs.
func BenchmarkCall(b *testing.B) {
	if err := Load(""); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		Version()
	}
}

// BenchmarkLockedCall is the same on a locked thread, as calls are whose sentence may be wanted.
func BenchmarkLockedCall(b *testing.B) {
	if err := Load(""); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < b.N; i++ {
		runtime.LockOSThread()
		Version()
		runtime.UnlockOSThread()
	}
}
