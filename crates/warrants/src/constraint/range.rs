//! Ranges of numbers.

/// A range. A bound that is absent does not limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub min_inclusive: bool,
    pub max_inclusive: bool,
}

impl Range {
    pub fn holds(&self, number: f64) -> bool {
        let above = |min| number > min || self.min_inclusive && number == min;
        let below = |max| number < max || self.max_inclusive && number == max;
        // NaN compares false with everything, so a range without bounds would accept it.
        !number.is_nan() && self.min.is_none_or(above) && self.max.is_none_or(below)
    }

    /// Returns true if `child` holds nothing that this range does not hold.
    pub fn covers(&self, child: &Self) -> bool {
        let min = self.min.is_none_or(|min| {
            let inclusive = self.min_inclusive || !child.min_inclusive;
            child
                .min
                .is_some_and(|own| own > min || own == min && inclusive)
        });
        let max = self.max.is_none_or(|max| {
            let inclusive = self.max_inclusive || !child.max_inclusive;
            child
                .max
                .is_some_and(|own| own < max || own == max && inclusive)
        });
        min && max
    }
}
