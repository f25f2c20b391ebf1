//! The fields as bytes.

mod exposed;
mod fields;
mod one_layer;
mod stacked;
