// Package llama runs Llama models. The caller stores keys and values and computes attention.
package llama

import "fmt"

// Sizes determine the shapes of a model's tensors, and two constants of its formulas.
type Sizes struct {
	Dim, Hidden, Layers, QueryHeads, KVHeads, Vocabulary, Context int

	RotaryBase, Epsilon float64
}

// check returns an error if sizes do not fit together.
func (s *Sizes) check() error {
	numbers := [...]int{
		s.Dim, s.Hidden, s.Layers, s.QueryHeads, s.KVHeads, s.Vocabulary, s.Context,
	}
	for i, size := range numbers {
		if size <= 0 || size > 1<<24 {
			return fmt.Errorf("number %d of its sizes is %d", i, size)
		}
	}
	if s.Layers > 1<<12 {
		return fmt.Errorf("%d layers; at most %d are allowed", s.Layers, 1<<12)
	}
	if s.Dim%s.QueryHeads != 0 || s.QueryHeads%s.KVHeads != 0 || s.Dim/s.QueryHeads%2 != 0 {
		return fmt.Errorf(
			"dim %d, %d heads and %d KV heads do not divide", s.Dim, s.QueryHeads, s.KVHeads,
		)
	}
	return nil
}

// Matmul computes out[row][column] = x[row] . w[column] for rows of `inputs` values.
type Matmul func(out, x, w []float32, inputs int)

// Tensor reads the tensor of a name (a field of the weights below, or embedding, final_norm), layer
// by layer.
type Tensor func(name string, layer, rows, columns int) ([]float32, error)

// Model has the sizes of a model, and its weights by layer. Its classifier is the embedding.
type Model struct {
	Sizes
	HeadDim, KVDim int
	// Matmul is Gonum's unless a test replaces it.
	Matmul Matmul

	embedding, finalNorm []float32
	layers               []weights
}

type weights struct {
	attentionNorm, wq, wk, wv, wo, ffnNorm, w1, w2, w3 []float32
}

// New reads the tensors of a model.
func New(sizes Sizes, read Tensor) (*Model, error) {
	if err := sizes.check(); err != nil {
		return nil, fmt.Errorf("no Llama model: %w", err)
	}
	m := &Model{Sizes: sizes, HeadDim: sizes.Dim / sizes.QueryHeads, Matmul: matmul}
	m.KVDim = m.HeadDim * m.KVHeads
	var err error
	next := func(name string, layer, rows, columns int) (tensor []float32) {
		if err == nil {
			tensor, err = read(name, layer, rows, columns)
		}
		return tensor
	}
	m.embedding = next("embedding", 0, m.Vocabulary, m.Dim)
	if err != nil {
		return nil, err
	}
	m.layers = make([]weights, m.Layers)
	each := func(name string, rows, columns int, of func(*weights) *[]float32) {
		for i := range m.layers {
			*of(&m.layers[i]) = next(name, i, rows, columns)
		}
	}
	each("attention_norm", 1, m.Dim, func(w *weights) *[]float32 { return &w.attentionNorm })
	each("wq", m.Dim, m.Dim, func(w *weights) *[]float32 { return &w.wq })
	each("wk", m.KVDim, m.Dim, func(w *weights) *[]float32 { return &w.wk })
	each("wv", m.KVDim, m.Dim, func(w *weights) *[]float32 { return &w.wv })
	each("wo", m.Dim, m.Dim, func(w *weights) *[]float32 { return &w.wo })
	each("ffn_norm", 1, m.Dim, func(w *weights) *[]float32 { return &w.ffnNorm })
	each("w1", m.Hidden, m.Dim, func(w *weights) *[]float32 { return &w.w1 })
	each("w2", m.Dim, m.Hidden, func(w *weights) *[]float32 { return &w.w2 })
	each("w3", m.Hidden, m.Dim, func(w *weights) *[]float32 { return &w.w3 })
	m.finalNorm = next("final_norm", 0, 1, m.Dim)
	return m, err
}
