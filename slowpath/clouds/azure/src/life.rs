//! The way into the pools, the stay there, and the way out.

mod words;

pub use words::{
    Admin, Answer, Call, Effect, Event, Exit, Followed, Kept, Member, Seen, Source, Why,
};
