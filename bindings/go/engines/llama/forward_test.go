package llama

import (
	"strings"
	"testing"
)

func TestProductsAreThoseOfFloat64(t *testing.T) {
	const inputs, columns = 70, 33
	w, x := make([]float32, columns*inputs), make([]float32, 3*inputs)
	for i := range w {
		w[i] = float32(i%17) - 8
	}
	for i := range x {
		x[i] = float32(i%11) - 5
	}
	for rows := 1; rows <= 3; rows += 2 {
		out := make([]float32, rows*columns)
		out[0] = 1e9 // old content must not count
		matmul(out, x[:rows*inputs], w, inputs)
		for i, got := range out {
			want := 0.0
			for j := 0; j < inputs; j++ {
				want += float64(x[i/columns*inputs+j]) * float64(w[i%columns*inputs+j])
			}
			if float64(got) != want { // small integers: every sum is exact
				t.Fatalf("%d rows: [%d] is %v, not %v", rows, i, got, want)
			}
		}
	}
}

func TestSizesThatDoNotFitAreRefused(t *testing.T) {
	for sentence, sizes := range map[string]Sizes{
		"number 0 of its sizes is 0": {},
		"4097 layers":                {16, 16, 4097, 1, 1, 9, 64, 1, 1},
		"do not divide":              {16, 16, 1, 3, 1, 9, 64, 1, 1},
	} {
		if _, err := New(sizes, nil); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("%v does not say %q", err, sentence)
		}
	}
}
