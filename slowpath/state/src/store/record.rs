//! Records in a file: length, checksum, content.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes before the content: its length and the CRC-32 of length and content, little-endian.
const HEAD: usize = 8;

/// Appends a record.
pub(super) fn put<T: Serialize + ?Sized>(to: &mut Vec<u8>, content: &T) -> io::Result<()> {
    let start = to.len();
    to.extend_from_slice(&[0; HEAD]);
    serde_json::to_writer(&mut *to, content)?;
    let len = u32::try_from(to.len() - start - HEAD).map_err(io::Error::other)?;
    let sum = sum(len, to.get(start + HEAD..).unwrap_or_default());
    if let Some(head) = to.get_mut(start..start + HEAD) {
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

/// The records from the beginning up to the first that is not whole, each with the place of its
/// end.
pub(super) fn all<T: DeserializeOwned>(bytes: &[u8]) -> impl Iterator<Item = (T, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (head, rest) = bytes.get(at..)?.split_first_chunk::<HEAD>()?;
        let [a, b, c, d, e, f, g, h] = *head;
        let (len, told) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let content = rest.get(..len as usize)?;
        let content =
            (sum(len, content) == told).then(|| serde_json::from_slice(content).ok())??;
        at += HEAD + len as usize;
        Some((content, at))
    })
}

fn sum(len: u32, content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&len.to_le_bytes());
    sum.update(content);
    sum.finalize()
}
