package pagedkv

import (
	"math/bits"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Tensor is rows in the caller's memory: keys, values, queries or outputs, [rows][heads][dim]. The
// zero Tensor stands for none.
type Tensor struct {
	data                  unsafe.Pointer
	elements              int
	dtype                 DType
	rowStride, headStride int
	batchRows             uint32
}

// empty is the target of tensors without rows; only its address is used.
var empty uint64

func tensorOf[T any](slice []T, dtype DType) Tensor {
	data := unsafe.Pointer(&empty)
	if len(slice) > 0 {
		data = unsafe.Pointer(&slice[0])
	}
	return Tensor{data: data, elements: len(slice), dtype: dtype}
}

// Float32 returns dense rows of float32.
func Float32(data []float32) Tensor { return tensorOf(data, F32) }

// Float16 returns dense rows of IEEE binary16.
func Float16(data []uint16) Tensor { return tensorOf(data, F16) }

// BFloat16 returns dense rows of bfloat16, the upper halves of float32.
func BFloat16(data []uint16) Tensor { return tensorOf(data, BF16) }

// WithStrides returns the tensor with element (row, head, dim) at row * rowStride + head *
// headStride + dim; 0 means dense.
func (t Tensor) WithStrides(rowStride, headStride int) Tensor {
	t.rowStride, t.headStride = rowStride, headStride
	return t
}

// Padded returns the tensor as a padded batch: the rows of each sequence begin batchRows rows after
// those of the one before it. [batch][n][heads][dim] is padded by n, and [batch][heads][n][dim] by
// heads * n, with strides of dim and n * dim.
func (t Tensor) Padded(batchRows uint32) Tensor {
	t.batchRows = batchRows
	return t
}

// batchRows are the number of rows of each sequence of a batch and its first row: within its entry
// of a padded batch, or over all rows.
type batchRows struct {
	lengths, firstRows []uint32
}

// total is the number of rows of all sequences.
func (b batchRows) total() int {
	rows := 0
	for _, length := range b.lengths {
		rows += int(length)
	}
	return rows
}

// reach is the number of rows that memory needs: per entry of a padded batch, or in all.
func (b batchRows) reach() int {
	end := 0
	for i, length := range b.lengths {
		at := int(length)
		if b.firstRows != nil {
			at += int(b.firstRows[i])
		}
		if length > 0 && at > end {
			end = at
		}
	}
	return end
}

// checkBatch is check for the rows of a batch, which may be padded.
func (t Tensor) checkBatch(op, name string, rows batchRows, heads, dim int) (*raw.Tensor, error) {
	reached := rows.total()
	if reached > 0 && (t.batchRows != 0 || rows.firstRows != nil) {
		over, before := bits.Mul64(uint64(len(rows.lengths)-1), uint64(t.batchRows))
		if over != 0 || before > 1<<61 {
			return nil, misuse(op, ErrOverflow, "%s: %d sequences of %d rows", name,
				len(rows.lengths), t.batchRows)
		}
		reached = int(before) + rows.reach()
	}
	out, err := t.check(op, name, reached, heads, dim)
	if out != nil {
		out.BatchRows = t.batchRows
	}
	return out, err
}

// extent returns one more than the index of the last element, or false on overflow.
func extent(rows, heads, dim, rowStride, headStride uint64) (uint64, bool) {
	if rows == 0 || heads == 0 {
		return 0, true
	}
	overRows, row := bits.Mul64(rows-1, rowStride)
	overHeads, head := bits.Mul64(heads-1, headStride)
	sum, carry := bits.Add64(row, head, 0)
	sum, carry2 := bits.Add64(sum, dim, 0)
	return sum, overRows|overHeads|carry|carry2 == 0 && sum < 1<<62
}

// check returns the tensor of C after checking that the slice has these rows; NULL for the zero
// one.
func (t Tensor) check(op, name string, rows, heads, dim int) (*raw.Tensor, error) {
	if t.data == nil {
		return nil, nil
	}
	if rows < 0 || heads < 0 || dim < 0 {
		return nil, misuse(
			op, ErrInvalidArgument, "%s: %d rows of %d heads of %d dims are not rows", name, rows,
			heads, dim,
		)
	}
	if t.rowStride < 0 || t.headStride < 0 {
		return nil, misuse(
			op, ErrInvalidArgument, "%s: strides of %d and %d elements: they must not be negative",
			name, t.rowStride, t.headStride,
		)
	}
	headStride := uint64(t.headStride)
	if headStride == 0 {
		headStride = uint64(dim)
	}
	rowStride := uint64(t.rowStride)
	if rowStride == 0 {
		over, dense := bits.Mul64(uint64(heads), headStride)
		if over != 0 {
			return nil, misuse(
				op, ErrOverflow, "%s: %d heads with a stride of %d", name, heads, headStride,
			)
		}
		rowStride = dense
	}
	needed, fits := extent(uint64(rows), uint64(heads), uint64(dim), rowStride, headStride)
	if !fits || needed > uint64(t.elements) {
		return nil, misuse(
			op,
			ErrInvalidArgument,
			"%s: %d rows of %d heads of %d dims with strides of %d and %d need %d elements, "+
				"the slice has %d",
			name,
			rows,
			heads,
			dim,
			rowStride,
			headStride,
			needed,
			t.elements,
		)
	}
	return &raw.Tensor{
		Data:       t.data,
		DType:      int32(t.dtype),
		RowStride:  int64(t.rowStride),
		HeadStride: int64(t.headStride),
	}, nil
}
