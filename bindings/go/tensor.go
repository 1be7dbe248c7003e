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

// checkBatch is check for the rows of a batch, which may be padded.
func (t Tensor) checkBatch(op, name string, rows batchRows, heads, dim int) (*raw.Tensor, error) {
	sequences, reached := 1, rows.total()
	if reached > 0 && (t.batchStride != 0 || rows.firstRows != nil) {
		reached = rows.reach()
	}
	if t.batchStride != 0 {
		sequences = len(rows.lengths)
	}
	return t.checkExtent(op, name, sequences, reached, heads, dim)
}

// check returns the tensor of C after checking that the slice has these rows; NULL for the zero
// one.
func (t Tensor) check(op, name string, rows, heads, dim int) (*raw.Tensor, error) {
	return t.checkExtent(op, name, 1, rows, heads, dim)
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

func (t Tensor) checkExtent(
	op, name string, sequences, rows, heads, dim int,
) (*raw.Tensor, error) {
	if t.data == nil {
		return nil, nil
	}
	if rows < 0 || heads < 0 || dim < 0 {
		return nil, misuse(
			op, ErrInvalidArgument, "%s: %d rows of %d heads of %d dims are not rows", name, rows,
			heads, dim,
		)
	}
	if t.rowStride < 0 || t.headStride < 0 || t.batchStride < 0 {
		return nil, misuse(
			op, ErrInvalidArgument, "%s: strides of %d, %d and %d elements: they must not be negative",
			name, t.rowStride, t.headStride, t.batchStride,
		)
	}
	rowStride, headStride := uint64(t.rowStride), uint64(t.headStride)
	if headStride == 0 {
		headStride = uint64(dim)
	}
	if rowStride == 0 {
		over, dense := bits.Mul64(uint64(heads), uint64(dim))
		if over != 0 {
			return nil, misuse(op, ErrOverflow, "%s: %d heads of %d dims", name, heads, dim)
		}
		rowStride = dense
	}
	needed, fits := extent(
		[2]uint64{uint64(sequences), uint64(t.batchStride)}, [2]uint64{uint64(rows), rowStride},
		[2]uint64{uint64(heads), headStride}, [2]uint64{uint64(dim), 1},
	)
	if !fits || needed > uint64(t.elements) {
		return nil, misuse(
			op,
			ErrInvalidArgument,
			"%s: %d rows of %d heads of %d dims with strides of %d, %d and %d need %d elements, "+
				"the slice has %d",
			name,
			sequences*rows,
			heads,
			dim,
			rowStride,
			headStride,
			t.batchStride,
			needed,
			t.elements,
		)
	}
	return &raw.Tensor{
		Data:        t.data,
		DType:       int32(t.dtype),
		RowStride:   int64(t.rowStride),
		HeadStride:  int64(t.headStride),
		BatchStride: int64(t.batchStride),
	}, nil
}
