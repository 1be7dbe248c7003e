//! A model's file: see [`Gguf`].
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::quantized::QTensor;
use candle_core::{bail, Device, Error, Result};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// An open GGUF file: its metadata, and tensors on demand.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: BufReader<File>,
    content: Content,
}

impl Gguf {
    /// Reads the metadata. Errors name the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let name = path.display();
        let file = File::open(&path).map_err(|error| Error::msg(format!("{name}: {error}")))?;
        let mut file = BufReader::new(file);
        let mut magic = [0; 4];
        let is_gguf = file.read_exact(&mut magic).is_ok() && &magic == b"GGUF";
        if !is_gguf {
            bail!("{name} is not a GGUF file: it does not begin with \"GGUF\"");
        }
        file.rewind()?;
        let content =
            Content::read(&mut file).map_err(|error| Error::msg(format!("{name}: {error}")))?;
        Ok(Self { path, file, content })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.content.metadata.get(key)
    }

    /// The value of a key, if there is one; an error if it has another type.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        read: impl FnOnce(&'a Value) -> Result<T>,
    ) -> Result<Option<T>> {
        let wrong = |error| Error::msg(format!("{}: {key}: {error}", self.path.display()));
        self.value(key).map(read).transpose().map_err(wrong)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, |value| value.to_string().map(String::as_str))
    }

    /// A boolean.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, Value::to_bool)
    }

    /// An unsigned number.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, whole)
    }

    /// An unsigned number of 32 bits, for example a token id.
    pub fn number(&self, key: &str) -> Result<Option<u32>> {
        let small = |number: usize| {
            u32::try_from(number).map_err(|_| Error::msg(format!("{number} has over 32 bits")))
        };
        self.typed(key, |value| small(whole(value)?))
    }

    /// A floating-point number.
    pub fn real(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, Value::to_f32)
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>> {
        self.typed(key, |value| value.to_vec()?.iter().map(|v| v.to_string().cloned()).collect())
    }

    /// A list of unsigned numbers of any type.
    pub fn counts(&self, key: &str) -> Result<Option<Vec<usize>>> {
        self.typed(key, |value| value.to_vec()?.iter().map(whole).collect())
    }

    /// A list of floating-point numbers.
    pub fn reals(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.typed(key, |value| value.to_vec()?.iter().map(Value::to_f32).collect())
    }

    /// Returns a required value.
    pub(crate) fn needed<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::msg(format!("{} has no {key}", self.path.display())))
    }

    /// Returns whether the file has a tensor.
    pub fn has(&self, tensor: &str) -> bool {
        self.content.tensor_infos.contains_key(tensor)
    }

    /// Reads a tensor, which must have this shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor> {
        let Some(info) = self.content.tensor_infos.get(name) else {
            bail!("{} has no tensor {name}", self.path.display())
        };
        if info.shape.dims() != shape {
            let found = info.shape.dims();
            bail!("{}: {name} is {found:?}, not {shape:?}", self.path.display())
        }
        let tensor = self.content.tensor(&mut self.file, name, &Device::Cpu);
        tensor.map_err(|error| Error::msg(format!("{}: {name}: {error}", self.path.display())))
    }

    /// A hash of the file. Another version of Rust may return another one.
    pub fn fingerprint(&self) -> Result<u64> {
        let mut file = File::open(&self.path)?;
        let (mut hasher, mut piece) = (DefaultHasher::new(), Vec::new());
        while (&mut file).take(1 << 20).read_to_end(&mut piece)? > 0 {
            hasher.write(&piece);
            piece.clear();
        }
        Ok(hasher.finish())
    }

    /// The numbers of all tensors.
    pub(crate) fn numbers(&self) -> usize {
        self.content.tensor_infos.values().map(|info| info.shape.elem_count()).sum()
    }

    /// The first dimension of a tensor: the rows of a matrix.
    pub(crate) fn rows(&self, tensor: &str) -> Option<usize> {
        self.content.tensor_infos.get(tensor)?.shape.dims().first().copied()
    }
}

fn whole(value: &Value) -> Result<usize> {
    let number = match value {
        Value::I8(v) => i64::from(*v),
        Value::I16(v) => i64::from(*v),
        Value::I32(v) => i64::from(*v),
        Value::I64(v) => *v,
        other => return Ok(other.to_u64()? as usize),
    };
    usize::try_from(number).map_err(|_| Error::msg(format!("{number} is negative")))
}
