//! Inputs made on purpose: for each target sound ones, and one for each error.

mod captures;
mod columns;
mod daemon;
mod exposition;
mod files;
mod log_bytes;
mod schema;
mod wire;

/// Files of a target's corpus: name and content.
pub type Seeds = Vec<(String, Vec<u8>)>;

/// By target.
pub fn all() -> Vec<(&'static str, Seeds)> {
    let mut all = log_bytes::all();
    all.extend(columns::all());
    all.extend(schema::all());
    all.extend(wire::all());
    all.extend(files::all());
    all.extend(daemon::all());
    all.extend(captures::all());
    all.extend(exposition::all());
    all
}

/// A seed whose bytes are parts one after the other.
fn seed(name: &str, parts: &[&[u8]]) -> (String, Vec<u8>) {
    (name.to_owned(), parts.concat())
}

/// `bytes` with `new` in place of what stands at `at`.
fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    match changed.get_mut(at..at + new.len()) {
        Some(place) => place.copy_from_slice(new),
        None => panic!("no {} bytes at {at} of {}", new.len(), bytes.len()),
    }
    changed
}
