//! Rejections (docs later)
