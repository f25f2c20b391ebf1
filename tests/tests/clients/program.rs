//! Programs that the tests run.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

/// A wait that no test comes near: it turns a hang into a failure.
const HANGS: Duration = Duration::from_secs(120);

/// Runs a program to its end, whatever its exit status.
pub(crate) async fn run(
    program: impl AsRef<OsStr>,
    arguments: &[impl AsRef<OsStr>],
    input: &str,
) -> Output {
    let program = program.as_ref();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{program:?}: {error}; ./test.sh installs what is missing"));
    let mut stdin = child.stdin.take().expect("it is piped");
    let whole = async {
        stdin
            .write_all(input.as_bytes())
            .await
            .expect("it reads its input");
        drop(stdin);
        child.wait_with_output().await.expect("it runs")
    };
    let output = timeout(HANGS, whole).await;
    output.unwrap_or_else(|_| panic!("{program:?} does not end"))
}

/// Runs a script of `tests/python` with this input, and reads what it prints.
pub(crate) async fn python(script: &str, input: &Value) -> Value {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let interpreter = env::var_os("TOLLGATE_PYTHON").map_or_else(
        || package.join("../target/python/bin/python"),
        PathBuf::from,
    );
    assert!(
        interpreter.exists(),
        "there is no Python at {}: ./test.sh makes it, or set TOLLGATE_PYTHON to one with tests/python/requirements.txt",
        interpreter.display()
    );
    let script = package.join("python").join(script);
    let output = run(interpreter, &[script], &input.to_string()).await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}
