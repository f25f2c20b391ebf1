//! The local tables of a limiter with a remote store, and its top keys.

use metrics::{Gauge, gauge};

use crate::{
    observe::names::{TABLE_BYTES, TABLE_KEYS},
    sync::{Mutex, lock},
};

/// The keys of the fallback; its bytes, those of what was last seen, and those of the top keys.
type Sizes = [u64; 4];

/// Shows the sizes of this limiter, added to those of the others in the process. A limiter that is gone is taken out.
#[derive(Debug, Default)]
pub(super) struct TableGauges {
    shown: Mutex<(Option<Box<[Gauge; 4]>>, Sizes)>,
}

impl TableGauges {
    pub(super) fn show(&self, sizes: Sizes) {
        let mut shown = lock(&self.shown);
        let before = std::mem::replace(&mut shown.1, sizes);
        if before == sizes {
            return;
        }
        // Made at the first use: the application may install its recorder late.
        let gauges = shown.0.get_or_insert_with(|| {
            let bytes = |table: &'static str| gauge!(TABLE_BYTES, "table" => table);
            let keys = gauge!(TABLE_KEYS, "table" => "fallback");
            let [fallback, last_seen, top_keys] = ["fallback", "last_seen", "top_keys"].map(bytes);
            Box::new([keys, fallback, last_seen, top_keys])
        });
        for (gauge, (old, new)) in gauges.iter().zip(before.into_iter().zip(sizes)) {
            gauge.increment(new as f64 - old as f64);
        }
    }
}

impl Drop for TableGauges {
    fn drop(&mut self) {
        self.show([0; 4]);
    }
}
