//! Examples as they are run, over sockets and by what they print, and what the README and the page on examples show of them.

mod exports;
mod flag_source;
mod gateway;
mod login;
mod overload;
mod polite_client;
mod process;
mod readme;
mod rules;
mod shared;
