//! The bytes of a simulated file, in pages that copies share until one of them changes.

use std::sync::Arc;

pub const PAGE_BYTES: usize = 4096;

type Page = Arc<[u8; PAGE_BYTES]>;

/// Unwritten bytes are zero and take no memory.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pages: Vec<Option<Page>>,
    bytes: u64,
}

impl Content {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Truncated bytes are gone: if the file grows again, they are zero.
    pub fn resize(&mut self, bytes: u64) {
        self.pages
            .resize((bytes as usize).div_ceil(PAGE_BYTES), None);
        let kept = bytes as usize % PAGE_BYTES;
        if bytes < self.bytes
            && kept > 0
            && let Some(Some(page)) = self.pages.last_mut()
        {
            Arc::make_mut(page)[kept..].fill(0);
        }
        self.bytes = bytes;
    }

    /// Writes within the content and past its end, which moves.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if end > self.bytes {
            self.resize(end);
        }
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = at % PAGE_BYTES;
            let (piece, later) = rest.split_at(rest.len().min(PAGE_BYTES - within));
            let page = self.pages[at / PAGE_BYTES].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len();
            rest = later;
        }
    }

    /// Reads up to the end and returns the number of bytes.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let most = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (mut done, mut at) = (0, offset as usize);
        while done < most {
            let within = at % PAGE_BYTES;
            let run = (most - done).min(PAGE_BYTES - within);
            let piece = &mut buffer[done..done + run];
            match &self.pages[at / PAGE_BYTES] {
                Some(page) => piece.copy_from_slice(&page[within..within + run]),
                None => piece.fill(0),
            }
            done += run;
            at += run;
        }
        done
    }

    /// Puts a whole page, shared with `like` if the content is equal.
    pub fn put_page(&mut self, number: usize, page: &[u8; PAGE_BYTES], like: &Content) {
        let known = like.pages.get(number).and_then(Option::as_ref);
        let shared = known.filter(|known| known.as_slice() == page);
        self.pages[number] = Some(shared.map_or_else(|| Arc::new(*page), Arc::clone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Random;

    #[test]
    fn content_equals_a_plain_vector() {
        let mut random = Random(5);
        let (mut content, mut plain) = (Content::default(), Vec::<u8>::new());
        for _ in 0..500 {
            let at = random.below(20_000) as usize;
            if random.below(5) == 0 {
                content.resize(at as u64);
                plain.resize(at, 0);
            } else {
                let bytes: Vec<u8> = (0..random.below(9000)).map(|i| i as u8 | 1).collect();
                content.write(at as u64, &bytes);
                plain.resize(plain.len().max(at + bytes.len()), 0);
                plain[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let mut back = vec![9; plain.len() + 10];
            assert_eq!(content.read(0, &mut back), plain.len());
            assert_eq!(back[..plain.len()], plain);
        }
    }
}
