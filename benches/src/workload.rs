//! Who asks: names of clients, and the order in which they come.

/// The length of a sequence. It is gone through in a circle.
const LENGTH: usize = 1 << 21;

/// Says the names of clients, of 24 bytes each.
///
/// A name is written in place, as one that was just read from a connection is: near, and not somewhere in a large table
/// of names, which would make everybody wait for memory before the check begins.
#[derive(Clone, Debug)]
pub struct Namer {
    digits: Vec<String>,
    name: String,
    client: u32,
}

impl Namer {
    /// A namer of its own for each thread.
    #[must_use]
    pub fn new() -> Self {
        Self {
            digits: (0..1000).map(|i| format!("{i:03}")).collect(),
            name: format!("customer-{:015}", 0),
            client: 0,
        }
    }

    /// The name of a client below a million.
    #[inline]
    #[must_use]
    pub fn name(&mut self, client: u32) -> &String {
        if client != self.client {
            self.name.truncate(18);
            self.name.push_str(&self.digits[client as usize / 1000]);
            self.name.push_str(&self.digits[client as usize % 1000]);
            self.client = client;
        }
        &self.name
    }
}

impl Default for Namer {
    fn default() -> Self {
        Self::new()
    }
}

/// One client alone.
#[must_use]
pub fn hot() -> Vec<u32> {
    vec![7; 4096]
}

/// `clients` clients, each as often as the others.
#[must_use]
pub fn uniform(clients: u32) -> Vec<u32> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..LENGTH)
        .map(|_| (random.unit() * f64::from(clients)) as u32)
        .collect()
}

/// `clients` clients, the n-th most frequent one in proportion to 1/n.
#[must_use]
pub fn zipf(clients: u32) -> Vec<u32> {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    (0..LENGTH)
        .map(|_| {
            let rank = f64::from(clients).powf(random.unit()) as u64 - 1;
            // Frequent clients do not lie side by side: a prime above any number of clients permutes them.
            (rank * 2_654_435_761 % u64::from(clients)) as u32
        })
        .collect()
}

/// Every client once, so that all of them have a state. Not in the order of their names' memory.
pub fn each(clients: u32) -> impl Iterator<Item = u32> {
    (0..u64::from(clients)).map(move |i| (i * 2_654_435_761 % u64::from(clients)) as u32)
}

/// xorshift64: the same sequence in each run.
struct Random(u64);

impl Random {
    /// At least 0, below 1.
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
