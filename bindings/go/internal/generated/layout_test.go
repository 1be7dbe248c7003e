package generated

import (
	"reflect"
	"testing"
)

func TestLayoutsAreThoseOfC(t *testing.T) {
	if len(layouts) == 0 {
		t.Fatal("no struct to compare")
	}
	for _, s := range layouts {
		here := []uintptr{s.here.Size()}
		for i := 0; i < s.here.NumField(); i++ {
			here = append(here, s.here.Field(i).Offset)
		}
		if !reflect.DeepEqual(here, s.c) {
			t.Errorf("%s: size and offsets are %v, in C %v", s.here, here, s.c)
		}
	}
}
