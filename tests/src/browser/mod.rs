//! A headless browser, controlled by the DevTools protocol over two pipes: JSON messages, each
//! followed by a zero byte.
//!
//! Requests, console messages and exceptions of the page are recorded.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Program names of supported browsers.
const PROGRAMS: [&str; 4] = [
    "chromium",
    "chromium-headless-shell",
    "google-chrome",
    "chromium-browser",
];

/// Time limit of an answer on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns whether a browser is installed; otherwise records `what` as skipped.
pub fn has_browser(feature: &str) -> bool {
    let found = program().is_some();
    if !found {
        crate::skip(feature, "no browser is installed (package chromium)");
    }
    found
}

fn program() -> Option<std::path::PathBuf> {
    PROGRAMS.into_iter().find_map(crate::on_path)
}

/// A browser with one page.
pub struct Browser {
    child: Child,
    words: ChildStdin,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    /// Requested URLs, that of the page first.
    pub requests: Vec<String>,
    /// Console messages, exceptions and violations of the content security policy.
    pub console: Vec<String>,
    /// Directory of the browser profile, removed with the browser.
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page.
    ///
    /// # Panics
    /// No browser is installed, or it does not start.
    pub fn start() -> Self {
        let program = program().expect("a browser is installed");
        let profile = tempfile::tempdir().expect("temporary directory");
        // The protocol uses descriptors 3 and 4, which a shell can redirect.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .args(["--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let words = child.stdin.take().expect("piped");
        let messages = read_messages(child.stdout.take().expect("piped"));
        let mut browser = Self {
            child,
            words,
            messages,
            session: String::new(),
            number: 0,
            requests: Vec::new(),
            console: Vec::new(),
            _profile: profile,
        };
        browser.attach();
        browser
    }

    fn attach(&mut self) {
        let target = self.ask("Target.createTarget", json!({"url": "about:blank"}));
        let parameters = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.ask("Target.attachToTarget", parameters);
        self.session = session["sessionId"].as_str().expect("name").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.ask(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Loads a file.
    pub fn open(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.ask("Page.navigate", json!({"url": url}));
        let loaded = "document.readyState === 'complete' && location.protocol === 'file:'";
        self.wait_for(loaded);
    }

    /// Sets the size of the viewport and emulates a phone if `mobile`.
    pub fn resize(&mut self, width: u32, height: u32, mobile: bool) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Disables scripts of pages that are loaded later.
    pub fn forbid_scripts(&mut self) {
        self.ask(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": true}),
        );
    }

    /// Presses a key: `Tab`, `Enter`, `ArrowRight`, or a letter.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            "ArrowLeft" => (37, None),
            "ArrowUp" => (38, None),
            "ArrowRight" => (39, None),
            "ArrowDown" => (40, None),
            letter => (0, Some(letter)),
        };
        let mut event = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            event["text"] = json!(text);
        }
        self.ask("Input.dispatchKeyEvent", event);
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.ask("Input.dispatchKeyEvent", up);
    }

    /// Clicks in the middle of the first element of a selector.
    pub fn click(&mut self, selector: &str) {
        let place = format!(
            "(() => {{ const e = document.querySelector({selector:?}); \
             e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let place = self.value(&place);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    /// Evaluates an expression and returns its value.
    ///
    /// # Panics
    /// The expression throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", parameters);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Returns accessibility problems of the page in its current state; see `audit.js`.
    pub fn audit(&mut self) -> Vec<String> {
        let found = self.value(include_str!("audit.js"));
        let found = found.as_array().expect("list").iter();
        found
            .map(|problem| problem.as_str().expect("text").to_owned())
            .collect()
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// It stays false.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a message and waits for its answer. Events before the answer are recorded.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.words
            .write_all(&bytes)
            .expect("browser reads its pipe");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{method}: no answer: {error}"));
            if message["id"] == json!(self.number) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            Some("Runtime.consoleAPICalled") => self.console.push(params["args"].to_string()),
            Some("Runtime.exceptionThrown") => {
                self.console.push(params["exceptionDetails"].to_string());
            }
            Some("Log.entryAdded") => self.console.push(params["entry"].to_string()),
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The shell has replaced itself by the browser, whose children exit with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages of the browser on a thread.
fn read_messages(from: impl std::io::Read + Send + 'static) -> Receiver<Value> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut message = Vec::new();
        while from.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            let Ok(value) = serde_json::from_slice(&message) else {
                break;
            };
            if send.send(value).is_err() {
                break;
            }
            message.clear();
        }
    });
    receive
}
