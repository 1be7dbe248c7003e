//! Products of rows and weights: see [`Weight`].
use candle_core::cpu::kernels::VecOps;
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::utils::barrier_pool;
use candle_core::{bail, CpuStorage, Device, Module, Result, Storage, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// The type of weights in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// `F32` for models of up to a billion weights, else `File`.
    #[default]
    Auto,
    /// The type of the file. candle rounds the rows that are multiplied by quantised weights to 8
    /// bits, so results differ more than those of `F32` between machines and kinds of `Kv`.
    File,
    /// 32-bit numbers: exact products, more memory.
    F32,
    /// Quantised again to 8 bits.
    Q8,
}

/// A matrix `[columns of the result][columns of the rows]`.
#[derive(Clone, Debug)]
pub(crate) enum Weight {
    Exact(Tensor),
    Quantised(Arc<QTensor>),
}

/// Up to this many rows, candle's products of one row are faster than dequantised weights.
const QUANTISED_ROWS: usize = 16;
/// Up to this many rows, dot products on all threads are faster than candle's matmul, which takes
/// single rows on one.
const DOT_ROWS: usize = 4;

impl Weight {
    pub(crate) fn new(tensor: QTensor, weights: Weights) -> Result<Self> {
        let plain = matches!(tensor.dtype(), GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16);
        match weights {
            Weights::Q8 => {
                let exact = tensor.dequantize(&Device::Cpu)?;
                Ok(Self::Quantised(Arc::new(QTensor::quantize(&exact, GgmlDType::Q8_0)?)))
            }
            Weights::File if !plain => Ok(Self::Quantised(Arc::new(tensor))),
            _ => Ok(Self::Exact(tensor.dequantize(&Device::Cpu)?)),
        }
    }

    /// Returns the rows of tokens of an embedding.
    pub(crate) fn embedding(&self, tokens: &Tensor) -> Result<Tensor> {
        match self {
            Self::Exact(weight) => weight.index_select(tokens, 0),
            Self::Quantised(weight) => weight.embedding(tokens),
        }
    }

    /// Multiplies `[rows][columns]`.
    pub(crate) fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        let count = rows.dim(0)?;
        match self {
            Self::Exact(weight) if count <= DOT_ROWS => dots(weight, rows),
            Self::Exact(weight) => rows.matmul(&weight.t()?),
            Self::Quantised(weight) if count <= QUANTISED_ROWS => {
                QMatMul::QTensor(weight.clone()).forward(rows)
            }
            Self::Quantised(weight) => rows.matmul(&weight.dequantize(&Device::Cpu)?.t()?),
        }
    }
}

/// Dot products of each row with each row of the weight, on candle's threads.
fn dots(weight: &Tensor, rows: &Tensor) -> Result<Tensor> {
    let ((n, k), m) = (weight.dims2()?, rows.dim(0)?);
    if rows.dim(1)? != k {
        bail!("rows of {} are multiplied with a weight of {k}", rows.dim(1)?)
    }
    let rows = rows.contiguous()?;
    let ((weight, w_layout), (rows, r_layout)) =
        (weight.storage_and_layout(), rows.storage_and_layout());
    let (Storage::Cpu(CpuStorage::F32(weight)), Storage::Cpu(CpuStorage::F32(rows))) =
        (&*weight, &*rows)
    else {
        bail!("weights and rows are f32 in the memory of the processor")
    };
    let weight = &weight[w_layout.start_offset()..][..n * k];
    let rows = &rows[r_layout.start_offset()..][..m * k];
    let mut out = vec![0f32; m * n];
    let results = Results(out.as_mut_ptr());
    barrier_pool().execute_chunked(n, |columns: Range<usize>| {
        let results = &results;
        for column in columns {
            let of_column = &weight[column * k..][..k];
            for (row, numbers) in rows.chunks_exact(k).enumerate() {
                let mut dot = 0.0;
                // Both have k numbers; each place of the results is written by one thread, once.
                unsafe {
                    f32::vec_dot(numbers.as_ptr(), of_column.as_ptr(), &mut dot, k);
                    *results.0.add(row * n + column) = dot;
                }
            }
        }
    });
    Tensor::from_vec(out, (m, n), &Device::Cpu)
}

struct Results(*mut f32);

// Threads write to different places.
unsafe impl Sync for Results {}
