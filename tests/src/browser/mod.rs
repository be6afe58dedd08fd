//! A real browser without a window, spoken to as its own tools speak to it: the
//! DevTools protocol over two pipes, JSON with a zero byte behind each message.
//!
//! Requests, console messages and exceptions of the page are recorded as they happen.

use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The programs that are looked for.
const PROGRAMS: [&str; 4] = [
    "chromium",
    "chromium-headless-shell",
    "google-chrome",
    "chromium-browser",
];

/// A browser on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns whether a browser is installed; otherwise records `what` as skipped.
pub fn has_browser(what: &str) -> bool {
    let found = program().is_some();
    if !found {
        crate::skip(what, "no browser is installed (package chromium)");
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
    heard: Receiver<Value>,
    session: String,
    number: u64,
    /// Addresses that the page asked for, the page itself first.
    pub requests: Vec<String>,
    /// Console messages, exceptions and violations of the content security policy.
    pub console: Vec<String>,
    /// Its profile, which goes with it.
    _profile: TempDir,
}

impl Browser {
    /// Starts one with an empty page.
    ///
    /// # Panics
    /// If there is none or it cannot be started.
    pub fn start() -> Self {
        let program = program().expect("the test asked whether there is one");
        let profile = tempfile::tempdir().expect("a temporary directory can be made");
        // The protocol is spoken on descriptors 3 and 4; a shell has them at hand.
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
            .expect("a shell can be started");
        let words = child.stdin.take().expect("it is a pipe");
        let heard = listen(child.stdout.take().expect("it is a pipe"));
        let mut browser = Self {
            child,
            words,
            heard,
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
        let told = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.ask("Target.attachToTarget", told);
        self.session = session["sessionId"].as_str().expect("a name").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.ask(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Shows a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        let url = format!("file://{}", file.display());
        self.ask("Page.navigate", json!({"url": url}));
        let loaded = "document.readyState === 'complete' && location.protocol === 'file:'";
        self.wait_for(loaded);
    }

    /// Lets a page of this size be shown, as on a phone if it is `mobile`.
    pub fn resize(&mut self, width: u32, height: u32, mobile: bool) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// Lets the system seem to want `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.ask("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Lets no page run its scripts from now on.
    pub fn forbid_scripts(&mut self) {
        self.ask(
            "Emulation.setScriptExecutionDisabled",
            json!({"value": true}),
        );
    }

    /// Presses a key, as a person does: `Tab`, `Enter`, `ArrowRight`, or a letter.
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
    /// If it throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let told = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", told);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Returns accessibility problems of the page in its current state; see `audit.js`.
    pub fn audit(&mut self) -> Vec<String> {
        let found = self.value(include_str!("audit.js"));
        let found = found.as_array().expect("a list").iter();
        found
            .map(|told| told.as_str().expect("a sentence").to_owned())
            .collect()
    }

    /// Waits until an expression holds.
    ///
    /// # Panics
    /// If it does not come to hold.
    pub fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(
                start.elapsed() < PATIENCE,
                "never came to hold: {expression}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a message and waits for its answer; what is heard meanwhile is noted.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.words.write_all(&bytes).expect("the browser listens");
        loop {
            let heard = self.heard.recv_timeout(PATIENCE);
            let heard = heard.unwrap_or_else(|error| panic!("{method}: no answer: {error}"));
            if heard["id"] == json!(self.number) {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].clone();
            }
            self.note(&heard);
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
        // It is the child itself: the shell has become it. Its own children end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hears what the browser says, on a thread of its own.
fn listen(from: impl std::io::Read + Send + 'static) -> Receiver<Value> {
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
