//! Hears of new jobs where the server can tell (H57: a transaction pooler can't), so that a sleeping
//! worker need not wait for its next poll.

use awa_driver::listen::Listener;
use tokio::sync::mpsc::UnboundedSender;

use crate::client::Client;
use crate::worker::claims::Event;

/// The wait before listening is tried again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) async fn listen(client: Client, events: UnboundedSender<Event>) {
    if client.behind_pooler() {
        tracing::info!("behind a transaction pooler LISTEN delivers nothing: workers poll");
        return;
    }
    let sessions = client.sessions();
    loop {
        match Listener::start(sessions.connector(), sessions.sql()).await {
            Ok(mut listener) => {
                // Whatever came while nobody listened is looked for once.
                if events.send(Event::WakeAll).is_err() {
                    return;
                }
                while let Some(lanes) = listener.next().await {
                    if events.send(Event::Wake(lanes)).is_err() {
                        return;
                    }
                }
                tracing::debug!("the listening connection ended");
            }
            Err(error) => tracing::debug!(%error, "can't listen; polling goes on"),
        }
        tokio::time::sleep(RETRY).await;
    }
}
