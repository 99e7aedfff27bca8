//! The terminal of the live view: its modes, signals and keys, and the loop that draws.

use std::io::{self, BufWriter, Stdout};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event as TerminalEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::style::{Attribute, SetAttribute};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, getsid, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::app::{Action, App};
use super::draw::draw;
use super::sample::Source;
use super::sampler::Sampler;

/// Maximum time between two drawings: ages are shown in seconds.
const TICK: Duration = Duration::from_millis(500);
/// Time after which a signal ends the process although the terminal accepts no output.
const STUCK: Duration = Duration::from_secs(2);
/// Size of the output buffer in bytes, so that most frames are a single write.
const BUFFER: usize = 1 << 16;

/// Whether the terminal is in raw mode and shows the alternate screen.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Sets raw mode and shows the alternate screen.
fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))
}

/// Restores the terminal as it was. Does nothing if that is done already; errors are ignored,
/// because the terminal may be gone.
fn restore() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let reset = SetAttribute(Attribute::Reset);
        let _ = execute!(io::stdout(), reset, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Makes a panic restore the terminal before its message is printed, and end the process; otherwise
/// the other threads would continue after a panic in one.
fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        report(panic);
        std::process::exit(101);
    }));
}

/// An event for the loop.
enum Event {
    /// A key, or a new size.
    Terminal(TerminalEvent),
    /// The terminal cannot be read any more.
    Closed(String),
    /// A signal.
    Signal(i32),
    /// Responses of slowpath have arrived.
    Responses,
}

/// Restores the terminal when the loop ends, however it ends.
struct RestoreOnDrop;

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        restore();
    }
}

type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// Returns a screen without content, for a terminal that was cleared.
fn screen() -> io::Result<Screen> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(BUFFER, io::stdout())))
}

/// Runs the live view until the operator or a signal ends it.
pub fn run(app: App, source: Source) -> Result<ExitCode, String> {
    let failed = |e: io::Error| format!("the terminal: {e}; --once prints text");
    let (sender, events) = sync_channel(64);
    restore_on_panic();
    watch_signals(sender.clone()).map_err(failed)?;
    let guard = RestoreOnDrop;
    enter().map_err(failed)?;
    let notify = sender.clone();
    // If the queue is full, the loop takes the responses with what is in it.
    let notify = move || drop(notify.try_send(Event::Responses));
    let sampler = Sampler::start(source, app.interval, notify).map_err(failed)?;
    let keys = std::thread::Builder::new().name("keys".into());
    keys.spawn(move || read_keys(&sender)).map_err(failed)?;
    let ended = serve(app, &sampler, &events).map_err(failed);
    sampler.end();
    drop(guard);
    match ended? {
        End::Quit => Ok(ExitCode::SUCCESS),
        End::Interrupted => {
            // In raw mode, Ctrl-C does not make the terminal send SIGINT to the process group.
            kill_current_process_group(Signal::INT).map_err(|e| failed(e.into()))?;
            emulate_default_handler(SIGINT).map_err(failed)?;
            Ok(ExitCode::from(128 + SIGINT as u8))
        }
        End::Closed(error) => Err(format!("the terminal was closed: {error}")),
        End::Signal(signal) => {
            emulate_default_handler(signal).map_err(failed)?;
            Ok(ExitCode::from(128 + signal as u8))
        }
    }
}

/// Sends keys and new sizes.
fn read_keys(sender: &SyncSender<Event>) {
    loop {
        let (event, closed) = match event::read() {
            Ok(event) => (Event::Terminal(event), false),
            Err(error) => (Event::Closed(error.to_string()), true),
        };
        if sender.send(event).is_err() || closed {
            return;
        }
    }
}

/// Sends signals. If one that ends the process has no effect, because the loop waits for a terminal
/// that accepts no output, ends the process.
fn watch_signals(sender: SyncSender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT])?;
    let thread = std::thread::Builder::new().name("signals".into());
    let watch = move || {
        for signal in signals.forever() {
            drop(sender.try_send(Event::Signal(signal)));
            if ![SIGTSTP, SIGCONT].contains(&signal) {
                std::thread::sleep(STUCK);
                // No `restore`: its output would wait as well.
                let _ = disable_raw_mode();
                let _ = emulate_default_handler(signal);
            }
        }
    };
    thread.spawn(watch).map(drop)
}

