//! `weir top` as an operator uses it: on a terminal of tmux, with a running slowpath.

use std::process::Command;

use patience::{check, eventually};

use super::appliance::{Folder, weir};
use super::generation;

/// A server of tmux with one window, in which a shell runs.
struct Tmux {
    /// Name of the server's socket.
    name: String,
}

impl Tmux {
    fn new(folder: &Folder, (width, height): (u16, u16)) -> Tmux {
        let tmux = Tmux { name: folder.path.file_name().unwrap().to_str().unwrap().to_owned() };
        let (width, height) = (width.to_string(), height.to_string());
        let folder = folder.path.display();
        let command = format!(
            "cd {folder}; weir() {{ {} --config {folder}/weir.toml \"$@\"; }}; PS1='ready> '",
            weir().display()
        );
        let session = ["-f", "/dev/null", "-u", "new-session", "-d", "-x", &width, "-y", &height];
        tmux.run(
            &[&session[..], &["env -u NO_COLOR TERM=xterm-256color LC_ALL=C.UTF-8 sh -i"]].concat(),
        );
        tmux.type_line(&command);
        tmux.type_line("clear");
        tmux.until("the shell's prompt", |screen| screen.trim() == "ready>");
        tmux
    }

    fn run(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.name]).args(args).output();
        let output = output.expect("tmux: install the package tmux");
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by tmux's names.
    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"][..], keys].concat());
    }

    /// Types a line for the shell.
    fn type_line(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until the screen satisfies a condition, and returns it.
    fn until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        eventually(what, || {
            let screen = self.screen();
            check(fits(&screen), || format!("\n{screen}"))?;
            Ok::<String, String>(screen)
        })
    }

    /// Waits until the screen contains all texts.
    fn shows(&self, texts: &[&str]) -> String {
        let all = |screen: &str| texts.iter().all(|text| screen.contains(text));
        self.until(&format!("a screen with {texts:?}"), all)
    }

    /// Presses a key, and waits until the screen contains all texts.
    fn press_until(&self, key: &str, texts: &[&str]) -> String {
        self.press(&[key]);
        self.shows(texts)
    }

    /// Waits for the shell's prompt at the end of the screen, and asserts that the terminal is as
    /// it was before `weir top`. Clears the screen.
    fn assert_restored(&self) {
        self.until("the shell's prompt", |screen| screen.trim_end().ends_with("ready>"));
        let flags = self.run(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(flags.trim(), "0 1");
        self.type_line("clear; stty -a; echo end-$((1 + 1))");
        let modes = self.shows(&["end-2"]);
        for (mode, without) in
            [("icanon", "-icanon"), (" echo ", "-echo "), ("isig", "-isig"), ("opost", "-opost")]
        {
            assert!(modes.contains(mode) && !modes.contains(without), "{modes}");
        }
        self.type_line("clear");
        self.until("the shell's prompt", |screen| screen.trim() == "ready>");
    }

    /// Returns the process that the shell runs.
    fn child(&self) -> String {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let output = Command::new("pgrep").args(["-P", shell.trim()]).output().unwrap();
        let pid = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        assert!(pid.parse::<u32>().is_ok(), "{pid:?}");
        pid
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Ends this test's server and its window.
        let _ = Command::new("tmux").args(["-L", &self.name, "kill-server"]).output();
    }
}

/// What each view contains with this appliance, which has no data plane.
const VIEWS: [(&str, &[&str]); 8] = [
    ("1", &["traffic", "the data plane is not running", "default/web", "PKT/S"]),
    ("2", &["SERVICE", "default/web", "1 of 1"]),
    ("3", &["10.97.2.11:80", "10.97.2.12:80", "active", "1 of 2"]),
    ("4", &["CLIENT", "no flows", "0 of 1 024 in use"]),
    ("5", &["REASON", "nothing was dropped"]),
    ("6", &["LOST/S", "the data plane is not running"]),
    ("7", &["sessions", "0 of 0 established", "NEIGHBOR"]),
    ("8", &["none is configured: no section [aws] or [azure]"]),
];

