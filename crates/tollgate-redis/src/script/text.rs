//! The script that decides: one constant text, and its hash.
//!
//! It is put together from `lua/`, one file for each algorithm, so that a server keeps one script for every request,
//! settlement and reset of every rule, whatever their number. `prelude.lua` documents its arguments and its reply;
//! [`call`](crate::script::call) writes the one and [`reply`](crate::script::reply) reads the other.
//!
//! A call is `EVALSHA sha1 numkeys key .. arg ..`. A server that does not know the hash answers `NOSCRIPT` and has done
//! nothing; then `EVAL text numkeys key .. arg ..` loads the script and decides at once.

use crate::connection::command::Script;

/// The files of `lua/` as one text, behind `$before`.
macro_rules! text {
    ($before:expr) => {
        concat!(
            $before,
            include_str!("../../lua/prelude.lua"),
            "local step_of\n",
            "step_of = function(alg, purpose)\n",
            "if alg == 17 or alg == 16 then\n",
            include_str!("../../lua/gcra.lua"),
            include_str!("../../lua/gcra_refund.lua"),
            "elseif alg == 18 or alg == 19 then\n",
            include_str!("../../lua/window.lua"),
            "elseif alg == 20 or alg == 21 then\n",
            include_str!("../../lua/sliding_entries.lua"),
            "elseif alg == 22 then\n",
            include_str!("../../lua/concurrent.lua"),
            "elseif alg == 'blocks' then\n",
            include_str!("../../lua/blocks.lua"),
            "elseif alg == 'calendar' then\n",
            include_str!("../../lua/calendar.lua"),
            "elseif alg == 'credits' then\n",
            include_str!("../../lua/credits.lua"),
            "elseif alg == 'ids' then\n",
            include_str!("../../lua/ids.lua"),
            "elseif alg == 'write' then\n",
            include_str!("../../lua/write.lua"),
            "elseif alg == 'window leases' then\n",
            include_str!("../../lua/window_leases.lua"),
            "end\nend\n",
            include_str!("../../lua/decide.lua"),
        )
    };
}

/// The script, known to servers by its hash.
pub(crate) static DECIDE: Script = Script::new(TEXT);

/// The text of the script, for clients in other languages: [how to call it by hand](crate::guide::redis#from-another-language).
pub const TEXT: &str = text!("");

/// The same where the open record of a reservation says whether anything is done.
pub(crate) static DECIDE_WITH_RECORD: Script =
    Script::new(text!(include_str!("../../lua/record.lua")));
