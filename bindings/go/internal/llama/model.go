// Package llama runs Llama models, from a checkpoint of llama2.c or by New, with attention left to
// the code that keeps keys and values.
package llama

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// Sizes are what the shapes of a model's tensors follow from, and two numbers of its formulas.
type Sizes struct {
	Dim, Hidden, Layers, QueryHeads, KVHeads, Vocabulary, Context int

	RotaryBase, Epsilon float64
}

// check returns what does not fit together.
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
		return fmt.Errorf("%d layers; %d are possible", s.Layers, 1<<12)
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

// Tensor reads the tensor of a name (a field of the weights below, or embedding, final_norm,
// classifier), layer by layer.
type Tensor func(name string, layer, rows, columns int) ([]float32, error)

// Model is a checkpoint: sizes, and weights by layer.
type Model struct {
	Sizes
	HeadDim, KVDim int
	// Matmul is the one of this package unless it is replaced.
	Matmul Matmul

	embedding, finalNorm, classifier []float32
	layers                           []weights
}

type weights struct {
	attentionNorm, wq, wk, wv, wo, ffnNorm, w1, w2, w3 []float32
}

const headerInts = 7

// Open reads a checkpoint. Its header is checked against the file's size before a weight is read.
func Open(path string) (*Model, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) < 4*headerInts {
		return nil, fmt.Errorf(
			"the model %s has %d bytes, its header alone takes %d", path, len(data), 4*headerInts,
		)
	}
	var header [headerInts]int
	for i := range header {
		header[i] = int(int32(binary.LittleEndian.Uint32(data[4*i:])))
	}
	// a negative vocabulary says that the classifier is not the embedding
	ownClassifier := header[5] < 0
	if ownClassifier {
		header[5] = -header[5]
	}
	sizes := Sizes{
		Dim:        header[0],
		Hidden:     header[1],
		Layers:     header[2],
		QueryHeads: header[3],
		KVHeads:    header[4],
		Vocabulary: header[5],
		Context:    header[6],
		RotaryBase: 10000,
		Epsilon:    1e-5,
	}
	if err := sizes.check(); err != nil {
		return nil, fmt.Errorf("the model %s is not a llama2.c checkpoint: %w", path, err)
	}
	file := checkpoint{path: path, data: data[4*headerInts:]}
	model, err := New(sizes, file.tensor)
	if err != nil {
		return nil, err
	}
	return model, file.finish(model, ownClassifier)
}

// New reads the tensors of a model. Its classifier is the embedding.
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
	m.classifier = m.embedding
	return m, err
}

// checkpoint is a file that is cut into tensors, one after the other.
type checkpoint struct {
	path string
	data []byte
}

func (c *checkpoint) tensor(name string, layer, rows, columns int) ([]float32, error) {
	count := rows * columns
	if count > len(c.data)/4 {
		return nil, fmt.Errorf(
			"the model %s is cut short: %s of layer %d needs %d floats, %d bytes are left", c.path,
			name, layer, count, len(c.data),
		)
	}
	tensor := make([]float32, count)
	for i := range tensor {
		tensor[i] = math.Float32frombits(binary.LittleEndian.Uint32(c.data[4*i:]))
	}
	c.data = c.data[4*count:]
	return tensor, nil
}

// finish reads what comes after the final norm.
func (c *checkpoint) finish(m *Model, ownClassifier bool) error {
	if _, err := c.tensor("the unused rotary tables", 0, 2*m.Context, m.HeadDim/2); err != nil {
		return err
	}
	if ownClassifier {
		var err error
		if m.classifier, err = c.tensor("classifier", 0, m.Vocabulary, m.Dim); err != nil {
			return err
		}
	}
	if len(c.data) != 0 {
		return fmt.Errorf(
			"the model %s is not a llama2.c checkpoint: %d bytes are left over", c.path,
			len(c.data),
		)
	}
	return nil
}
