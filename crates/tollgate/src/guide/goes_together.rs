#![doc = include_str!("goes_together.md")]
