//! A browser without a window, driven through a pipe by the protocol of its developer tools.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

/// A wait that no test comes near: it turns a hang into a failure.
const HANGS: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// What pages complained about: exceptions, and what their policy refused.
    pub(crate) complaints: Vec<String>,
    profile: PathBuf,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        static PROFILES: AtomicU64 = AtomicU64::new(0);
        let number = PROFILES.fetch_add(1, Ordering::Relaxed);
        let name = format!("console-{}-{number}", std::process::id());
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let browser = std::env::var("TOLLGATE_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        // The protocol is spoken on 3 and 4.
        let mut child = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
                &browser,
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-quic",
                "--lang=en",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ])
            .args([
                "--remote-debugging-pipe",
                "--hide-scrollbars",
                &format!("--user-data-dir={}", profile.display()),
            ])
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("sh");
        let (input, output) = (
            child.stdin.take().expect("piped"),
            child.stdout.take().expect("piped"),
        );
        let mut browser = Self {
            _child: child,
            input,
            output: BufReader::new(output),
            session: None,
            calls: 0,
            complaints: Vec::new(),
            profile,
        };
        let target = browser
            .call("Target.createTarget", json!({ "url": "about:blank" }))
            .await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut call = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.input
            .write_all(format!("{call}\0").as_bytes())
            .await
            .expect("a browser that listens");
        loop {
            let mut message = Vec::new();
            let read = timeout(HANGS, self.output.read_until(0, &mut message)).await;
            read.unwrap_or_else(|_| panic!("no answer to {method}"))
                .expect("a browser that answers");
            message.pop();
            let message: Value =
                serde_json::from_slice(&message).expect("a message of the protocol");
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self
                    .complaints
                    .push(message["params"]["exceptionDetails"].to_string()),
                Some("Log.entryAdded") if message["params"]["entry"]["source"] != "network" => {
                    self.complaints.push(message["params"]["entry"].to_string());
                }
                _ => {}
            }
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    pub(crate) async fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url })).await;
        self.until("document.readyState === 'complete'").await;
    }

    /// The value of an expression.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let evaluate =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let evaluated = self.call("Runtime.evaluate", evaluate).await;
        assert!(
            evaluated["exceptionDetails"].is_null(),
            "{expression}: {evaluated}"
        );
        evaluated["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        let polled = async {
            loop {
                let evaluate =
                    json!({ "expression": format!("!!({expression})"), "returnByValue": true });
                if self.call("Runtime.evaluate", evaluate).await["result"]["value"] == true {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(HANGS, polled).await.is_err() {
            let text = self.value("document.body.innerText").await;
            panic!("never {expression}: {text}");
        }
    }

    /// The text of the page, as its reader sees it.
    pub(crate) async fn text(&mut self) -> String {
        self.value("document.body.innerText")
            .await
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until the page shows a text.
    pub(crate) async fn shows(&mut self, text: &str) {
        self.until(&format!(
            "document.body.innerText.includes({})",
            json!(text)
        ))
        .await;
    }

    /// Writes into a field of a form.
    pub(crate) async fn fill(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        let fill = format!(
            "(() => {{ const it = document.querySelector({selector}); it.value = {text}; it.dispatchEvent(new Event('input', {{ bubbles: true }})); \
             it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
        );
        self.value(&fill).await;
    }

    /// Presses a key.
    pub(crate) async fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let press = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", press).await;
        }
    }

    /// Clicks what is about to be there.
    pub(crate) async fn click_when(&mut self, selector: &str) {
        self.until(&format!("document.querySelector({})", json!(selector)))
            .await;
        self.click(selector).await;
    }

    pub(crate) async fn click(&mut self, selector: &str) {
        self.value(&format!(
            "document.querySelector({}).click()",
            json!(selector)
        ))
        .await;
    }

    /// How wide and high the page is shown, and whether it is dark.
    pub(crate) async fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
