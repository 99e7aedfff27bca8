//! Prints the key reference: `cargo run -p config --example keys > config/KEYS.md`.

fn main() {
    print!("{}", config::key_reference());
}
