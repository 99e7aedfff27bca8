//! Tests that a stream ends with its token.

use axum::Json;
use axum::body::to_bytes;

use super::*;
use crate::watch::Lines;

#[tokio::test]
async fn stream_ends_with_an_error_line_when_its_token_ends() {
    let (lines, receiver) = tokio::sync::mpsc::channel(4);
    let ended = watch::Sender::new(false);
    let stream = Body::from_stream(Lines(receiver)).into_response();
    let stream = until_ended(stream, ended.subscribe());
    lines.send(Ok("one\n".to_owned())).await.unwrap();
    let read = tokio::spawn(to_bytes(stream.into_body(), 4096));
    // The channel has space for four lines: the body is read while they are sent.
    for _ in 0..8 {
        lines.send(Ok("more\n".to_owned())).await.unwrap();
    }
    ended.send_replace(true);
    let text = String::from_utf8(read.await.unwrap().unwrap().to_vec()).unwrap();
    let (first, last) = (text.lines().next().unwrap(), text.lines().last().unwrap());
    assert_eq!(first, "one");
    let last: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["type"], &last["problem"]["status"]), (&"error".into(), &401.into()));
    assert!(lines.is_closed(), "the task of the watch ends");
}

#[tokio::test]
async fn response_of_known_length_is_complete() {
    let ended = watch::Sender::new(true);
    let response = until_ended(Json("whole").into_response(), ended.subscribe());
    let body = to_bytes(response.into_body(), 4096).await.unwrap();
    assert_eq!(&body[..], b"\"whole\"");
}