/// Why the loop ended.
enum End {
    Quit,
    Interrupted,
    Closed(String),
    Signal(i32),
}

fn serve(mut app: App, sampler: &Sampler, events: &Receiver<Event>) -> io::Result<End> {
    let mut terminal = screen()?;
    loop {
        app.now = Instant::now();
        take_responses(&mut app, sampler);
        sampler.request(app.needs());
        terminal.draw(|frame| draw(frame, &mut app))?;
        let mut next = match events.recv_timeout(TICK) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(End::Quit),
        };
        app.now = Instant::now();
        // All events that have arrived are handled before the next drawing.
        while let Some(event) = next {
            match handle(&mut app, event) {
                Ok(Action::Continue) => {}
                Ok(Action::Redraw) => {
                    restore();
                    enter()?;
                    terminal = screen()?;
                }
                Ok(Action::Suspend) => {
                    suspend(&mut app)?;
                    terminal = screen()?;
                }
                Ok(Action::Quit) => return Ok(End::Quit),
                Ok(Action::Interrupt) => return Ok(End::Interrupted),
                Err(end) => return Ok(end),
            }
            next = events.try_recv().ok();
        }
    }
}

fn take_responses(app: &mut App, sampler: &Sampler) {
    let responses = sampler.take();
    app.interval = responses.interval;
    if let Some(sample) = responses.sample {
        app.accept(sample);
    }
    if let Some((query, extra)) = responses.extra {
        app.accept_extra(query, extra);
    }
}

fn handle(app: &mut App, event: Event) -> Result<Action, End> {
    match event {
        Event::Terminal(TerminalEvent::Key(key)) if key.kind != KeyEventKind::Release => {
            let action = app.press(key);
            if action == Action::Suspend {
                // In raw mode the terminal does not stop the process group. This process gets the
                // signal as well, and stops when it handles it.
                let stopped = has_shell() && kill_current_process_group(Signal::TSTP).is_ok();
                if !stopped {
                    "no shell to return to".clone_into(&mut app.message);
                }
                return Ok(Action::Continue);
            }
            Ok(action)
        }
        // A new size is read when the screen is drawn.
        Event::Terminal(_) => Ok(Action::Continue),
        // Responses are taken before each drawing.
        Event::Responses => Ok(Action::Continue),
        Event::Signal(SIGTSTP) => Ok(Action::Suspend),
        // A shell may have changed the terminal while this process was stopped.
        Event::Signal(SIGCONT) => Ok(Action::Redraw),
        Event::Signal(signal) => Err(End::Signal(signal)),
        Event::Closed(error) => Err(End::Closed(error)),
    }
}

/// Returns whether a shell can continue this process: not if it is the leader of its session.
fn has_shell() -> bool {
    getsid(None).is_ok_and(|session| session != getpid())
}

/// Stops the process until a shell continues it.
fn suspend(app: &mut App) -> io::Result<()> {
    restore();
    emulate_default_handler(SIGTSTP)?;
    enter()?;
    app.now = Instant::now();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Set in the process that [`a_panic_restores_the_terminal`] starts.
    const CHILD: &str = "WEIR_TOP_TEST_PANIC";

    #[test]
    fn a_panic_restores_the_terminal() {
        if std::env::var_os(CHILD).is_some() {
            restore_on_panic();
            enter().unwrap();
            panic!("on purpose");
        }
        let program = std::env::current_exe().unwrap();
        let test = "top::screen::tests::a_panic_restores_the_terminal";
        let line =
            format!("{} --exact {test} --nocapture; echo code=$?; stty -a", program.display());
        // `script` gives the program a terminal, and prints what the terminal receives.
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env(CHILD, "1").stdin(Stdio::null());
        let output = script.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text:?}"));
        let (entered, left) = (at("\x1b[?1049h"), at("\x1b[?1049l"));
        assert!(entered < left && left < at("on purpose"), "{text:?}");
        assert!(text.contains("code=101"), "{text:?}");
        for mode in ["isig icanon", " echo "] {
            assert!(text.contains(mode), "{mode}: {text:?}");
        }
    }
}
