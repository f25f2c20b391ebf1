//! The script on a server.

use tollgate_redis::{call::Call, script};

use crate::support::{
    blocking_server::RedisServer,
    resp::{Resp, Value},
};

#[derive(Debug)]
pub(crate) struct Server {
    _server: RedisServer,
    connection: Resp,
}

impl Server {
    pub(crate) fn start() -> Self {
        let server = RedisServer::start(&[]);
        let mut connection = Resp::connect(server.address());
        let loaded = connection.ask([&b"SCRIPT"[..], b"LOAD", script::TEXT.as_bytes()]);
        assert_eq!(loaded, Value::Bytes(script::sha1().into()));
        Self {
            _server: server,
            connection,
        }
    }

    /// Sends these calls at once, and gives their answers in order.
    pub(crate) fn ask(&mut self, calls: &[Call]) -> Vec<Value> {
        for call in calls {
            let count = call.keys().len().to_string();
            let head = [b"EVALSHA", script::sha1().as_bytes(), count.as_bytes()];
            self.connection
                .push(head.into_iter().chain(call.keys()).chain(call.args()));
        }
        self.connection.flush();
        calls.iter().map(|_| self.connection.answer()).collect()
    }

    pub(crate) fn forget_everything(&mut self) {
        self.connection.say("FLUSHALL");
    }
}
