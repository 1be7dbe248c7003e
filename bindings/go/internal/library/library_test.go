package library

import (
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
