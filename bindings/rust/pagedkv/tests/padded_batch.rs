//! Padded batches: sequences, rows and heads in any order, and strides that are refused.
use pagedkv::*;

const DIM: usize = 16;

#[test]
fn batches_take_padded_rows() {
    let config = CacheConfig::new(LayerGroup::new(1, 2, 1, DIM as u32).blocks(8)).threads(1);
    let cache = Cache::new(&config).unwrap();
    let (mut one, mut other) = (cache.open_session().unwrap(), cache.open_session().unwrap());
    let mut batch = cache.begin([(&mut one, 2), (&mut other, 1)]).unwrap();
    // [2][2][DIM], the second session after a row of padding.
    let mut values = [0f32; 4 * DIM];
    values[DIM..2 * DIM].fill(1.0);
    values[2 * DIM..3 * DIM].fill(f32::NAN);
    values[3 * DIM..].fill(3.0);
    let keys = [0f32; 4 * DIM];
    let padded = |data| Rows::strided::<f32>(data, 0, 0).batch_stride(2 * DIM);
    assert!(batch.set_first_rows(Some(&[0])).is_err());
    batch.set_first_rows(Some(&[0, 1])).unwrap();
    batch.write(0, padded(&keys), padded(&values)).unwrap();
    assert!(batch.write(0, padded(&keys[..3 * DIM]), padded(&values)).is_err());
    let (queries, mut out) = ([0f32; 8 * DIM], [7f32; 8 * DIM]);
    let from = Rows::strided(&queries, 0, 0).batch_stride(4 * DIM);
    let outputs = RowsMut::strided(&mut out, 0, 0).batch_stride(4 * DIM);
    batch.attend(0, from, outputs).unwrap();
    assert_eq!([out[0], out[2 * DIM], out[4 * DIM], out[6 * DIM]], [0.0, 0.5, 7.0, 3.0]);

    // The same as [2][sessions][heads][DIM].
    let mut values = [1f32; 4 * DIM];
    values[..DIM].fill(0.0);
    values[3 * DIM..].fill(3.0);
    let apart = |data| Rows::strided::<f32>(data, 2 * DIM, 0).batch_stride(DIM);
    batch.write(0, apart(&keys), apart(&values)).unwrap();
    let from = Rows::strided(&queries, 4 * DIM, 0).batch_stride(2 * DIM);
    let outputs = RowsMut::strided(&mut out, 4 * DIM, 0).batch_stride(2 * DIM);
    batch.attend(0, from, outputs).unwrap();
    assert_eq!([out[0], out[4 * DIM], out[6 * DIM]], [0.0, 0.5, 3.0]);
    for (wrong, sentence) in [
        (Rows::strided(&keys, 0, DIM + 1), "k: row_stride is 0 (dense), but head_stride is 17"),
        (Rows::strided(&keys, DIM - 1, 0), "the 4 rows of 1 heads of 16 overlap"),
    ] {
        let error = batch.write(0, wrong.batch_stride(2 * DIM), padded(&keys)).unwrap_err();
        assert!(error.message().contains(sentence), "{error}");
    }
    batch.set_first_rows(None).unwrap();
}
