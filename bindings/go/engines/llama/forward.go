package llama

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Attend stores the keys and values of all rows in one layer, and writes the attention of the
// queries to out.
type Attend func(layer int, q, k, v, out []float32) error

// Forward computes the rows' last hidden states (Touvron et al. 2023): RMSNorm, rotary positions on
// interleaved pairs, grouped-query attention, SwiGLU. Row i is the token tokens[i] at positions[i].
func (m *Model) Forward(tokens []int32, positions []int, attend Attend) ([]float32, error) {
	rows := len(tokens)
	x := make([]float32, 0, rows*m.Dim)
	for _, token := range tokens {
		x = append(x, m.embedding[int(token)*m.Dim:][:m.Dim]...)
	}
	rotation := m.rotation(positions)
	normed, attended := make([]float32, rows*m.Dim), make([]float32, rows*m.Dim)
	q := make([]float32, rows*m.Dim)
	k := make([]float32, rows*m.KVDim)
	v := make([]float32, rows*m.KVDim)
	gate, up := make([]float32, rows*m.Hidden), make([]float32, rows*m.Hidden)
	for layer := range m.layers {
		w := &m.layers[layer]
		m.rmsNorm(normed, x, w.attentionNorm)
		m.Matmul(q, normed, w.wq, m.Dim)
		m.Matmul(k, normed, w.wk, m.Dim)
		m.Matmul(v, normed, w.wv, m.Dim)
		rotate(q, rotation, m.QueryHeads, m.HeadDim)
		rotate(k, rotation, m.KVHeads, m.HeadDim)
		if err := attend(layer, q, k, v, attended); err != nil {
			return nil, err
		}
		m.Matmul(normed, attended, w.wo, m.Dim)
		add(x, normed)

		m.rmsNorm(normed, x, w.ffnNorm)
		m.Matmul(gate, normed, w.w1, m.Dim)
		m.Matmul(up, normed, w.w3, m.Dim)
		for i, g := range gate {
			gate[i] = g / (1 + float32(math.Exp(float64(-g)))) * up[i]
		}
		m.Matmul(normed, gate, w.w2, m.Hidden)
		add(x, normed)
	}
	return x, nil
}

// Logits returns the logits of one row of Forward's result.
func (m *Model) Logits(x []float32, row int) []float32 {
	normed, logits := make([]float32, m.Dim), make([]float32, m.Vocabulary)
	m.rmsNorm(normed, x[row*m.Dim:][:m.Dim], m.finalNorm)
	m.Matmul(logits, normed, m.embedding, m.Dim)
	return logits
}

// Best returns the index of the largest logit, the first of equal ones. It fails if a logit is NaN
// or the largest is infinite.
func Best(logits []float32) (int, error) {
	best := 0
	for i, logit := range logits {
		if math.IsNaN(float64(logit)) {
			return 0, fmt.Errorf("logit %d of the model's %d is NaN", i, len(logits))
		}
		if logit > logits[best] {
			best = i
		}
	}
	if len(logits) == 0 || math.IsInf(float64(logits[best]), 0) {
		return 0, fmt.Errorf("the model's %d logits have no largest number", len(logits))
	}
	return best, nil
}

func (m *Model) rmsNorm(out, x, weight []float32) {
	dim := len(weight)
	for ; len(x) > 0; x, out = x[dim:], out[dim:] {
		var squares float32
		for _, value := range x[:dim] {
			squares += value * value
		}
		scale := 1 / float32(math.Sqrt(float64(squares/float32(dim)+float32(m.Epsilon))))
		for i, w := range weight {
			out[i] = w * (scale * x[i])
		}
	}
}

// rotation returns the cosine and sine of every row and pair.
func (m *Model) rotation(positions []int) []float32 {
	out := make([]float32, 0, len(positions)*m.HeadDim)
	for _, position := range positions {
		for pair := 0; pair < m.HeadDim; pair += 2 {
			frequency := float32(math.Pow(m.RotaryBase, -float64(pair)/float64(m.HeadDim)))
			sin, cos := math.Sincos(float64(position) * float64(frequency))
			out = append(out, float32(cos), float32(sin))
		}
	}
	return out
}

func rotate(x, rotation []float32, heads, dim int) {
	for ; len(x) > 0; rotation = rotation[dim:] {
		for head := 0; head < heads; head, x = head+1, x[dim:] {
			for i := 0; i < dim; i += 2 {
				a, b := x[i], x[i+1]
				x[i] = a*rotation[i] - b*rotation[i+1]
				x[i+1] = a*rotation[i+1] + b*rotation[i]
			}
		}
	}
}

func add(x, y []float32) {
	for i := range x {
		x[i] += y[i]
	}
}

// matmul is a Matmul by Gonum.
func matmul(out, x, w []float32, inputs int) {
	rows, columns := len(x)/inputs, len(w)/inputs
	if rows == 1 {
		gonum.Implementation{}.Sgemv(blas.NoTrans, columns, inputs, 1, w, inputs, x, 1, 0, out, 1)
		return
	}
	gonum.Implementation{}.Sgemm(
		blas.NoTrans, blas.Trans, rows, columns, inputs, 1, x, inputs, w, inputs, 0, out, columns,
	)
}
