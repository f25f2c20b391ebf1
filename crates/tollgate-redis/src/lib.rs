//! Limits that many processes share: a store on Redis or Valkey.
