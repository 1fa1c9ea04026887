//! `awa enqueue`: NDJSON in, all or nothing.

use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::Path;
use std::process::ExitCode;

use awa::Job;
use serde_json::json;

use super::{Done, Place};
use crate::ndjson::{JobLine, read_jobs};
use crate::output::Failed;

pub(super) async fn enqueue(place: &Place, file: &Path, queue: &str) -> Done {
    let lines = if file == Path::new("-") {
        read_jobs(stdin().lock())
    } else {
        let opened = File::open(file).map_err(|e| Failed::other(&file.display().to_string(), e))?;
        read_jobs(BufReader::new(opened))
    };
    let lines = lines.map_err(|e| Failed::input(format!("{}: {e}", file.display())))?;
    let jobs = lines.into_iter().map(|line| line.into_job(queue));
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let count = jobs.len();
    let ids = place.client().await?.enqueue_many(jobs).await?;
    let ids: Vec<_> = ids.into_iter().map(|id| id.0).collect();
    place.say(&format!("Enqueued {count} jobs."), &json!({ "enqueued": count, "jobs": ids }));
    Ok(ExitCode::SUCCESS)
}

impl JobLine {
    /// The job that the line describes, on `queue` if it names none.
    pub(crate) fn into_job(self, queue: &str) -> Result<Job, Failed> {
        use crate::ndjson::Due;
        let queue = self.queue.as_ref().map_or(queue, |q| q.as_str());
        let mut job = Job::from_json(self.kind.as_str(), self.args)?
            .queue(queue)?
            .priority(self.priority.0.into())?
            .shard(self.shard.0.into())?
            .max_attempts(self.max_attempts.into())?;
        job = match self.due {
            Due::Now => job,
            Due::At(at) => job.run_at_instant(at),
            Due::After(span) => job.run_in(span.into()),
        };
        for tag in &self.tags {
            job = job.tag(tag)?;
        }
        if let Some(metadata) = &self.metadata {
            job = job.metadata_json(metadata)?;
        }
        Ok(job)
    }
}
