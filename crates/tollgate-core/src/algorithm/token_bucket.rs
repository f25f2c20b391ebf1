//! Token bucket
