package pagedkv

import (
	"math/bits"
	"unsafe"

	raw "github.com/pagedkv/pagedkv/bindings/go/internal/generated"
)

// Tensor is rows in the caller's memory: keys, values, queries or outputs, [rows][heads][dim]. The
// zero Tensor stands for none.
type Tensor struct {
	data                               unsafe.Pointer
	elements                           int
	dtype                              DType
	rowStride, headStride, batchStride int
}

// empty is the target of tensors of empty slices, which the zero Tensor has not.
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
// headStride + dim; 0 means dense, never a broadcast.
func (t Tensor) WithStrides(rowStride, headStride int) Tensor {
	t.rowStride, t.headStride = rowStride, headStride
	return t
}

// WithBatchStride returns the tensor as a padded batch: the rows of each sequence begin batchStride
// elements after those of the one before it. [batch][n][heads][dim] has one of n * heads * dim;
// [batch][heads][n][dim] also has strides of dim and n * dim; [n][batch][heads][dim] has one of
// heads * dim, and rows batch * heads * dim apart.
func (t Tensor) WithBatchStride(batchStride int) Tensor {
	t.batchStride = batchStride
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

// extent returns one more than the index of the last element of axes with these counts and strides,
// or false on overflow.
func extent(axes ...[2]uint64) (uint64, bool) {
	sum := uint64(1)
	for _, axis := range axes {
		if axis[0] == 0 {
			return 0, true
		}
		over, apart := bits.Mul64(axis[0]-1, axis[1])
		if sum += apart; over != 0 || apart >= 1<<62 || sum >= 1<<62 {
			return 0, false
		}
	}
	return sum, true
}

// place returns the tensor of C, which refuses rows beyond the slice; NULL for the zero one.
func (t Tensor) place() *raw.Tensor {
	if t.data == nil {
		return nil
	}
	out := &raw.Tensor{
		Data:        t.data,
		DType:       int32(t.dtype),
		RowStride:   int64(t.rowStride),
		HeadStride:  int64(t.headStride),
		BatchStride: int64(t.batchStride),
		Bytes:       t.bytes(),
	}
	if t.elements == 0 {
		out.Data = nil // has no rows, while 0 bytes would stand for any number
	}
	return out
}

func (t Tensor) bytes() uint64 {
	if t.dtype == F32 {
		return 4 * uint64(t.elements)
	}
	return 2 * uint64(t.elements)
}
