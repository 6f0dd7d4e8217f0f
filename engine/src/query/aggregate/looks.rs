//! Whether it pays to look at the next summary: after many that told nothing, most are passed over until one tells something again.

/// After so many summaries that told nothing, one in so many is looked at.
const FUTILE_MOST: u32 = 16;

/// The looks of one thread, one after the other.
#[derive(Default)]
pub(crate) struct Looks {
    /// Summaries that told nothing, or were passed over, since one told something.
    futile: u32,
}

impl Looks {
    /// Whether to look at the next one.
    pub fn next(&mut self) -> bool {
        self.futile = self.futile.saturating_add(1);
        self.futile <= FUTILE_MOST || self.futile.is_multiple_of(FUTILE_MOST)
    }

    /// The one that was looked at told something.
    pub fn told(&mut self) {
        self.futile = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_looked_at_where_they_tell_nothing_and_all_where_they_do() {
        let mut looks = Looks::default();
        assert_eq!((0..1600).filter(|_| looks.next()).count(), 16 + 99);
        looks.told();
        assert!((0..100).all(|_| {
            let next = looks.next();
            looks.told();
            next
        }));
    }
}
