//! Which of many denials are logged.

/// Chooses the denials that are logged: all of the first ten in a second, then one in ten, from the hundredth on one in a
/// hundred, and so on.
#[derive(Debug, Default)]
pub(super) struct DenialSampler {
    second: u64,
    denials: u64,
}

impl DenialSampler {
    /// A denial. `Some`: it is logged, and stands for this number of denials.
    pub(super) fn log(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            *self = Self { second, denials: 0 };
        }
        self.denials += 1;
        let mut one_in = 1;
        while self.denials > 10 * one_in {
            one_in *= 10;
        }
        self.denials.is_multiple_of(one_in).then_some(one_in)
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn few_denials_are_all_logged_and_of_many_each_line_stands_for_as_many_as_it_says() {
        let mut sampler = DenialSampler::default();
        let lines: Vec<u64> = (0..10_000).filter_map(|_| sampler.log(7)).collect();
        assert_eq!(lines[..10], [1; 10]);
        assert_eq!(lines[10..19], [10; 9]);
        assert_eq!(lines.len(), 10 + 9 + 9 + 9);
        assert_eq!(lines.iter().sum::<u64>(), 10_000);
        // Another second begins anew.
        assert_eq!(sampler.log(8), Some(1));
    }
}
