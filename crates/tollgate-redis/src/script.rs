//! The script that decides: one constant text, and its hash.
//!
//! It is put together from `lua/`, one file for each algorithm, so that a server keeps one script for every request,
//! settlement and reset of every rule, whatever their number. `prelude.lua` says what it takes and returns;
//! [`call`](crate::call) writes the one and [`reply`](crate::reply) reads the other.
//!
//! A call is `EVALSHA sha1 numkeys key .. arg ..`. A server that does not know the hash answers `NOSCRIPT` and has done
//! nothing; then `EVAL text numkeys key .. arg ..` teaches it and decides at once.
//!
//! ```
//! use tollgate_redis::script;
//!
//! // What `SCRIPT LOAD` would answer.
//! assert_eq!(script::sha1().len(), 40);
//! assert!(!script::TEXT.starts_with("#!"));
//! ```
//!
//! With redis-cli:
//!
//! ```
//! use tollgate_redis::script;
//!
//! let load = format!("redis-cli -x SCRIPT LOAD < script.lua # {}", script::sha1());
//! assert!(load.ends_with(&sha1_smol::Sha1::from(script::TEXT).digest().to_string()));
//! ```

use std::sync::LazyLock;

use sha1_smol::Sha1;

/// The text of the script.
pub const TEXT: &str = concat!(
    include_str!("../lua/prelude.lua"),
    "local step_of\n",
    "step_of = function(alg, refunding)\n",
    "if alg == 17 then\n",
    include_str!("../lua/arrival.lua"),
    "elseif alg == 18 then\n",
    include_str!("../lua/fixed_window.lua"),
    "elseif alg == 19 then\n",
    include_str!("../lua/sliding_window.lua"),
    "elseif alg == 20 then\n",
    include_str!("../lua/sliding_log.lua"),
    "elseif alg == 21 then\n",
    include_str!("../lua/sliding_buckets.lua"),
    "elseif alg == 0 then\n",
    include_str!("../lua/beside.lua"),
    "end\nend\n",
    include_str!("../lua/decide.lua"),
);

/// The hash by which a server knows the script: 40 hexadecimal digits.
#[must_use]
pub fn sha1() -> &'static str {
    static SHA1: LazyLock<String> = LazyLock::new(|| Sha1::from(TEXT).digest().to_string());
    &SHA1
}