#[test]
fn every_view_is_shown_and_the_terminal_is_restored() {
    let folder = Folder::new("top");
    let tmux = Tmux::new(&folder, (80, 24));
    // Without slowpath the terminal is not touched.
    tmux.type_line("weir top; echo code-$?");
    let text = tmux.shows(&["no slowpath listens", "code-2"]);
    assert!(!text.contains("1 overview"), "{text}");
    tmux.assert_restored();

    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    tmux.type_line("weir top --every 0.2");
    let text = tmux.shows(&["weir-p", "UNABLE to serve", "1 overview", "8 cloud", "q quit"]);
    assert_eq!(text.lines().count(), 24, "{text}");
    for (key, texts) in VIEWS {
        tmux.press_until(key, texts);
    }
    tmux.press_until("?", &["Shift-Tab", "client=, frontend="]);
    // A service, its backend, and back; by the name of the view.
    for key in ["Escape", ":", "s", "e", "Enter"] {
        tmux.press(&[key]);
    }
    tmux.shows(&["services  ", "default/web"]);
    tmux.press_until("Enter", &["services > default/web", "203.0.113.1:80/tcp", "10.97.2.12:80"]);
    tmux.press(&["Down"]);
    tmux.press_until("Enter", &["default/web > 10.97.2.1", "next hop", "no flow"]);
    tmux.press_until("Escape", &["203.0.113.1:80/tcp", "of 2"]);
    tmux.press_until("Escape", &["1 of 1"]);
    tmux.press(&["/", "x", "y", "z"]);
    tmux.shows(&["none of 1 rows matches", "/xyz"]);
    tmux.press(&["Escape"]);
    tmux.shows(&["1 of 1"]);
    tmux.press_until("p", &["PAUSED", "paused: data of"]);
    tmux.press(&["p"]);
    tmux.until("no pause", |screen| !screen.contains("PAUSED"));

    // Another size.
    tmux.run(&["resize-window", "-x", "150", "-y", "40"]);
    let wide = |screen: &str| {
        let lines: Vec<&str> = screen.lines().collect();
        lines.len() == 40 && lines[39].contains("q quit") && screen.contains("HISTORY")
    };
    tmux.until("150 x 40", wide);

    // slowpath is gone, and back.
    slowpath.kill();
    tmux.shows(&["ago: no slowpath listens", "default/web"]);
    let _again = folder.slowpath();
    tmux.until("data", |screen| !screen.contains("ago: ") && screen.contains("default/web"));

    // Suspended and continued, by key and by signal.
    tmux.press(&["C-z"]);
    tmux.until("the shell", |screen| screen.trim_end().ends_with("ready>"));
    tmux.assert_restored();
    tmux.type_line("fg");
    tmux.shows(&["default/web", "q quit"]);
    let pid = tmux.child();
    signal("TSTP", &pid);
    tmux.until("the shell", |screen| screen.trim_end().ends_with("ready>"));
    tmux.assert_restored();
    tmux.type_line("fg");
    tmux.shows(&["default/web", "q quit"]);
    tmux.press(&["q"]);
    tmux.assert_restored();
}

fn signal(name: &str, pid: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid).status();
    assert!(status.unwrap().success());
}

#[test]
fn signals_and_control_c_restore_the_terminal() {
    let folder = Folder::new("top-signals");
    let tmux = Tmux::new(&folder, (100, 30));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    for name in ["TERM", "INT", "HUP"] {
        tmux.type_line("weir top backends");
        tmux.shows(&["10.97.2.11:80", "q quit"]);
        signal(name, &tmux.child());
        tmux.assert_restored();
    }
    tmux.type_line("weir top; echo code-$?");
    tmux.shows(&["default/web", "q quit"]);
    tmux.press(&["C-c"]);
    tmux.assert_restored();
    // `q` is success.
    tmux.type_line("weir top; echo code-$?");
    tmux.shows(&["default/web", "q quit"]);
    tmux.press(&["q"]);
    tmux.shows(&["code-0"]);
    tmux.assert_restored();
}

#[test]
fn terminals_without_colors_characters_or_cursor_are_served() {
    let folder = Folder::new("top-terminals");
    let tmux = Tmux::new(&folder, (100, 30));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    let colors = |tmux: &Tmux| {
        let text = tmux.run(&["capture-pane", "-p", "-e"]);
        (0..8).any(|color| text.contains(&format!("38;5;{color}m")))
    };
    for (environment, colored, ascii) in [
        ("UNUSED=1", true, false),
        ("NO_COLOR=1", false, false),
        ("TERM=vt100", false, false),
        ("LC_ALL=C", true, true),
    ] {
        tmux.type_line(&format!("export {environment}; weir top backends"));
        let text = tmux.shows(&["10.97.2.11:80", "active", "q quit"]);
        assert_eq!(colors(&tmux), colored, "{environment}: {text}");
        assert_eq!(text.contains(['▼', '▁', '…']), !ascii, "{environment}: {text}");
        tmux.press(&["q"]);
        tmux.assert_restored();
        tmux.type_line("unset NO_COLOR; export TERM=xterm-256color LC_ALL=C.UTF-8");
    }
    // Text, without an escape sequence: on a terminal that cannot position, with --once, and as a
    // document.
    tmux.type_line("clear; export TERM=dumb; weir top --samples 2; echo end-$((1 + 1))");
    let text = tmux.shows(&["end-2"]);
    assert_eq!(text.matches("BACKEND").count(), 2, "{text}");
    tmux.type_line("export TERM=xterm-256color; clear; weir top --once; echo end-$((1 + 2))");
    let text = tmux.shows(&["end-3"]);
    assert!(text.contains("default/web") && !text.contains("q quit"), "{text}");
    let several = ["top", "--samples", "2", "--every", "0.1"];
    for args in [&several[..], &["top", "--once"], &["top", "--samples", "1", "--json"]] {
        let output = folder.weir(args);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(output.status.success() && !text.contains('\x1b'), "{args:?}: {output:?}");
        assert!(text.contains("default/web"), "{args:?}: {text}");
    }
}
