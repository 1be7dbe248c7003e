// Package llama runs Llama models in the checkpoint format of llama2.c, with attention left to
// whoever keeps keys and values.
package llama

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// Model is a checkpoint: sizes, and weights by layer.
type Model struct {
	Dim, Hidden, Layers, QueryHeads, KVHeads, Vocabulary, Context int
	HeadDim, KVDim                                                int

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
	m := &Model{
		Dim:        header[0],
		Hidden:     header[1],
		Layers:     header[2],
		QueryHeads: header[3],
		KVHeads:    header[4],
		Vocabulary: header[5],
		Context:    header[6],
	}
	for i, size := range header {
		if size <= 0 || size > 1<<24 {
			return nil, fmt.Errorf(
				"the model %s is not a llama2.c checkpoint: number %d of its header is %d", path, i,
				size,
			)
		}
	}
	if m.Dim%m.QueryHeads != 0 || m.QueryHeads%m.KVHeads != 0 || m.Dim/m.QueryHeads%2 != 0 {
		return nil, fmt.Errorf("the model %s is not a llama2.c checkpoint: "+
			"dim %d, %d heads and %d KV heads do not divide", path, m.Dim,
			m.QueryHeads, m.KVHeads)
	}
	m.HeadDim = m.Dim / m.QueryHeads
	m.KVDim = m.HeadDim * m.KVHeads
	return m, m.take(path, data[4*headerInts:], ownClassifier)
}

// take cuts the file into tensors.
func (m *Model) take(path string, data []byte, ownClassifier bool) error {
	var err error
	next := func(name string, rows, columns int) []float32 {
		count := rows * columns
		if err == nil && count > len(data)/4 {
			err = fmt.Errorf(
				"the model %s is cut short: %s needs %d floats, %d bytes are left", path, name,
				count, len(data),
			)
		}
		if err != nil {
			return nil
		}
		tensor := make([]float32, count)
		for i := range tensor {
			tensor[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		data = data[4*count:]
		return tensor
	}
	m.embedding = next("the embedding", m.Vocabulary, m.Dim)
	if m.Layers > len(data)/4 {
		return fmt.Errorf(
			"the model %s is cut short: %d layers in %d bytes", path, m.Layers, len(data),
		)
	}
	m.layers = make([]weights, m.Layers)
	each := func(name string, rows, columns int, of func(*weights) *[]float32) {
		for i := range m.layers {
			*of(&m.layers[i]) = next(name, rows, columns)
		}
	}
	each("the attention norm", 1, m.Dim, func(w *weights) *[]float32 { return &w.attentionNorm })
	each("wq", m.Dim, m.Dim, func(w *weights) *[]float32 { return &w.wq })
	each("wk", m.KVDim, m.Dim, func(w *weights) *[]float32 { return &w.wk })
	each("wv", m.KVDim, m.Dim, func(w *weights) *[]float32 { return &w.wv })
	each("wo", m.Dim, m.Dim, func(w *weights) *[]float32 { return &w.wo })
	each("the FFN norm", 1, m.Dim, func(w *weights) *[]float32 { return &w.ffnNorm })
	each("w1", m.Hidden, m.Dim, func(w *weights) *[]float32 { return &w.w1 })
	each("w2", m.Dim, m.Hidden, func(w *weights) *[]float32 { return &w.w2 })
	each("w3", m.Hidden, m.Dim, func(w *weights) *[]float32 { return &w.w3 })
	m.finalNorm = next("the final norm", 1, m.Dim)
	next("the unused rotary tables", 2*m.Context, m.HeadDim/2)
	m.classifier = m.embedding
	if ownClassifier {
		m.classifier = next("the classifier", m.Vocabulary, m.Dim)
	}
	if err == nil && len(data) != 0 {
		err = fmt.Errorf(
			"the model %s is not a llama2.c checkpoint: %d bytes are left over", path, len(data),
		)
	}
	return err
}
