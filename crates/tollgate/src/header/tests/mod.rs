//! The fields as bytes.

mod fields;
mod one_layer;
mod stacked;
