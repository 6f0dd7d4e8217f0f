//! Repeated measurements of one quantity: their median, least and greatest.

use std::fmt;

/// Measurements in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Figures(Vec<f64>);

impl Figures {
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub fn percentile(&self, hundredths: usize) -> f64 {
        self.per_mille(hundredths * 10)
    }

    pub fn per_mille(&self, thousandths: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = sorted.len() * thousandths / 1000;
        sorted.get(rank).copied().unwrap_or(f64::NAN)
    }

    pub fn mean(&self) -> f64 {
        self.iter().sum::<f64>() / self.len() as f64
    }

    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

impl FromIterator<f64> for Figures {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Figures {
        Figures(figures.into_iter().collect())
    }
}

impl fmt::Display for Figures {
    /// `12.3 (11.0 to 14.2)`, or the figure alone if there is only one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let median = rounded(self.median());
        match self.0.len() {
            0 => f.write_str("none"),
            1 => f.write_str(&median),
            _ => write!(
                f,
                "{median} ({} to {})",
                rounded(self.least()),
                rounded(self.most())
            ),
        }
    }
}

/// Rounds to about three digits.
pub fn rounded(figure: f64) -> String {
    match figure.abs() {
        0.0..1.0 => format!("{figure:.3}"),
        1.0..10.0 => format!("{figure:.2}"),
        10.0..100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}
