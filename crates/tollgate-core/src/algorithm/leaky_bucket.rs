//! Leaky bucket as a meter
