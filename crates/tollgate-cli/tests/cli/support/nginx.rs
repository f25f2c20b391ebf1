//! An nginx of the test's own, which limits requests.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Child, Command},
    thread,
};

use tempfile::TempDir;
use tollgate_test_servers::blocking_server::{PAUSE, POLLS, free_port};

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl Nginx {
    /// With these directives for `/`, in a block `http` with these.
    pub(crate) fn start(http: &str, location: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths = paths
            .map(|path| format!("{path}_temp_path {path};"))
            .concat();
        let settings = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{ }}\nhttp {{ {paths} log_format times '$msec \
             $status'; access_log access.log times; {http}\nserver {{ listen 127.0.0.1:{port}; root .; location / {{ {location} }} }} }}\n"
        );
        fs::write(folder.path().join("nginx.conf"), settings).expect("a file");
        fs::write(folder.path().join("index.html"), "hello\n").expect("a file");
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/servers/nginx");
        let program = if own.exists() {
            own.as_os_str()
        } else {
            "nginx".as_ref()
        };
        let child = Command::new(program)
            .arg("-e")
            .arg("error.log")
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf"])
            .spawn();
        let child = child.expect("there is an nginx; tests/install.sh gets it");
        let server = Self {
            child,
            folder,
            port,
        };
        for _ in 0..POLLS {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            thread::park_timeout(PAUSE);
        }
        panic!(
            "{}",
            fs::read_to_string(server.folder.path().join("error.log")).unwrap_or_default()
        );
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// When it answered by its own clock, in milliseconds, and with which status.
    pub(crate) fn answers(&self) -> Vec<(u64, u16)> {
        let log = fs::read_to_string(self.folder.path().join("access.log")).expect("its log");
        let lines = log.lines().map(|line| {
            let (time, status) = line.split_once(' ').expect("a time");
            let millis = time.replace('.', "").parse().expect("a time");
            (millis, status.parse().expect("a status"))
        });
        lines.collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
